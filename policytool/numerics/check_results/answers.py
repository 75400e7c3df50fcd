"""Whether a candidate is safe, and what shows it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from policytool.numerics.check_results.metrics import OutputMetric


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
