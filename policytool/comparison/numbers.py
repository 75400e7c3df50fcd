"""
Stored values side by side, block by block: equal, one the other rounded, or by how much different.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from policytool.comparison.result import ComparisonVerdict, Presence, ValueComparison
from policytool.formats import casting
from policytool.formats.stored_values import ValuesError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    Array = npt.NDArray[Any]

_INTEGERS = "iub"
"""NumPy's kinds of integers, signed and not, and of booleans."""


@dataclass(slots=True)
class _Found:
    """What the blocks so far have shown."""

    elements: int = 0
    differing: int = 0
    largest: float | None = None
    a_is_rounded: bool = True
    b_is_rounded: bool = True

    def add(self, a: Array, b: Array, differs: npt.NDArray[np.bool_]) -> None:
        """Count the elements that differ."""
        self.elements += a.size
        count = int(np.count_nonzero(differs))
        if count:
            self.differing += count
            largest = _largest(a[differs], b[differs])
            if largest is not None:
                self.largest = max(largest, self.largest or 0.0)


def compare_streams(
    a: Iterable[Array], b: Iterable[Array], dtypes: tuple[str, str]
) -> ValueComparison:
    """
    Return how the values of two tensors of one shape compare; those that cannot be read are not
    compared.
    """
    found = _Found()
    try:
        for one, other in align(iter(a), iter(b)):
            if dtypes[0] == dtypes[1]:
                found.add(one, other, _differ(one, other))
            else:
                _add_across(found, one, other, dtypes)
    except ValuesError as error:
        return ValueComparison(verdict=ComparisonVerdict.NOT_COMPARED, reason=str(error))
    if not found.differing:
        verdict = ComparisonVerdict.EQUAL if dtypes[0] == dtypes[1] else ComparisonVerdict.ROUNDED
        return ValueComparison(
            verdict=verdict,
            rounded=Presence.BOTH if verdict is ComparisonVerdict.ROUNDED else None,
            elements=found.elements,
            differing=0,
        )
    if dtypes[0] != dtypes[1] and found.a_is_rounded != found.b_is_rounded:
        rounded = Presence.A if found.a_is_rounded else Presence.B
        return ValueComparison(
            verdict=ComparisonVerdict.ROUNDED,
            rounded=rounded,
            elements=found.elements,
            differing=found.differing,
            largest=found.largest,
        )
    return ValueComparison(
        verdict=ComparisonVerdict.DIFFERENT,
        elements=found.elements,
        differing=found.differing,
        largest=found.largest,
    )


def align(a: Iterator[Array], b: Iterator[Array]) -> Iterator[tuple[Array, Array]]:
    """
    Yield the elements of two streams of blocks in pieces of equal length.

    :raises ValuesError: where one stream ends before the other.
    """
    one, other = next(a, None), next(b, None)
    while one is not None and other is not None:
        count = min(one.size, other.size)
        if count:
            yield one[:count], other[:count]
        one = one[count:] if one.size > count else next(a, None)
        other = other[count:] if other.size > count else next(b, None)
    if any(rest is not None and rest.size for rest in (one, other, *a, *b)):
        raise ValuesError("one file contains fewer values than the variable's shape requires")


def _add_across(found: _Found, one: Array, other: Array, dtypes: tuple[str, str]) -> None:
    """
    Compare values of two dtypes.

    :raises ValuesError: for dtypes that have no numbers in common.
    """
    if all(dtype in casting.DTYPES for dtype in dtypes):
        a_cast, b_cast = (
            casting.convert(one, *dtypes),
            casting.convert(other, *reversed(dtypes)),
        )
        a_is_b, b_is_a = _same(one, b_cast), _same(a_cast, other)
        found.a_is_rounded &= bool(a_is_b.all())
        found.b_is_rounded &= bool(b_is_a.all())
        found.add(one, other, ~(a_is_b & b_is_a))
    elif one.dtype.kind in _INTEGERS and other.dtype.kind in _INTEGERS:
        differs = _integers(one) != _integers(other)
        found.a_is_rounded = found.b_is_rounded = False
        found.add(one, other, differs)
    else:
        raise ValuesError(f"policytool cannot cast {dtypes[0]} to {dtypes[1]}")


def _differ(one: Array, other: Array) -> npt.NDArray[np.bool_]:
    """Return where two arrays of one dtype have other bytes."""
    if one.dtype.kind == "c":
        half = f"u{one.dtype.itemsize // 2}"
        return np.asarray((one.view(half) != other.view(half)).reshape(-1, 2).any(axis=1))
    return np.asarray(_bits(one) != _bits(other))


def _bits(array: Array) -> Array:
    """
    Return the bits as numbers, which compare equal where bytes do: NaNs to themselves, zeros of two
    signs not.
    """
    size = array.dtype.itemsize
    return array.view(f"u{size}") if array.dtype.kind in "fV" and size in {1, 2, 4, 8} else array


def _same(one: Array, other: Array) -> npt.NDArray[np.bool_]:
    """
    Return where two arrays of one dtype have the same bits, or are both no number: casts need not
    keep the payload of a NaN.
    """
    return np.asarray((_bits(one) == _bits(other)) | (np.isnan(one) & np.isnan(other)))


def _integers(array: Array) -> Array:
    """Return integers of any width as Python has them where NumPy would compare them as floats."""
    return array.astype(object) if array.dtype == np.uint64 else array.astype(np.int64)


def _largest(a: Array, b: Array) -> float | None:
    """
    Return the largest absolute difference of elements that are finite in both; None where there is
    none, or no arithmetic.
    """
    one, other = (_number(array) for array in (a, b))
    if one is None or other is None:
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(np.subtract(one, other, dtype=np.result_type(one, other, np.float64)))
    known = ~np.isnan(apart) & np.isfinite(one) & np.isfinite(other)
    return float(apart.max(where=known, initial=0)) if known.any() else None


def _number(array: Array) -> Array | None:
    """Return numbers in a dtype that NumPy subtracts; None for what is no number."""
    if array.dtype == casting.DTYPES[casting.BFLOAT16]:
        return casting.convert(array, casting.BFLOAT16, "float32")
    return array if array.dtype.kind in f"cf{_INTEGERS}" else None
