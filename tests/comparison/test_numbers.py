"""Values side by side: bytes, casts, counts, and streams of blocks that end where they like."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policytool.comparison import numbers
from policytool.comparison.result import ComparisonVerdict, Presence
from policytool.formats import casting
from policytool.formats.document import ValuesError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.comparison.result import ValueComparison

FLOATS: Final = tuple(casting.DTYPES)
NUMBERS: Final = st.floats(allow_nan=True, allow_infinity=True, width=64)


def array(values: list[Any], dtype: str) -> np.ndarray[Any, Any]:
    """Return values in a dtype by Keras' name."""
    with np.errstate(all="ignore"):
        return (
            casting.cast(np.array(values, dtype=np.float64), "float64", dtype)[0]
            if dtype in casting.DTYPES
            else np.array(values, dtype=dtype)
        )


def compared(
    a: list[Any], b: list[Any], dtypes: tuple[str, str] = ("float32", "float32")
) -> ValueComparison:
    """Return how two lists of numbers compare in these dtypes."""
    return numbers.compare_streams([array(a, dtypes[0])], [array(b, dtypes[1])], dtypes)


def test_equal_bytes_are_equal() -> None:
    """NaNs with the same payload are equal bytes too."""
    comparison = compared([1.0, math.nan, math.inf, -0.0], [1.0, math.nan, math.inf, -0.0])
    assert (comparison.verdict, comparison.elements, comparison.differing) == (
        ComparisonVerdict.EQUAL,
        4,
        0,
    )


def test_zeros_of_two_signs_differ() -> None:
    """Zeros with different signs are equal as numbers and have other bytes, so they differ by 0."""
    comparison = compared([0.0, 1.0], [-0.0, 1.0])
    assert (comparison.verdict, comparison.differing, comparison.largest) == (
        ComparisonVerdict.DIFFERENT,
        1,
        0.0,
    )


def test_differing_elements_are_counted_and_measured() -> None:
    """The largest difference is that of elements that are finite in both arrays."""
    comparison = compared([1.0, 2.0, math.nan, 4.0], [1.5, 2.0, 3.0, math.inf])
    assert (comparison.verdict, comparison.elements, comparison.differing, comparison.largest) == (
        ComparisonVerdict.DIFFERENT,
        4,
        3,
        0.5,
    )


def test_difference_without_finite_values_is_not_measured() -> None:
    """The pair of NaN and a number is counted."""
    comparison = compared([math.nan], [1.0])
    assert (comparison.differing, comparison.largest) == (1, None)


def test_rounded_values_are_recognized() -> None:
    """The elements that the cast changed are counted."""
    comparison = compared([1.0, 1.0 + 2**-20], [1.0, 1.0], ("float32", "float16"))
    assert (comparison.verdict, comparison.rounded, comparison.differing, comparison.largest) == (
        ComparisonVerdict.ROUNDED,
        Presence.B,
        1,
        2**-20,
    )


def test_lossless_cast_is_recognized_in_both_directions() -> None:
    """Both dtypes contain the same numbers."""
    comparison = compared([1.0, 0.5], [1.0, 0.5], ("float32", "bfloat16"))
    assert (comparison.verdict, comparison.rounded, comparison.differing) == (
        ComparisonVerdict.ROUNDED,
        Presence.BOTH,
        0,
    )


def test_one_other_number_is_more_than_rounding() -> None:
    """A single element that no cast explains makes them different."""
    comparison = compared([1.0, 1.0 + 2**-20], [1.0, 1.25], ("float32", "float16"))
    assert comparison.verdict is ComparisonVerdict.DIFFERENT


@pytest.mark.parametrize(
    ("a", "b", "dtypes", "verdict"),
    [
        ([1, 2, 3], [1, 2, 3], ("int32", "int64"), ComparisonVerdict.ROUNDED),
        ([1, -2, 3], [1, 2, 3], ("int8", "int64"), ComparisonVerdict.DIFFERENT),
        ([2**63], [2**63], ("uint64", "uint64"), ComparisonVerdict.EQUAL),
        ([2**53 + 1], [2**53], ("uint64", "int64"), ComparisonVerdict.DIFFERENT),
        ([1 + 2j], [1 + 2j], ("complex64", "complex64"), ComparisonVerdict.EQUAL),
        ([1 + 2j, 3], [1 - 2j, 3], ("complex64", "complex64"), ComparisonVerdict.DIFFERENT),
        ([1, 2], [1.0, 2.0], ("int8", "float32"), ComparisonVerdict.NOT_COMPARED),
        ([True, False], [True, True], ("bool", "bool"), ComparisonVerdict.DIFFERENT),
    ],
)
def test_values_of_other_dtypes_are_compared_as_numbers_or_not_at_all(
    a: list[Any], b: list[Any], dtypes: tuple[str, str], verdict: ComparisonVerdict
) -> None:
    """Other combinations are not compared, with a reason."""
    comparison = compared(a, b, dtypes)
    assert comparison.verdict is verdict
    assert (comparison.reason is not None) == (verdict is ComparisonVerdict.NOT_COMPARED)


def test_bits_of_eight_bit_floats_are_compared() -> None:
    """Such floats are read as bits, so their difference is not measured."""
    first, second = np.array([1, 2], dtype="u1"), np.array([1, 3], dtype="u1")
    result = numbers.compare_streams([first], [second], ("float8_e4m3fn", "float8_e4m3fn"))
    assert (result.verdict, result.differing) == (ComparisonVerdict.DIFFERENT, 1)


def test_a_stream_that_ends_early_is_not_equal() -> None:
    """Fewer values than the other has: not compared, never equal."""
    result = numbers.compare_streams(
        [np.zeros(3, "f4")], [np.zeros(2, "f4")], ("float32", "float32")
    )
    assert result.verdict is ComparisonVerdict.NOT_COMPARED
    assert "fewer" in str(result.reason)


def test_values_that_cannot_be_read_are_not_compared() -> None:
    """The reason is the reader's."""

    def failing() -> Iterator[np.ndarray[Any, Any]]:
        yield np.zeros(1, "f4")
        raise ValuesError("its values lie elsewhere")

    result = numbers.compare_streams(failing(), [np.zeros(2, "f4")], ("float32", "float32"))
    assert (result.verdict, result.reason) == (
        ComparisonVerdict.NOT_COMPARED,
        "its values lie elsewhere",
    )


@given(
    values=st.lists(NUMBERS, min_size=1, max_size=40),
    cuts=st.tuples(st.lists(st.integers(0, 40)), st.lists(st.integers(0, 40))),
    dtype=st.sampled_from(FLOATS),
)
def test_blocks_may_be_cut_anywhere(
    values: list[float], cuts: tuple[list[int], list[int]], dtype: str
) -> None:
    """However each file's values come in blocks, the same values are equal."""
    whole = array(values, dtype)
    first, second = (np.split(whole, sorted(cut)) for cut in cuts)
    assert numbers.compare_streams(first, second, (dtype, dtype)).verdict is ComparisonVerdict.EQUAL


@given(
    values=st.lists(NUMBERS, min_size=1, max_size=40),
    dtypes=st.tuples(st.sampled_from(FLOATS), st.sampled_from(FLOATS)),
)
def test_a_cast_is_recognised_as_one(values: list[float], dtypes: tuple[str, str]) -> None:
    """For any numbers, if B is a cast of A, the verdict is that A is rounded."""
    before, after = dtypes
    one = array(values, before)
    with np.errstate(all="ignore"):
        result = numbers.compare_streams([one], [casting.cast(one, before, after)[0]], dtypes)
    if before == after:
        assert result.verdict is ComparisonVerdict.EQUAL
    else:
        assert result.verdict is ComparisonVerdict.ROUNDED
        assert result.rounded in {Presence.B, Presence.BOTH}


@given(
    a=st.lists(NUMBERS, min_size=1, max_size=20),
    b=st.lists(NUMBERS, min_size=1, max_size=20),
    dtypes=st.tuples(*[st.sampled_from(FLOATS)] * 2),
)
def test_reading_from_the_other_side_mirrors(
    a: list[float], b: list[float], dtypes: tuple[str, str]
) -> None:
    """The same counts, and the rounded one is the other."""
    size = min(len(a), len(b))
    there = compared(a[:size], b[:size], dtypes)
    back = compared(b[:size], a[:size], (dtypes[1], dtypes[0]))
    mirror = {
        Presence.A: Presence.B,
        Presence.B: Presence.A,
        Presence.BOTH: Presence.BOTH,
        None: None,
    }
    assert (there.verdict, there.differing, there.largest, there.rounded) == (
        back.verdict,
        back.differing,
        back.largest,
        mirror[back.rounded],
    )
