"""What a check comes to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from policytool.support.errors import UsageError, short

if TYPE_CHECKING:
    from policytool.numerics.check_results.task_metrics import TaskMetric


class Required(StrEnum):
    """What must stay within its tolerance for a check to pass."""

    OUTPUTS = "outputs"
    LAYERS = "layers"
    BOTH = "both"


def required(text: str) -> Required:
    """
    Return what a word requires.

    :raises UsageError: for another word.
    """
    if text not in set(Required):
        words = ", ".join(one.value for one in Required)
        raise UsageError(f"require must be one of {words}, not {short(text)!r}")
    return Required(text)


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
class PartError:
    """The error of the row or of the channel of an output that is farthest off."""

    kind: str
    """``row`` or ``channel``."""

    index: int
    error: float
    tolerance: float


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

    part: PartError | None = None
    """The row or channel of an output that exceeds its tolerance although the output does not."""

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


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckVerdict:
    """Whether the candidate computes what the reference does, as nearly as its dtypes allow."""

    judgements: tuple[Judgement, ...]
    required: Required = Required.OUTPUTS
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
        What is outside its tolerance: outputs first, then layers, each from the farthest above its
        tolerance down.
        """
        found = [one for one in self.judgements if one.is_missed]
        return tuple(
            sorted(found, key=lambda one: (one.about is JudgementSubject.LAYER, -excess(one)))
        )

    @property
    def deciding(self) -> tuple[Judgement, ...]:
        """What fails the check: what is outside its tolerance and required."""
        return tuple(one for one in self.missed if self.requires(one))

    @property
    def is_inconclusive(self) -> bool:
        """Whether outputs are required, and none of them shows anything of the candidate."""
        outputs = [one for one in self.judgements if one.about is JudgementSubject.OUTPUT]
        return (
            self.required is not Required.LAYERS
            and bool(outputs)
            and all(one.not_comparable is not None for one in outputs)
        )

    @property
    def passed(self) -> bool:
        """Whether nothing fails the check."""
        return not (self.deciding or self.is_metric_worse)

    @property
    def is_metric_worse(self) -> bool:
        """Whether the task's own metric gets worse than allowed, which always fails the check."""
        return self.metric is not None and not self.metric.passed

    @property
    def would_pass(self) -> float | None:
        """
        The smallest tolerance for all outputs with which they would pass; None where one is not
        finite, or only some of its rows or channels are too far off.
        """
        outputs = [one for one in self.judgements if one.about is JudgementSubject.OUTPUT]
        if any(
            one.ruling is Ruling.NOT_FINITE or one.error is None or one.part is not None
            for one in outputs
        ):
            return None
        return max((one.error for one in outputs if one.error is not None), default=0.0)

    def requires(self, judgement: Judgement) -> bool:
        """Return whether a judgement decides the check."""
        return self.required is Required.BOTH or (
            (self.required is Required.LAYERS) is (judgement.about is JudgementSubject.LAYER)
        )


def excess(judgement: Judgement) -> float:
    """
    Return how many times an error is its tolerance; infinity for what is not finite, and for
    integers that differ.
    """
    if judgement.ruling in {Ruling.NOT_FINITE, Ruling.DIFFERING} or judgement.error is None:
        return float("inf")
    pairs = [(judgement.error, judgement.tolerance)]
    if judgement.part is not None:
        pairs.append((judgement.part.error, judgement.part.tolerance))
    return max(_ratio(*pair) for pair in pairs)


def _ratio(error: float, tolerance: float) -> float:
    if not tolerance:
        return float("inf") if error else 0.0
    return error / tolerance
