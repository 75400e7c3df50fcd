"""What changed since an earlier check of the same model, or of another checkpoint of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Subject(StrEnum):
    """What changed."""

    OUTPUT = "output"
    LAYER = "layer"
    METRIC = "metric"


class Change(StrEnum):
    """How it changed."""

    EXCEEDS = "exceeds"
    """It was within its tolerance, and is not any more."""

    GREW = "grew"
    """The error is much larger."""

    WORSE = "worse"
    """The metric is worse by more than is allowed."""

    WITHIN = "within"
    """It exceeded its tolerance, and does not any more."""

    SHRANK = "shrank"
    BETTER = "better"


REGRESSIONS: Final = frozenset({Change.EXCEEDS, Change.GREW, Change.WORSE})
"""The changes that fail a check."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One error, or the metric, that is not what it was."""

    device: str
    signature: str | None
    about: Subject
    path: str
    """The place of a layer's call, or the name of an output or metric."""

    before: float | None
    """The error, or the candidate's metric; infinite for NaN and infinity, None for unknown."""

    now: float | None
    allowed: float | None
    """The tolerance of the error now, or how much worse the metric may be."""

    change: Change

    @property
    def is_regression(self) -> bool:
        """Whether it fails the check."""
        return self.change in REGRESSIONS


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """A check and an earlier one."""

    file: str
    """The report of the earlier one."""

    paired: int
    """How many outputs and layer calls both have."""

    differences: tuple[Difference, ...]
    """Regressions first; each kind in the order of the model."""

    only_before: tuple[str, ...]
    """What only the earlier check has."""

    only_now: tuple[str, ...]
    notes: tuple[str, ...]
    """What else is different about the two checks."""

    @property
    def regressions(self) -> tuple[Difference, ...]:
        """The differences that fail the check."""
        return tuple(difference for difference in self.differences if difference.is_regression)

    @property
    def passed(self) -> bool:
        """Whether nothing does."""
        return not self.regressions
