"""Numbers in configs that layers cast to their compute dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.releases.layer_classes import layer_facts
from policytool.rules.numerics._judging import ROUNDS_TO_INFINITY, ROUNDS_TO_ZERO
from policytool.support.text.jsontext import number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

OVERFLOW: Final = "infinite"
FLUSH: Final = "0"


def out_of_range(class_name: str, config: Mapping[str, object]) -> Iterator[tuple[str, float, str]]:
    """Yield each key of a config with a number that float16 does not hold, and what it becomes."""
    for key, counts in layer_facts(class_name).cast_arguments.items():
        for value in numbers(config.get(key)):
            becomes = _becomes(value)
            if becomes in counts:
                yield key, value, becomes or ""
                break


def _becomes(value: float) -> str | None:
    if ROUNDS_TO_INFINITY <= abs(value) < float("inf"):
        return OVERFLOW
    return FLUSH if 0 < abs(value) <= ROUNDS_TO_ZERO else None


def numbers(value: object) -> list[float]:
    """Return the numbers in a value of a config: itself, or those in a list of lists."""
    found: list[float] = []
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, list):
            pending += reversed(one)
        elif (held := number(one)) is not None:
            found.append(held)
    return found
