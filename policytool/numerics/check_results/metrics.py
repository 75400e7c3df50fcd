"""
How far a candidate's tensor is from the reference's: what was counted and summed, and what that
means.

Sums and distances are over the pairs of elements in which both are finite; counts tell of the
others.
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


def metrics(found: TensorReductions, dtype: str) -> Metrics:
    """Return what was measured of a tensor, whose candidate has a dtype."""
    error, reference, candidate = _sums(found)
    return Metrics(
        elements=found.elements,
        max_abs=found.largest_error if _pairs(found) else None,
        relative=_relative(error, reference),
        snr_db=_snr(error, reference),
        cosine=_cosine(error, reference, candidate),
        overflow=_share(found.overflowed, found),
        nan=_both(found.nan_reference, found.nan_candidate),
        infinite=_both(found.infinite_reference, found.infinite_candidate),
        subnormal=_share(found.subnormal, found),
        flushed=_share(found.flushed, found),
        largest_reference=found.largest_reference,
        largest=found.largest_candidate,
        headroom=_headroom(found, dtype),
        pair=_both(found.reference_at_largest, found.candidate_at_largest)
        if found.largest_error
        else None,
        differing=found.differing,
    )


def _pairs(found: TensorReductions) -> bool:
    """
    Return whether there are pairs in which both are finite, or no elements at all: of a pair that
    is not, the reference is not, or the candidate alone.
    """
    apart = (found.nan_reference or 0) + (found.infinite_reference or 0) + (found.overflowed or 0)
    return found.elements > apart or not found.elements


def _sums(found: TensorReductions) -> tuple[float, float, float] | tuple[None, None, None]:
    """
    Return the sums of squares; none where they say nothing, because they left the range of float64
    or are over no pairs.
    """
    error, reference, candidate = (
        found.squared_error,
        found.squared_reference,
        found.squared_candidate,
    )
    if error is None or reference is None or candidate is None or not _pairs(found):
        return None, None, None
    lost = error == 0 and bool(found.largest_error)
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
    Return the cosine by the law of cosines: where the two norms are about the same, their own
    errors cancel out of it.
    """
    if error is None or reference is None or candidate is None:
        return None
    if not error:
        return 1.0
    if not reference or not candidate:
        return None
    one, other = math.sqrt(reference), math.sqrt(candidate)
    return max(-1.0, min(1.0, (one / other + other / one - error / one / other) / 2))


def _headroom(found: TensorReductions, dtype: str) -> float | None:
    """
    Return how far the largest value is from the largest of its dtype. The finite values of a
    candidate that overflows are the small ones; the reference has the others.
    """
    largest, limit = found.largest_candidate, LARGEST_FINITE.get(dtype)
    if largest is None or limit is None:
        return None
    if found.overflowed:
        largest = max(largest, found.largest_reference or 0.0)
    return limit / largest if largest else math.inf


def _share(count: int | None, found: TensorReductions) -> float | None:
    return None if count is None else count / found.elements if found.elements else 0.0


def _both(reference: _Number | None, candidate: _Number | None) -> tuple[_Number, _Number] | None:
    return None if reference is None or candidate is None else (reference, candidate)
