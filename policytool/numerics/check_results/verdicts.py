"""
The verdict of a check: judgements of errors, and the answer whether the candidate is safe.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable

    from policytool.migration.planning.options import Assignment
    from policytool.numerics.check_results.metrics import OutputMetric, TaskMetric


class JudgementSubject(StrEnum):
    """What a judgement is about."""

    LAYER = "layer"
    """The isolated error of a call of a layer."""

    OUTPUT = "output"
    """The accumulated error of an output of the model, or of a signature."""


class Ruling(StrEnum):
    """The result of a judgement."""

    PASSED = "passed"
    MISSED = "missed"
    """The error is above the tolerance."""

    NOT_FINITE = "not-finite"
    """The candidate computes NaN or infinity where the reference does not."""

    NOTHING = "nothing-compared"
    """
    Every value of an output is NaN or infinite in the reference, so that no value was compared.
    """

    DIFFERING = "differing"
    """
    A layer without float inputs returns different integers, text or bools for the same inputs, for
    example because a 16-bit dtype cannot represent an id.
    """

    CHANGED = "changed"
    """The error is within the tolerance, but more predictions change than are safe."""


class NotComparable(StrEnum):
    """Why an output does not show the precision of the candidate."""

    NOT_FINITE = "not-finite"
    """No value of the reference is finite."""

    ZERO = "zero"
    """Every value of the reference is zero."""

    CONSTANT = "constant"
    """All values of the reference are the same."""


class Judgement(Struct, frozen=True, kw_only=True):
    """
    An error compared with its tolerance.

    Errors are relative L2 norms, or shares of differing values for tensors that are not floats.
    """

    about: JudgementSubject
    path: str
    """The place of a layer call, or the name of an output."""

    ruling: Ruling
    error: float | None
    """
    None if no finite values were compared, and for tensors that are not floats unless the user set
    a tolerance.
    """

    tolerance: float
    given: bool
    """Whether the user set the tolerance with ``--tolerance``."""

    not_comparable: NotComparable | None = None

    @property
    def is_missed(self) -> bool:
        """Whether the judgement does not pass."""
        return self.ruling is not Ruling.PASSED


class Origin(Struct, frozen=True, kw_only=True):
    """The call that causes the error of a failed check."""

    path: str
    """The place of the call of a layer or op."""

    class_name: str
    in_code: bool
    """Whether the code of the layer causes the error, and not a layer that it calls."""

    seen_in: str | None
    """The call that shows the error, because this call rounds its inputs too much."""

    nonfinite: bool
    """Whether the call computes NaN or infinity."""

    in_reference: bool = False
    """Whether the call computes NaN or infinity in the reference too."""


class Advice(Struct, frozen=True, kw_only=True):
    """The layers that must stay in float32, from further runs of the check."""

    layers: tuple[str, ...]
    """By the paths of the file; empty if no set of layers makes the check pass."""

    trials: int
    """The number of further runs."""

    exhausted: bool = False
    """
    Whether no set was found, although the check did not run with all layers in float32: the limit
    of runs was reached, or this run failed. If not, and ``layers`` is empty, no such set exists.
    """

    replaced: tuple[Assignment, ...] = ()
    """The ``--set`` options for some of these layers, which must be removed."""

    choices: int = 0
    """The number of layers in the file that follow the policy and could stay in float32."""

    policy: str | None = None
    """
    The other mixed policy, if the check passes with it. It is tried if this policy does not suit
    the model.
    """

    @property
    def is_unfit(self) -> bool:
        """
        Whether the policy does not suit the model: most layers would have to stay in float32, or
        no set of layers was found, and the check passes with the other policy.
        """
        return 2 * len(self.layers) > self.choices > 0 or self.policy is not None


class CheckVerdict(Struct, frozen=True, kw_only=True):
    """Whether the errors of the candidate are within what its dtypes explain."""

    judgements: tuple[Judgement, ...]
    first_not_finite: str | None = None
    """
    The first call, in the order of the model, in which the candidate computes NaN or infinity where
    the reference does not.
    """

    nonfinite_reference: str | None = None
    """The first call in which the reference computes NaN, or infinity if it computes no NaN."""

    metric: TaskMetric | None = None
    """The task's own metric; None without labels."""

    def about(self, subject: JudgementSubject) -> list[Judgement]:
        """Return the judgements of all outputs, or of all layers."""
        return [judgement for judgement in self.judgements if judgement.about is subject]

    def by_path(self, subject: JudgementSubject) -> dict[str, Judgement]:
        """Return the judgements of all outputs, or of all layers, by their paths."""
        return {judgement.path: judgement for judgement in self.about(subject)}

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
        """The missed judgements of outputs, which decide the verdict; layers only explain it."""
        return tuple(
            judgement for judgement in self.missed if judgement.about is JudgementSubject.OUTPUT
        )

    @property
    def is_inconclusive(self) -> bool:
        """Whether no output is comparable."""
        outputs = self.about(JudgementSubject.OUTPUT)
        return bool(outputs) and all(judgement.not_comparable is not None for judgement in outputs)

    @property
    def passed(self) -> bool:
        """Whether no output and no metric fails the check."""
        return not (self.deciding or self.is_metric_worse)

    @property
    def is_metric_worse(self) -> bool:
        """Whether the metric of the task gets worse than allowed, which always fails the check."""
        return self.metric is not None and not self.metric.passed


def excess(judgement: Judgement) -> float:
    """
    Return an error as a multiple of its tolerance; infinity for new NaN or infinity, and for
    integers that differ.
    """
    if judgement.ruling in {Ruling.NOT_FINITE, Ruling.DIFFERING} or judgement.error is None:
        return math.inf
    return ratio(judgement.error, judgement.tolerance)


def ratio(used: float, allowed: float) -> float:
    """Return ``used`` as a multiple of ``allowed``; infinity if ``allowed`` is 0."""
    if used <= 0:
        return 0.0
    return used / allowed if allowed else math.inf


class OutputKind(StrEnum):
    """
    The meaning of an output's values, which determines how a prediction changes. Kinds whose
    changes are counted come first.
    """

    CLASSES = "classes"
    """A score for each class. A prediction changes if another class has the largest score."""

    BINARY = "binary"
    """
    A probability or score for each label. A prediction changes if it moves to the other side of
    0.5, or of 0.
    """

    EMBEDDING = "embedding"
    """A vector. A prediction changes if it has another nearest neighbor."""

    VALUES = "values"
    """Integers, text or bools. A prediction changes if a value differs."""

    MASK = "mask"
    """A probability for each position. Positions above 0.5 are in the mask."""

    REGRESSION = "regression"
    """Numbers such as images and scores. The error of the values is measured."""

    PROBABILITY = "probability"
    """A probability. The error of the value is measured."""


class Bounds(Struct, frozen=True):
    """A value with its one-sided bounds at 95 % confidence."""

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
    """The change is too large to be safe, and too small to be not safe."""

    CONSTANT = "constant"
    """The output of the reference does not vary between samples."""

    NOT_FINITE = "not-finite"
    """The output of the reference is not finite."""

    UNFIT = "unfit-kind"
    """The values of the output do not match the kind that the user specified."""

    KINDS = "kinds"
    """The output may be of several kinds, which have different answers."""


class KindAnswer(Struct, frozen=True, kw_only=True):
    """The answer for an output if its values are of one kind."""

    kind: OutputKind
    answer: Answer
    change: Bounds
    """
    The share of samples that changed, or the error relative to the spread or to the mean
    probability.
    """

    samples: int
    predictions: int
    """The number of predictions in these samples; several for each token or pixel of a sample."""

    why: Open | None = None
    needed: int | None = None
    """The number of samples that would show that it is safe, if more samples are like these."""

    channel: int | None = None
    """The channel with the largest error; None if all are compared together."""

    limit: float | None = None
    """The largest change that is safe, if the change is above it, but too small to be not safe."""


class OutputAnswer(Struct, frozen=True, kw_only=True):
    """Whether the candidate is safe, according to one output."""

    name: str
    answer: Answer
    kinds: tuple[KindAnswer, ...]
    """The answers for each possible kind; the kind that decides is first."""

    samples: int
    spoiled: int = 0
    """The number of samples with NaN or infinity in the candidate only."""

    why: Open | None = None
    labels: OutputMetric | None = None
    """The metric with labels, if it decides."""

    @property
    def deciding(self) -> KindAnswer | None:
        """The answer of the kind that decides; None if no kind has an answer."""
        return self.kinds[0] if self.kinds else None


def worst(answers: Iterable[Answer]) -> Answer:
    """Return the worst of the answers of several outputs or runs."""
    return max(answers, key=severity, default=Answer.UNDECIDED)


def severity(answer: Answer) -> int:
    """Return the rank of an answer, from 0 for safe to the highest number for not safe."""
    return list(Answer).index(answer)
