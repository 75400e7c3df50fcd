"""What a check comes to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from policytool.numerics.check_results.metrics import TaskMetric


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


class NotComparable(StrEnum):
    """Why an output shows nothing of the candidate's precision."""

    NOT_FINITE = "not-finite"
    """No value of the reference is finite."""

    ZERO = "zero"
    """Every value of the reference is zero."""

    CONSTANT = "constant"
    """All values of the reference are the same."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """
    One error compared with its tolerance.

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

    not_comparable: NotComparable | None = None

    @property
    def is_missed(self) -> bool:
        """Whether it is outside its tolerance."""
        return self.ruling is not Ruling.PASSED


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """The place that causes the error of a failed check."""

    path: str
    """The place of the call of a layer or op."""

    class_name: str
    in_code: bool
    """Whether the layer's own code makes the error, and not one of the layers that it calls."""

    seen_in: str | None
    """The call that shows the error, if its inputs were rounded too much."""

    nonfinite: bool
    """Whether it makes NaN or infinity."""

    in_reference: bool = False
    """Whether it does so in the reference already."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
    """The layers that have to stay in float32, found by running the check with them."""

    layers: tuple[str, ...]
    """By the paths of the file; empty if no set of layers makes the check pass."""

    trials: int
    """How many times the check was run again."""

    exhausted: bool = False
    """Whether the trials ended before a set was found; otherwise none exists."""

    choices: int = 0
    """How many layers of the file follow the policy, each of which could stay in float32."""

    policy: str | None = None
    """The other mixed policy if the check passes with it, which is tried if this one is unfit."""

    @property
    def is_unfit(self) -> bool:
        """
        Whether the policy does not suit the model: most layers would have to stay in float32, or
        no set of layers was found, and the check passes with the other policy.
        """
        return 2 * len(self.layers) > self.choices > 0 or self.policy is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckVerdict:
    """Whether the candidate computes what the reference does, as nearly as its dtypes allow."""

    judgements: tuple[Judgement, ...]
    first_not_finite: str | None = None
    """
    The first call, in the order of the model, in which the candidate makes NaN or infinity where
    the reference does not.
    """

    nonfinite_reference: str | None = None
    """The first call in which the reference makes NaN, or infinity if it makes no NaN."""

    metric: TaskMetric | None = None
    """The task's own metric; None without labels."""

    @property
    def missed(self) -> tuple[Judgement, ...]:
        """
        The judgements outside their tolerance: outputs first, then layers, each sorted by excess,
        largest first.
        """
        missed_judgements = [judgement for judgement in self.judgements if judgement.is_missed]
        return tuple(
            sorted(
                missed_judgements,
                key=lambda judgement: (
                    judgement.about is JudgementSubject.LAYER,
                    -excess(judgement),
                ),
            )
        )

    @property
    def deciding(self) -> tuple[Judgement, ...]:
        """The outputs that are outside their tolerance; layers only explain."""
        return tuple(
            judgement for judgement in self.missed if judgement.about is JudgementSubject.OUTPUT
        )

    @property
    def is_inconclusive(self) -> bool:
        """Whether no output is comparable."""
        outputs = [
            judgement for judgement in self.judgements if judgement.about is JudgementSubject.OUTPUT
        ]
        return bool(outputs) and all(judgement.not_comparable is not None for judgement in outputs)

    @property
    def passed(self) -> bool:
        """Whether nothing fails the check."""
        return not (self.deciding or self.is_metric_worse)

    @property
    def is_metric_worse(self) -> bool:
        """Whether the task's own metric gets worse than allowed, which always fails the check."""
        return self.metric is not None and not self.metric.passed


def excess(judgement: Judgement) -> float:
    """
    Return how many times an error is its tolerance; infinity for what is not finite, and for
    integers that differ.
    """
    if judgement.ruling in {Ruling.NOT_FINITE, Ruling.DIFFERING} or judgement.error is None:
        return float("inf")
    return _ratio(judgement.error, judgement.tolerance)


def _ratio(error: float, tolerance: float) -> float:
    if not tolerance:
        return float("inf") if error else 0.0
    return error / tolerance
