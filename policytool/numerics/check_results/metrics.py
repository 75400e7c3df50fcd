"""
The measurements of a check: the error of each tensor of the candidate relative to the reference,
the changes in the values of each output, and the metric of the model's task.

Sums and errors include only pairs of elements that are both finite; the other elements are counted.
Changes are counted for each row, and added up over all batches.
"""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import Struct

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
"""The largest finite number of each dtype: 65504 for float16."""

NORMAL_EXPONENTS: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {
        dtype: (2 - math.frexp(largest)[1], math.frexp(largest)[1] - 1)
        for dtype, largest in LARGEST_FINITE.items()
    }
)
"""The smallest and largest binary exponents of normal numbers of each dtype (IEEE 754, 3.3)."""


class TensorReductions(Struct, frozen=True, kw_only=True):
    """
    The counts and sums of a tensor over all batches, from the device; None if they were not
    measured.
    """

    elements: int
    squared_error: float | None
    """
    The sum of squared differences.

    A sum is infinite if a square is infinite, which requires float64 values above 1e154.
    """

    squared_reference: float | None
    squared_candidate: float | None
    overflowed: int | None
    """The number of values that are finite in the reference, but not in the candidate."""

    nan_reference: int | None
    nan_candidate: int | None
    infinite_reference: int | None
    infinite_candidate: int | None
    subnormal: int | None
    """
    The number of values of the candidate that are subnormal in its dtype.
    """

    flushed: int | None
    """
    The number of values that underflow: they are 0 in the candidate, and in the reference not 0 but
    smaller than the smallest number of the candidate's dtype. Values that are 0 for another reason,
    such as a sum that changes its sign before a ReLU, do not count. Numbers that are subnormal in
    float32 count as 0, as in TensorFlow's CPU kernels.
    """

    largest_reference: float | None
    """The largest finite magnitude; 0 if no value is finite."""

    largest_candidate: float | None
    largest_error: float | None
    """The largest absolute difference; 0 if no pair is finite."""

    reference_at_largest: float | None
    """
    The reference at the position of the largest difference; the first position if there are
    several.
    """

    candidate_at_largest: float | None
    differing: int | None
    """
    The number of elements that are not equal; only for tensors that are not floats, for which
    nothing else is measured.
    """


class Metrics(Struct, frozen=True, kw_only=True):
    """
    The errors of a tensor of the candidate. A value is None if it was not measured or is undefined:
    no pair of values is finite, or a sum exceeds the range of float64.

    Values can be infinite, which JSON does not support: the relative error if the reference is
    zero, the ratio of a signal to zero noise, and the headroom of zeros.
    """

    elements: int
    max_abs: float | None
    """The largest absolute difference."""

    relative: float | None
    """
    The L2 norm of the difference divided by that of the reference: 0 for equal tensors, infinite if
    only the reference is zero.
    """

    snr_db: float | None
    """
    The energy of the reference divided by that of the difference, in decibels: infinite for equal
    tensors, minus infinity if ``relative`` is infinite.
    """

    cosine: float | None
    """
    The cosine of the angle between the tensors, accurate to 1e-6: 1 for equal tensors, None if only
    one of them is zero.
    """

    overflow: float | None
    """
    The share of elements that are finite in the reference, but not in the candidate.
    """

    nan: tuple[int, int] | None
    """The numbers of NaN elements in the reference and in the candidate."""

    infinite: tuple[int, int] | None
    """The numbers of infinite elements in the reference and in the candidate."""

    subnormal: float | None
    """
    The share of elements that are subnormal in the candidate's dtype, so that precision is lost.
    """

    flushed: float | None
    """
    The share of elements that underflow: they are 0 in the candidate, whose dtype cannot represent
    the value of the reference.
    """

    largest_reference: float | None
    """The largest finite magnitude in the reference."""

    largest: float | None
    """The largest finite magnitude in the candidate."""

    headroom: float | None
    """
    The factor by which the largest value of the candidate could grow before it overflows. If the
    candidate overflows, the largest value of the reference counts, so that the headroom is below 1
    for a number above the range of the dtype.
    """

    pair: tuple[float, float] | None
    """
    The values of the reference and of the candidate at the largest difference; None if there is no
    difference.
    """

    differing: int | None
    """The number of elements that are not equal; only for tensors that are not floats."""


def metrics(reductions: TensorReductions, dtype: str) -> Metrics:
    """
    Return the metrics of a tensor.

    :param dtype: the dtype of the tensor in the candidate
    """
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
    Return whether any pair of values is finite on both sides, or the tensor has no elements.
    """
    nonfinite_count = (
        (reductions.nan_reference or 0)
        + (reductions.infinite_reference or 0)
        + (reductions.overflowed or 0)
    )
    return reductions.elements > nonfinite_count or not reductions.elements


def _sums(reductions: TensorReductions) -> tuple[float, float, float] | tuple[None, None, None]:
    """
    Return the sums of squares; None for each if they exceed the range of float64, or if no pair is
    finite.
    """
    error, reference, candidate = (
        reductions.squared_error,
        reductions.squared_reference,
        reductions.squared_candidate,
    )
    if error is None or reference is None or candidate is None or not _has_finite_pairs(reductions):
        return None, None, None
    is_lost = error == 0 and bool(reductions.largest_error)
    return (
        (None, None, None)
        if is_lost or not all(map(math.isfinite, (error, reference, candidate)))
        else (error, reference, candidate)
    )


def _relative(error: float | None, reference: float | None) -> float | None:
    """Return the root of an error divided by that of the reference, from their sums of squares."""
    if error is None or reference is None:
        return None
    return math.sqrt(error) / math.sqrt(reference) if reference else math.inf if error else 0.0


def _snr(error: float | None, reference: float | None) -> float | None:
    """Return the signal-to-noise ratio in dB from sums of squares."""
    if error is None or reference is None:
        return None
    if not error:
        return math.inf
    return 10 * (math.log10(reference) - math.log10(error)) if reference else -math.inf


def _cosine(error: float | None, reference: float | None, candidate: float | None) -> float | None:
    """
    Return the cosine by the law of cosines, because rounding errors of nearly equal norms cancel
    out in it.
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
    candidate overflows, its large values are not finite, so the values of the reference count too.
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


class Shares(Struct, frozen=True, kw_only=True):
    """Statistics of the share of changed rows in each sample; 0 or 1 for a sample of one row."""

    samples: int
    changed: int
    """Samples in which any row changed."""

    total: float
    """The sum of the shares."""

    squares: float
    """The sum of the squared shares."""

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


class ChannelErrors(Struct, frozen=True, kw_only=True):
    """The errors of one channel, or of all channels together."""

    error: float
    """The sum of squared errors."""

    worst: float
    """The largest sum of squared errors of a sample."""

    squares: float
    """The sum of the squares of each sample's sum of squared errors."""

    spread: float
    """The sum of the squared distances of the reference's values from their mean."""

    mean: float
    """The absolute mean of the reference's values."""

    values: int


class ProbabilityErrors(Struct, frozen=True, kw_only=True):
    """The differences between values from 0 to 1."""

    error: float
    """The sum of absolute differences."""

    squares: float
    """The sum of the squares of each sample's sum of absolute differences."""

    worst: float
    """The largest sum of absolute differences of a sample."""

    sum: float
    """The sum of the reference's values."""


class OutputChanges(Struct, frozen=True, kw_only=True):
    """How the values of one output changed."""

    samples: int
    compared: int
    """The number of samples that are finite in both models."""

    spoiled: int
    """The number of samples with values that are finite in the reference only."""

    rows: int
    width: int
    """The size of the last axis."""

    range: tuple[float, float] | None
    """The lowest and highest finite values of the reference; None if no value is finite."""

    varies: bool
    """Whether samples of the reference differ."""

    is_probability: bool
    """Whether all values of the reference are from 0 to 1."""

    sums_to_one: bool
    """Whether the values in each row of the reference sum to 1."""

    has_unit_norm: bool
    """Whether each row of the reference has the L2 norm 1."""

    open_share: float | None
    """The share of values that are near neither 0 nor 1."""

    class_changes: Shares | None
    """The rows whose largest value has a different index."""

    has_one_class: bool | None = None
    """Whether the largest value has the same index in all rows of the reference."""

    side_changes: Shares | None
    """The values that moved to the other side of 0.5, or of 0 if values can be negative."""

    value_changes: Shares | None
    """The values that differ; only for integers, text and bools."""

    neighbor_changes: Shares | None
    """The vectors that have a different nearest neighbor among the samples."""

    unmatched_masks: Shares | None
    """1 minus the intersection over union of the values above 0.5."""

    probability: ProbabilityErrors | None
    class_error: float | None
    """The sum of the absolute differences of the logarithm of each row's largest probability."""

    channels: tuple[ChannelErrors, ...]


class OutputMetric(Struct, frozen=True, kw_only=True):
    """The metric of one output, or of all outputs together."""

    output: str | None
    """The name of the output; None for a user function that gets several outputs."""

    reference: float
    candidate: float
    drop: float | None
    """How much worse the candidate is; below 0 if it is better, None if a value is NaN."""

    max_drop: float
    passed: bool
    """Whether the metric gets worse by at most ``max_drop``."""

    names: tuple[str, ...] = ()
    """The outputs that a user function gets; empty if ``output`` is set."""

    rows: int = 0
    """The number of rows with labels; 0 if the outputs of the reference replace the labels."""

    bounds: tuple[float, float] | None = None
    """
    The lower and upper bounds of ``drop`` at 95 % confidence; None if there are too few rows.
    """


class TaskMetric(Struct, frozen=True, kw_only=True):
    """The metric of each output that has labels."""

    name: str
    higher_is_better: bool
    """Whether a higher value is better; False for errors and losses."""

    outputs: tuple[OutputMetric, ...]
    """At least one output, sorted by the excess of the drop over ``max_drop``, largest first."""

    @property
    def worst(self) -> OutputMetric:
        """The output whose drop exceeds ``max_drop`` by most."""
        return self.outputs[0]

    @property
    def passed(self) -> bool:
        """Whether the metric of every output passed."""
        return all(output.passed for output in self.outputs)


class CallTrace(Struct, frozen=True, kw_only=True):
    """The position of a call in the candidate. Other calls are indices in ``CheckRun.calls``."""

    begun: int
    """The number of calls that began before this call."""

    within: int | None
    """The call that contains this call; None for the call of the model."""

    producers: tuple[int, ...]
    """The calls that compute the inputs of this call, directly or with code in between."""

    gets_nonfinite: bool
    """Whether an input has NaN or infinity in the candidate where it is finite in the reference."""


class CheckedOutput(Struct, frozen=True, kw_only=True):
    """A tensor that a call returns, compared between the reference and the candidate."""

    shape: tuple[int | None, ...]
    dtype_reference: str
    dtype_candidate: str
    accumulated: Metrics | None
    """
    The error if both models run from end to end; None if the tensors cannot be compared.
    """

    isolated: Metrics | None = None
    """
    The error if the candidate's layer gets the inputs of the reference; None if it was not
    measured.
    """

    name: str | None = None
    """The name of an output of the model; None for other tensors."""

    tf32: Metrics | None = None
    """
    The error of the reference with TF32, relative to the reference without TF32, from end to end;
    None if it was not measured.
    """

    own: Metrics | None = None
    """
    In a diagnosis, the error of the candidate's layer if both layers get the inputs of the
    reference, rounded as in the candidate; None if the candidate does not round them before the
    call.
    """

    rounding: Metrics | None = None
    """In a diagnosis, the error of the reference's layer if only its inputs are rounded."""

    activation: str | None = None
    """The last activation of an output of the model; None if the graph does not show it."""

    changes: OutputChanges | None = None
    """The changes in the values of an output of the model; None for other tensors."""

    sensitivity: float | None = None
    """
    The relative change of the model's outputs if each element has a relative error of 1 with a
    random sign, by the gradient; None if it was not measured.
    """

    exponents: tuple[tuple[int, int], ...] | None = None
    """
    The binary exponents of the reference in ascending order, each with the number of values that
    have it and are normal in float32; None if they were not counted.
    """


class CallOfLayer(Struct, frozen=True, kw_only=True):
    """One call of a layer, in one model or in two."""

    path: str
    number: int
    """The number of earlier calls of the layer; a shared layer has several calls."""

    class_name: str
    inputs: tuple[str, ...]
    """The float dtypes of the inputs, those of the candidate for two models."""

    depth: int
    """The number of terms that the reductions of the layer add up, in sequence."""

    children: int
    """The number of calls of other layers in this call."""

    is_model: bool


class LayerCall(CallOfLayer, frozen=True, kw_only=True):
    """One call of a layer in both models."""

    compute_reference: str | None
    compute_candidate: str | None
    within: tuple[str, ...] = ()
    """
    The compute dtypes of the layer and of the layers in it, in both models, and quantization modes
    such as ``int8``.
    """

    weight_rounding: float = 0.0
    """
    The relative error that the rounding of quantized weights explains; 0 if both models have the
    same weights, or no weights are quantized.
    """

    outputs: tuple[CheckedOutput, ...]
    trace: CallTrace | None = None
    """None unless the run is a diagnosis."""

    @property
    def place(self) -> str:
        """The path of the layer, with the number of the call unless it is the first."""
        return self.path if not self.number else f"{self.path} (call {self.number + 1})"
