"""What something in a file does to whoever loads it, and one such thing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from policytool.formats.document import Address


class Harm(StrEnum):
    """What something in a file does to whoever loads it."""

    CODE = "code"
    """It is code, which the loader runs."""

    NAMED = "named"
    """It names code that reaches files, the network or Python itself, which a loader looks up."""

    UNKNOWN = "unknown"
    """
    It names something of a library's that is on no list of what only computes, or is written in a
    way that no release writes.
    """

    CUSTOM = "custom"
    """It names code of someone's own, which has to be at hand."""

    FILE = "file"
    """It makes the loader open another file, or fetch one."""

    ENDLESS = "endless"
    """It keeps the loader busy without end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Hazard:
    """One such thing."""

    harm: Harm
    name: str
    """What tells it apart within its layer: a class, a function with its module, a config key."""

    what: str
    """What it does, as a predicate."""

    address: Address
    site: int | None
    """The layer that it stands in; None where it is in none, as in a training configuration."""

    module: str | None = None
    """
    The module that the file names for it, which a loader may import; None where it names none.
    """


HazardParts = tuple[Harm, str, str]
"""A harm, and a hazard's name and predicate, before it is known where it stands."""
