"""
Compares stored values in blocks: they are equal, one is the other after rounding, or they differ by
some amount.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from policytool.comparison.result import ComparisonVerdict, Presence, ValueComparison
from policytool.formats import casting
from policytool.formats.document import ValuesError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    Array = npt.NDArray[Any]

_INTEGERS = "iub"
"""The NumPy dtype kinds of signed and unsigned integers and bools."""


@dataclass(slots=True)
class _BlockDifferences:
    """The differences in the blocks compared so far."""

    elements: int = 0
    differing: int = 0
    largest: float | None = None
    a_is_rounded: bool = True
    b_is_rounded: bool = True

    def add(self, a: Array, b: Array, differs: npt.NDArray[np.bool_]) -> None:
        """Count the elements of two blocks that differ, and update the largest difference."""
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
    Compare the values of two tensors of the same shape; unreadable values are not compared.
    """
    differences = _BlockDifferences()
    try:
        for block_a, block_b in align(iter(a), iter(b)):
            if dtypes[0] == dtypes[1]:
                differences.add(block_a, block_b, _differing_elements(block_a, block_b))
            else:
                _add_across(differences, block_a, block_b, dtypes)
    except ValuesError as error:
        return ValueComparison(verdict=ComparisonVerdict.NOT_COMPARED, reason=str(error))
    if not differences.differing:
        verdict = ComparisonVerdict.EQUAL if dtypes[0] == dtypes[1] else ComparisonVerdict.ROUNDED
        return ValueComparison(
            verdict=verdict,
            rounded=Presence.BOTH if verdict is ComparisonVerdict.ROUNDED else None,
            elements=differences.elements,
            differing=0,
        )
    if dtypes[0] != dtypes[1] and differences.a_is_rounded != differences.b_is_rounded:
        rounded = Presence.A if differences.a_is_rounded else Presence.B
        return ValueComparison(
            verdict=ComparisonVerdict.ROUNDED,
            rounded=rounded,
            elements=differences.elements,
            differing=differences.differing,
            largest=differences.largest,
        )
    return ValueComparison(
        verdict=ComparisonVerdict.DIFFERENT,
        elements=differences.elements,
        differing=differences.differing,
        largest=differences.largest,
    )


def align(a: Iterator[Array], b: Iterator[Array]) -> Iterator[tuple[Array, Array]]:
    """
    Yield the elements of two streams of blocks in pieces of equal length.

    :raises ValuesError: if one stream ends before the other.
    """
    block_a, block_b = next(a, None), next(b, None)
    while block_a is not None and block_b is not None:
        count = min(block_a.size, block_b.size)
        if count:
            yield block_a[:count], block_b[:count]
        block_a = block_a[count:] if block_a.size > count else next(a, None)
        block_b = block_b[count:] if block_b.size > count else next(b, None)
    if any(remaining is not None and remaining.size for remaining in (block_a, block_b, *a, *b)):
        raise ValuesError("one file contains fewer values than the variable's shape requires")


def _add_across(
    differences: _BlockDifferences, block_a: Array, block_b: Array, dtypes: tuple[str, str]
) -> None:
    """
    Compare blocks of different dtypes.

    :raises ValuesError: if one dtype cannot be cast to the other.
    """
    if all(dtype in casting.DTYPES for dtype in dtypes):
        a_cast, b_cast = (
            casting.convert(block_a, *dtypes),
            casting.convert(block_b, *reversed(dtypes)),
        )
        a_is_b, b_is_a = _equal_elements(block_a, b_cast), _equal_elements(a_cast, block_b)
        differences.a_is_rounded &= bool(a_is_b.all())
        differences.b_is_rounded &= bool(b_is_a.all())
        differences.add(block_a, block_b, ~(a_is_b & b_is_a))
    elif block_a.dtype.kind in _INTEGERS and block_b.dtype.kind in _INTEGERS:
        differs = _integers(block_a) != _integers(block_b)
        differences.a_is_rounded = differences.b_is_rounded = False
        differences.add(block_a, block_b, differs)
    else:
        raise ValuesError(f"policytool cannot cast {dtypes[0]} to {dtypes[1]}")


def _differing_elements(a: Array, b: Array) -> npt.NDArray[np.bool_]:
    """Return a mask of the elements whose bytes differ between arrays of the same dtype."""
    if a.dtype.kind == "c":
        half = f"u{a.dtype.itemsize // 2}"
        return np.asarray((a.view(half) != b.view(half)).reshape(-1, 2).any(axis=1))
    return np.asarray(_bits(a) != _bits(b))


def _bits(array: Array) -> Array:
    """
    Return floats as unsigned integers with the same bits. They are equal if all bits are equal: NaN
    equals itself, and 0 does not equal -0.
    """
    size = array.dtype.itemsize
    return array.view(f"u{size}") if array.dtype.kind in "fV" and size in {1, 2, 4, 8} else array


def _equal_elements(a: Array, b: Array) -> npt.NDArray[np.bool_]:
    """
    Return a mask of the elements that have the same bits or are both NaN, because a cast may change
    the payload of NaN.
    """
    return np.asarray((_bits(a) == _bits(b)) | (np.isnan(a) & np.isnan(b)))


def _integers(array: Array) -> Array:
    """Return integers as int64, or uint64 as Python integers, which NumPy compares exactly."""
    return array.astype(object) if array.dtype == np.uint64 else array.astype(np.int64)


def _largest(a: Array, b: Array) -> float | None:
    """
    Return the largest absolute difference of elements that are finite in both; None if there are no
    such elements, or if the dtype has no arithmetic.
    """
    numbers_a, numbers_b = (_number(array) for array in (a, b))
    if numbers_a is None or numbers_b is None:
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        differences = np.abs(
            np.subtract(
                numbers_a, numbers_b, dtype=np.result_type(numbers_a, numbers_b, np.float64)
            )
        )
    known = ~np.isnan(differences) & np.isfinite(numbers_a) & np.isfinite(numbers_b)
    return float(differences.max(where=known, initial=0)) if known.any() else None


def _number(array: Array) -> Array | None:
    """Return an array in a dtype that NumPy can subtract; None if its values are not numbers."""
    if array.dtype == casting.DTYPES[casting.BFLOAT16]:
        return casting.convert(array, casting.BFLOAT16, "float32")
    return array if array.dtype.kind in f"cf{_INTEGERS}" else None
