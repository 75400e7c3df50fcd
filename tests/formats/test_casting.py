"""Casts between float dtypes: rounded once, counted correctly, without warnings."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from policytool.formats.casting import DTYPES, Counts, cast, convert

BITS = {
    "float16": (10, -14, 15),
    "bfloat16": (7, -126, 127),
    "float32": (23, -126, 127),
    "float64": (52, -1022, 1023),
}
"""Stored bits of the fraction, and the exponents of the smallest and the largest normal values."""

WIDE = st.floats(width=64, allow_nan=False) | st.floats(-1e-3, 1e-3) | st.floats(-7e4, 7e4)


def _rounded(value: float, dtype: str) -> float:
    """Return an exactly rounded value, computed with rational numbers."""
    if value == 0 or not math.isfinite(value):
        return value
    fraction_bits, low, high = BITS[dtype]
    exponent = max(math.frexp(value)[1] - 1, low)
    step = Fraction(2) ** (exponent - fraction_bits)
    exact = round(Fraction(value) / step) * step  # round() of a fraction is to even
    largest = (2 - Fraction(2) ** -fraction_bits) * Fraction(2) ** high
    return math.copysign(math.inf if abs(exact) > largest else float(abs(exact)), value)


@given(
    st.lists(WIDE, min_size=1, max_size=20),
    st.sampled_from(list(DTYPES)),
    st.sampled_from(list(DTYPES)),
)
def test_every_cast_rounds_once_to_even(values: list[float], before: str, after: str) -> None:
    """By exact arithmetic, including signs of zeros and infinities."""
    source = np.array([_rounded(value, before) for value in values]).astype(DTYPES[before])
    result, counts = cast(source, before, after)
    assert result.dtype == DTYPES[after]
    expected = [_rounded(float(value), after) for value in source]
    assert [repr(float(value)) for value in result] == [repr(value) for value in expected]
    assert counts.values == len(values)


def test_float64_to_bfloat16_is_not_rounded_twice() -> None:
    """Rounding to float32 first would lose the decisive bit."""
    value = 1 + 2.0**-8 + 2.0**-40
    result, _ = cast(np.array([value, -value]), "float64", "bfloat16")
    assert result.astype(np.float64).tolist() == [1.0078125, -1.0078125]
    assert cast(np.array([value]), "float64", "float32", "bfloat16")[0].tolist() == [1.0078125]


@given(npst.arrays(np.uint32, npst.array_shapes(max_dims=3, max_side=4)))
def test_cast_to_bfloat16_equals_that_of_ml_dtypes(
    bits: np.ndarray[Any, np.dtype[np.uint32]],
) -> None:
    """Except for payloads of NaN."""
    source = bits.view(np.float32)
    result, _ = cast(source, "float32", "bfloat16")
    with np.errstate(all="ignore"):
        expected = source.astype(ml_dtypes.bfloat16)
    assert result.shape == source.shape
    nan = np.isnan(source)
    assert np.array_equal(result.view(np.uint16)[~nan], expected.view(np.uint16)[~nan])
    assert np.isnan(result.astype(np.float32)[nan]).all()


@given(npst.arrays(np.uint16, 8))
def test_widening_is_exact(bits: np.ndarray[Any, np.dtype[np.uint16]]) -> None:
    """Including payloads of quiet NaNs."""
    for narrow in ("float16", "bfloat16"):
        source = bits.view(DTYPES[narrow])
        for wide in ("float32", "float64"):
            back, _ = cast(cast(source, narrow, wide)[0], wide, narrow)
            keep = ~np.isnan(source.astype(np.float32))
            assert np.array_equal(back.view(np.uint16)[keep], bits[keep])
            assert np.isnan(back.astype(np.float32)[~keep]).all()


def test_nan_payloads_are_carried() -> None:
    """A cast keeps the sign and the upper payload bits of a NaN."""
    source = np.array([0x7FC10000, 0xFFA00001, 0x7F800001], np.uint32).view(np.float32)
    result, counts = cast(source, "float32", "bfloat16")
    assert result.view(np.uint16).tolist() == [0x7FC1, 0xFFE0, 0x7FC0]
    assert counts == Counts(values=3)


@pytest.mark.parametrize(
    ("values", "before", "after", "through", "counts"),
    [
        (
            [65504.0, 65519.9, 65520.0, -1e6, math.inf, math.nan],
            "float32",
            "float16",
            None,
            Counts(values=6, overflow=2),
        ),
        (
            [2.0**-14, 2.0**-15, 2.0**-24, 2.0**-26, 0.0, -0.0],
            "float32",
            "float16",
            None,
            Counts(values=6, subnormal=2, flushed=1),
        ),
        (
            [3.38e38, 1e-40, 1e-45],
            "float32",
            "bfloat16",
            None,
            Counts(values=3, overflow=0, subnormal=1, flushed=1),
        ),
        (
            [3.4028235e38, 1e-40, 1e-45],
            "float32",
            "float32",
            "bfloat16",
            Counts(values=3, overflow=1, subnormal=1, flushed=1),
        ),
        (
            [1e39, 1e-40, 1e-50],
            "float64",
            "float32",
            None,
            Counts(values=3, overflow=1, subnormal=1, flushed=1),
        ),
        ([2.0**-24, 1.0], "float16", "float32", None, Counts(values=2)),
    ],
)
def test_cast_counts_overflows_and_subnormal_values(
    values: list[float], before: str, after: str, through: str | None, counts: Counts
) -> None:
    """Values that were not finite before do not count."""
    assert cast(np.array(values).astype(DTYPES[before]), before, after, through)[1] == counts


def test_counts_add_up() -> None:
    assert Counts(values=1, overflow=2, subnormal=3, flushed=4) + Counts(
        values=10, overflow=20, subnormal=30, flushed=40
    ) == Counts(values=11, overflow=22, subnormal=33, flushed=44)


@pytest.mark.parametrize(
    "names",
    [("int8", "float32", None), ("float32", "int8", None), ("float32", "float32", "float8_e4m3fn")],
)
def test_only_floats_of_16_bits_or_more_are_cast(names: tuple[str, str, str | None]) -> None:
    """Only floats of at least 16 bits can be cast; integers and 8-bit floats are an error."""
    with pytest.raises(ValueError, match="cannot cast"):
        cast(np.zeros(1, np.float32), *names)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (3, 2)])
def test_shapes_stay(shape: tuple[int, ...]) -> None:
    """A cast keeps the shape, also of scalars, empty tensors and memory that is not contiguous."""
    for before in DTYPES:
        for after in DTYPES:
            source = np.ones(shape).astype(DTYPES[before])
            assert cast(source, before, after)[0].shape == shape
            assert cast(source.T, before, after)[0].shape == shape[::-1]


@given(
    values=st.lists(st.floats(width=64), min_size=1, max_size=20),
    before=st.sampled_from(list(DTYPES)),
    after=st.sampled_from(list(DTYPES)),
)
def test_converting_is_casting_without_counts(values: list[float], before: str, after: str) -> None:
    source = convert(np.array(values), "float64", before)
    assert convert(source, before, after).tobytes() == cast(source, before, after)[0].tobytes()
