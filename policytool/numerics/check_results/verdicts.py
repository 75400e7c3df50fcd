"""
The verdict of a check: judgements of errors, the answer whether the candidate is safe, and what
changed since an earlier check.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from policytool.numerics.check_results.metrics import OutputMetric, TaskMetric


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
        return tuple(
            sorted(
                (judgement for judgement in self.judgements if judgement.is_missed),
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
        return math.inf
    return ratio(judgement.error, judgement.tolerance)


def ratio(used: float, allowed: float) -> float:
    """Return how many times what is allowed was used; infinity if nothing is allowed."""
    if used <= 0:
        return 0.0
    return used / allowed if allowed else math.inf


class OutputKind(StrEnum):
    """
    What the values of an output are, and so what counts as a change of a prediction; the kinds
    whose changes are counted first.
    """

    CLASSES = "classes"
    """A score for each class: the place of the largest counts."""

    BINARY = "binary"
    """A probability or a score for each label: the side of 0.5, or of 0, counts."""

    EMBEDDING = "embedding"
    """A vector whose nearest neighbour counts."""

    VALUES = "values"
    """Integers, text or truth values, which count as they are."""

    MASK = "mask"
    """A probability for each position, of which those above 0.5 are in the mask."""

    REGRESSION = "regression"
    """Numbers whose values count, such as images and scores."""

    PROBABILITY = "probability"
    """A probability whose value counts."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """A value with its bounds at 95 % confidence, each on one side."""

    value: float
    lower: float
    upper: float


class Answer(StrEnum):
    """Whether a candidate is safe, from the best answer to the worst."""

    SAFE = "safe"
    UNDECIDED = "undecided"
    NOT_SAFE = "not-safe"


class Open(StrEnum):
    """Why an output is undecided."""

    FEW = "few-samples"
    """More samples would decide."""

    BETWEEN = "between"
    """The change is between what is safe and what is not."""

    CONSTANT = "constant"
    """The output of the reference does not vary between samples."""

    NOT_FINITE = "not-finite"
    """The output of the reference is not finite."""

    UNFIT = "unfit-kind"
    """The output has no values of the kind that it is said to be of."""

    KINDS = "kinds"
    """The output may be of several kinds, which have different answers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KindAnswer:
    """What one kind of values says of an output."""

    kind: OutputKind
    answer: Answer
    change: Bounds
    """
    The share of samples that changed, or the error relative to the spread or to the mean
    probability.
    """

    samples: int
    why: Open | None = None
    needed: int | None = None
    """How many samples would show that it is safe, if the others are like these."""

    channel: int | None = None
    """The channel with the largest error; None if all are compared together."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputAnswer:
    """What the values of one output say of a candidate."""

    name: str
    answer: Answer
    kinds: tuple[KindAnswer, ...]
    """The one that decides first."""

    samples: int
    spoiled: int = 0
    """Samples with NaN or infinity in the candidate only."""

    why: Open | None = None
    labels: OutputMetric | None = None
    """The metric with labels if it decides."""

    @property
    def deciding(self) -> KindAnswer | None:
        """The kind that decides; None where no kind could be judged."""
        return self.kinds[0] if self.kinds else None


def worst(answers: Iterable[Answer]) -> Answer:
    """Return the answer of several outputs or runs together."""
    return max(answers, key=severity, default=Answer.UNDECIDED)


def severity(answer: Answer) -> int:
    """Return a number that is larger the more an answer speaks against the candidate."""
    return list(Answer).index(answer)


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
