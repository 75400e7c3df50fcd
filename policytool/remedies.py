"""
What ``--fix`` does: the remedies of a model's findings, merged into what one migration is asked for, and what became of it.

A safe remedy computes the same bit for bit and is carried out by ``--fix``; the others need ``--unsafe-fixes`` too.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from policytool.finding import Finding


class Outcome(StrEnum):
    """What became of one model."""

    MENDED = "mended"
    """It was rewritten in place."""

    PLANNED = "planned"
    """It would be rewritten; ``--diff`` writes nothing."""

    LEFT = "left"
    """It was left alone, with the reason at each finding."""

    FAILED = "failed"
    """It could not be written; it is what it was."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unmended:
    """A finding that has a remedy, and was not mended."""

    finding: Finding
    reason: str
    """Why, as a sentence without a full stop."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mended:
    """What ``--fix`` did to one model that has findings with remedies."""

    path: str
    """The model, as reports show it."""

    outcome: Outcome
    arguments: tuple[str, ...] = ()
    """The words that follow ``policytool migrate PATH`` for the same; none for plain ``migrate``, and where nothing was asked."""

    gone: tuple[Finding, ...] = ()
    """What was found before, and no longer is; with ``--diff``, what would be mended."""

    left: tuple[Unmended, ...] = ()
    """What was to be mended, and was not."""

    warnings: tuple[str, ...] = ()
    """What the rewritten file no longer says, in migrate's words."""

    backup: str | None = None
    """Where the original is kept, as reports show it."""
