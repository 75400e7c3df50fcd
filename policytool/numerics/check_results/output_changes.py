"""How the values of a model's output changed, row by row, summed up over all batches."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Shares:
    """The shares of the rows of each sample that changed: 0 or 1 where a sample is one row."""

    samples: int
    changed: int
    """Samples in which any row changed."""

    total: float
    """The sum of the shares."""

    squares: float
    """The sum of their squares."""

    worst: float
    """The largest share."""

    @property
    def mean(self) -> float:
        """The mean share."""
        return self.total / self.samples if self.samples else 0.0

    @property
    def is_counted(self) -> bool:
        """Whether each sample changed as a whole or not at all."""
        return self.total == self.changed


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelErrors:
    """The errors of one channel, or of all channels together."""

    error: float
    """The sum of squared errors."""

    worst: float
    """That of the worst sample."""

    squares: float
    """The sum of the squares of each sample's sum."""

    spread: float
    """The sum of the squared distances of the reference's values from their mean."""

    mean: float
    """The absolute mean of the reference's values."""

    values: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbabilityErrors:
    """The differences of values from 0 to 1."""

    error: float
    """The sum of absolute differences."""

    squares: float
    """The sum of the squares of each sample's sum."""

    worst: float
    """The largest sum for one sample."""

    sum: float
    """The sum of the reference's values."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputChanges:
    """What became of the values of one output."""

    samples: int
    compared: int
    """Samples that are finite in both models."""

    spoiled: int
    """Samples with NaN or infinity in the candidate where the reference is finite."""

    rows: int
    width: int
    """Values of the last axis."""

    range: tuple[float, float] | None
    """The lowest and the highest finite value of the reference; None where none is finite."""

    varies: bool
    """Whether samples of the reference differ."""

    is_probability: bool
    """Whether all values of the reference are from 0 to 1."""

    sums_to_one: bool
    """Whether the values of each row of the reference do."""

    has_unit_norm: bool
    """Whether each row of the reference does."""

    open_share: float | None
    """The share of values that are far from 0 and from 1."""

    class_changes: Shares | None
    """The rows whose largest value is in another place."""

    side_changes: Shares | None
    """The values on the other side of 0.5, of what may be negative of 0."""

    value_changes: Shares | None
    """Of integers, words and truth values: the values that differ."""

    neighbor_changes: Shares | None
    """The vectors with another nearest neighbour among the samples."""

    unmatched_masks: Shares | None
    """One less the intersection over the union of the values above 0.5."""

    probability: ProbabilityErrors | None
    class_error: float | None
    """The sum of the absolute differences of the logarithm of each row's largest probability."""

    channels: tuple[ChannelErrors, ...]
