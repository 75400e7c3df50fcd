"""
Every generation of Keras, oldest first, one module each.

To add a generation, write its module and add one line to :data:`GENERATIONS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.releases.generations import (
    keras1,
    keras2,
    keras30,
    keras34,
    tf1,
    tf21,
    tf24,
    tf29,
    tf213,
)
from policytool.releases.generations._base import Generation, SubLayer, SubPolicy, Unsaid
from policytool.support.errors import SpellingError

if TYPE_CHECKING:
    from policytool.releases.policy import Policy, PolicyMap
    from policytool.support.text.jsontext import Json

GENERATIONS: Final[tuple[Generation, ...]] = (
    keras1.GENERATION,
    keras2.GENERATION,
    tf1.GENERATION,
    tf21.GENERATION,
    tf24.GENERATION,
    tf29.GENERATION,
    tf213.GENERATION,
    keras30.GENERATION,
    keras34.GENERATION,
)


def parse(value: Json, first: Generation) -> Policy | PolicyMap:
    """
    Return the policy that a config's ``dtype`` value spells: as the file's own generation has it,
    else as any other.

    :raises SpellingError: as the file's own generation says it, for what none of them writes.
    """
    try:
        return first.parse(value)
    except SpellingError as error:
        for other in reversed(GENERATIONS):
            try:
                return other.parse(value)
            except SpellingError:
                continue
        raise SpellingError(str(error)) from error


__all__ = ["GENERATIONS", "Generation", "SubLayer", "SubPolicy", "Unsaid", "parse"]
