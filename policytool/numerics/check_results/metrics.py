"""
The measurements of a check, for each call of a layer and each output: how far a candidate's tensor
is from the reference's, how the values of an output changed, and the metric of the model's task.

Sums and distances are over the pairs of elements in which both are finite; counts tell of the
others. Changes are counted row by row, and summed up over all batches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping


_Number = TypeVar("_Number", int, float)

LARGEST_FINITE: Final[Mapping[str, float]] = MappingProxyType(
    {
        "float16": (2 - 2.0**-10) * 2.0**15,
        "bfloat16": (2 - 2.0**-7) * 2.0**127,
        "float32": (2 - 2.0**-23) * 2.0**127,
        "float64": (2 - 2.0**-52) * 2.0**1023,
    }
)
"""By dtype, from how many bits its fraction and its exponent have: 65504 for float16."""

NORMAL_EXPONENTS: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {
        dtype: (2 - math.frexp(largest)[1], math.frexp(largest)[1] - 1)
        for dtype, largest in LARGEST_FINITE.items()
    }
)
"""By dtype, the smallest and the largest binary exponent of a normal number (IEEE 754, 3.3)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorReductions:
    """
    What the device counted and summed of one tensor, over all batches; None for what was not
    measured.
    """

    elements: int
    squared_error: float | None
    """
    The sum of squared differences.

    A sum is infinite where a square is, which takes float64 values beyond 1e154.
    """

    squared_reference: float | None
    squared_candidate: float | None
    overflowed: int | None
    """How many values of the candidate are NaN or infinite where the reference is finite."""

    nan_reference: int | None
    nan_candidate: int | None
    infinite_reference: int | None
    infinite_candidate: int | None
    subnormal: int | None
    """
    How many values of the candidate are not 0 and below the smallest normal number of its dtype.
    """

    flushed: int | None
    """
    How many are 0 where the reference is finite and not 0; a reference that is subnormal in float32
    counts as 0, as it does in TensorFlow's CPU kernels.
    """

    largest_reference: float | None
    """The largest absolute value that is finite; 0 where none is."""

    largest_candidate: float | None
    largest_error: float | None
    """The largest absolute difference; 0 where there is no pair."""

    reference_at_largest: float | None
    """
    The reference where the difference is largest: the first such place in one batch, and the first
    such batch.
    """

    candidate_at_largest: float | None
    differing: int | None
    """
    How many elements are not equal; for tensors that are no floats, of which nothing else is
    measured.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class Metrics:
    """
    How far apart two tensors are; None for what was not measured or has no meaning: there is no
    pair of finite values, or a sum left float64.

    A number can be infinite, for which JSON has no word: a relative error from a reference of
    zeros, the ratio of a signal to no noise, the headroom of zeros.
    """

    elements: int
    max_abs: float | None
    """The largest absolute difference."""

    relative: float | None
    """
    The L2 norm of the difference, over that of the reference: 0 for equal tensors, infinite for a
    reference of zeros that the candidate does not match.
    """

    snr_db: float | None
    """
    The energy of the reference over that of the difference, in decibels: infinite for equal
    tensors, minus infinity where ``relative`` is infinite.
    """

    cosine: float | None
    """
    The cosine of the angle between the tensors, right to 1e-6: 1 for equal ones, None where one of
    two unequal tensors is zero.
    """

    overflow: float | None
    """
    The share of elements that are NaN or infinite in the candidate and finite in the reference.
    """

    nan: tuple[int, int] | None
    """How many elements are NaN in the reference, and in the candidate."""

    infinite: tuple[int, int] | None
    """How many are infinite, likewise."""

    subnormal: float | None
    """
    The share of elements that are subnormal in the candidate's dtype: so small that precision is
    lost.
    """

    flushed: float | None
    """The share of elements that are 0 in the candidate and not in the reference."""

    largest_reference: float | None
    """The largest absolute value that is finite."""

    largest: float | None
    """The same, of the candidate."""

    headroom: float | None
    """
    How many times as large the candidate's largest value could be before it overflows. Where the
    candidate overflows it is the reference's value, so that the headroom of a number that the
    dtype cannot hold is below 1.
    """

    pair: tuple[float, float] | None
    """
    The values of the reference and of the candidate where the difference is largest; None where
    there is no difference.
    """

    differing: int | None
    """How many elements are not equal, of tensors that are no floats."""


def metrics(reductions: TensorReductions, dtype: str) -> Metrics:
    """Return the metrics of a tensor; ``dtype`` is that of the candidate."""
    error, reference, candidate = _sums(reductions)
    return Metrics(
        elements=reductions.elements,
        max_abs=reductions.largest_error if _has_finite_pairs(reductions) else None,
        relative=_relative(error, reference),
        snr_db=_snr(error, reference),
        cosine=_cosine(error, reference, candidate),
        overflow=_share(reductions.overflowed, reductions),
        nan=_pair_or_none(reductions.nan_reference, reductions.nan_candidate),
        infinite=_pair_or_none(reductions.infinite_reference, reductions.infinite_candidate),
        subnormal=_share(reductions.subnormal, reductions),
        flushed=_share(reductions.flushed, reductions),
        largest_reference=reductions.largest_reference,
        largest=reductions.largest_candidate,
        headroom=_headroom(reductions, dtype),
        pair=_pair_or_none(reductions.reference_at_largest, reductions.candidate_at_largest)
        if reductions.largest_error
        else None,
        differing=reductions.differing,
    )


def _has_finite_pairs(reductions: TensorReductions) -> bool:
    """
    Return whether some pair of values is finite on both sides, or there are no elements at all. In
    every other pair, the reference is not finite, or only the candidate is not.
    """
    apart = (
        (reductions.nan_reference or 0)
        + (reductions.infinite_reference or 0)
        + (reductions.overflowed or 0)
    )
    return reductions.elements > apart or not reductions.elements


def _sums(reductions: TensorReductions) -> tuple[float, float, float] | tuple[None, None, None]:
    """
    Return the sums of squares; None for each if they are useless because they left the range of
    float64 or cover no pairs.
    """
    error, reference, candidate = (
        reductions.squared_error,
        reductions.squared_reference,
        reductions.squared_candidate,
    )
    if error is None or reference is None or candidate is None or not _has_finite_pairs(reductions):
        return None, None, None
    lost = error == 0 and bool(reductions.largest_error)
    return (
        (None, None, None)
        if lost or not all(map(math.isfinite, (error, reference, candidate)))
        else (error, reference, candidate)
    )


def _relative(error: float | None, reference: float | None) -> float | None:
    if error is None or reference is None:
        return None
    return math.sqrt(error) / math.sqrt(reference) if reference else math.inf if error else 0.0


def _snr(error: float | None, reference: float | None) -> float | None:
    if error is None or reference is None:
        return None
    if not error:
        return math.inf
    return 10 * (math.log10(reference) - math.log10(error)) if reference else -math.inf


def _cosine(error: float | None, reference: float | None, candidate: float | None) -> float | None:
    """
    Return the cosine by the law of cosines: if the two norms are nearly equal, their rounding
    errors cancel out.
    """
    if error is None or reference is None or candidate is None:
        return None
    if not error:
        return 1.0
    if not reference or not candidate:
        return None
    reference_norm, candidate_norm = math.sqrt(reference), math.sqrt(candidate)
    return max(
        -1.0,
        min(
            1.0,
            (
                reference_norm / candidate_norm
                + candidate_norm / reference_norm
                - error / reference_norm / candidate_norm
            )
            / 2,
        ),
    )


def _headroom(reductions: TensorReductions, dtype: str) -> float | None:
    """
    Return the ratio of the largest finite number of the dtype to the largest value. If the
    candidate overflows, its finite values are the small ones, so the reference counts too.
    """
    largest, limit = reductions.largest_candidate, LARGEST_FINITE.get(dtype)
    if largest is None or limit is None:
        return None
    if reductions.overflowed:
        largest = max(largest, reductions.largest_reference or 0.0)
    return limit / largest if largest else math.inf


def _share(count: int | None, reductions: TensorReductions) -> float | None:
    return None if count is None else count / reductions.elements if reductions.elements else 0.0


def _pair_or_none(
    reference: _Number | None, candidate: _Number | None
) -> tuple[_Number, _Number] | None:
    return None if reference is None or candidate is None else (reference, candidate)


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
    """How the values of one output changed."""

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


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputMetric:
    """What the metric is for one output, or for all outputs together."""

    output: str | None
    """None for a function of the user's that gets several outputs."""

    reference: float
    candidate: float
    drop: float | None
    """How much worse the candidate is; below 0 if it is better, None if a value is NaN."""

    max_drop: float
    passed: bool
    """Whether it gets worse by no more than ``max_drop``."""

    names: tuple[str, ...] = ()
    """The outputs that a function of the user's gets; empty if ``output`` says it."""

    rows: int = 0
    """Rows with labels; 0 if the outputs of the reference took their place."""

    bounds: tuple[float, float] | None = None
    """
    The lower and the upper bound of ``drop`` at 95 % confidence; None if it is known for too few
    rows.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskMetric:
    """The metric of each output that has labels."""

    name: str
    higher_is_better: bool
    """Errors and losses are better if they are lower."""

    outputs: tuple[OutputMetric, ...]
    """At least one; the one with the largest drop above what is allowed first."""

    @property
    def worst(self) -> OutputMetric:
        """The output whose metric gets worse by most."""
        return self.outputs[0]

    @property
    def passed(self) -> bool:
        """Whether the metric of every output passed."""
        return all(output.passed for output in self.outputs)


@dataclass(frozen=True, kw_only=True, slots=True)
class CallTrace:
    """The place of a call in the candidate; other calls are given by their index in the run."""

    begun: int
    """How many calls began before it."""

    within: int | None
    """The call that it was made in; None for the model's own."""

    producers: tuple[int, ...]
    """The calls whose tensors it gets, directly or through code between them."""

    gets_nonfinite: bool
    """Whether the candidate's inputs have NaN or infinity where the reference's do not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedOutput:
    """One tensor that a call gives, by the reference and by the candidate."""

    shape: tuple[int | None, ...]
    dtype_reference: str
    dtype_candidate: str
    accumulated: Metrics | None
    """
    How far it is from the reference's where both models run from end to end; None where it cannot
    be compared.
    """

    isolated: Metrics | None = None
    """
    The same where the candidate's layer gets the reference's inputs; None where that was not
    measured.
    """

    name: str | None = None
    """The output's name, of the model's own outputs."""

    tf32: Metrics | None = None
    """
    The reference with TF32 against the reference without, from end to end; None where that was not
    measured.
    """

    own: Metrics | None = None
    """
    In a diagnosis: the candidate's layer against the reference's, both called with the reference's
    inputs as the candidate's layers round them; None where they are not rounded before the call.
    """

    rounding: Metrics | None = None
    """The same of the reference's layer, called with its inputs as they are and rounded."""

    activation: str | None = None
    """The last activation of one of the model's own outputs; None if its graph does not tell."""

    changes: OutputChanges | None = None
    """What became of the values of one of the model's own outputs."""

    exponents: tuple[tuple[int, int], ...] | None = None
    """
    The reference's binary exponents in ascending order, each with its number of values that are
    normal in float32; None if they were not counted.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerCall:
    """One call of a layer."""

    path: str
    number: int
    """How often the layer was called before: a shared layer has several calls."""

    class_name: str
    compute_reference: str | None
    compute_candidate: str | None
    inputs: tuple[str, ...]
    """The float dtypes of what the candidate's layer was called with."""

    depth: int
    """The terms that its reductions add up, one reduction after the other."""

    children: int
    """How many calls of other layers were made within it."""

    within: tuple[str, ...] = ()
    """
    What it and the layers in it compute in, on either side: dtypes, and modes of quantisation such
    as ``int8``.
    """

    weight_rounding: float = 0.0
    """
    The relative error that the rounding of quantised weights explains; 0 if both models have the
    same weights, or none are quantised.
    """

    is_model: bool
    outputs: tuple[CheckedOutput, ...]
    trace: CallTrace | None = None
    """None unless the run is a diagnosis."""

    @property
    def place(self) -> str:
        """The layer's path, with the number of the call where it is not the first."""
        return self.path if not self.number else f"{self.path} (call {self.number + 1})"
