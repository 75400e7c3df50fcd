"""What a check comes to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class JudgementSubject(StrEnum):
    """What a judgement is about."""

    LAYER = "layer"
    """The isolated error of a call of a layer."""

    OUTPUT = "output"
    """The accumulated error of an output of the model, or of a signature."""


class Ruling(StrEnum):
    """How a judgement goes."""

    PASSED = "passed"
    MISSED = "missed"
    """The error is above the tolerance."""

    NOT_FINITE = "not-finite"
    """The candidate makes NaN or infinity where the reference does not."""

    NOTHING = "nothing-compared"
    """
    Every value of an output is NaN or infinite in the reference, so that nothing is known of the
    candidate.
    """

    DIFFERING = "differing"
    """
    A layer that takes no floats makes other integers, words or truth values of the same ones: ids,
    for one, that a 16-bit dtype does not hold.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """
    One error held against its tolerance.

    Errors are relative L2 norms; of tensors that are no floats, the share of values that differ.
    """

    about: JudgementSubject
    path: str
    """The layer's place, or the output's name."""

    ruling: Ruling
    error: float | None
    """
    None where nothing finite could be compared, and of tensors that are no floats where no
    tolerance was given.
    """

    tolerance: float
    given: bool
    """Whether the tolerance was given by ``--tolerance``."""

    @property
    def is_missed(self) -> bool:
        """Whether it fails the check."""
        return self.ruling is not Ruling.PASSED


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckVerdict:
    """Whether the candidate computes what the reference does, as nearly as its dtypes allow."""

    judgements: tuple[Judgement, ...]
    first_not_finite: str | None = None
    """
    The first call, in the order of the model, in which the candidate makes NaN or infinity where
    the reference does not.
    """

    @property
    def missed(self) -> tuple[Judgement, ...]:
        """
        What fails the check: outputs first, then layers, each from the farthest above its tolerance
        down.
        """
        found = [one for one in self.judgements if one.is_missed]
        return tuple(
            sorted(found, key=lambda one: (one.about is JudgementSubject.LAYER, -excess(one)))
        )

    @property
    def passed(self) -> bool:
        """Whether nothing fails the check."""
        return not self.missed

    @property
    def would_pass(self) -> float | None:
        """
        The smallest tolerance for all outputs with which they would pass; None where one is not
        finite.
        """
        outputs = [one for one in self.judgements if one.about is JudgementSubject.OUTPUT]
        if any(one.ruling is Ruling.NOT_FINITE or one.error is None for one in outputs):
            return None
        return max((one.error for one in outputs if one.error is not None), default=0.0)


def excess(judgement: Judgement) -> float:
    """
    Return how many times an error is its tolerance; infinity for what is not finite, and for
    integers that differ.
    """
    if judgement.ruling in {Ruling.NOT_FINITE, Ruling.DIFFERING} or judgement.error is None:
        return float("inf")
    if not judgement.tolerance:
        return float("inf") if judgement.error else 0.0
    return judgement.error / judgement.tolerance
