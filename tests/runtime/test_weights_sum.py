"""Sums of weights depend on every value, and not on how a release arranges the values."""

from __future__ import annotations

import numpy as np
import pytest

from policytool.runtime.engine.value_records import weights_sum

_ARRAYS = [np.random.default_rng(0).normal(size=(40, 30)).astype("float32"), np.ones(7, "float32")]


def test_arrangement_does_not_count() -> None:
    """A transposed or joined array has the same sum, and so have zeros and the sign of a zero."""
    joined = [np.concatenate([_ARRAYS[1], _ARRAYS[0].T.ravel()]), np.zeros(3, "float32")]
    assert weights_sum(joined) == weights_sum(_ARRAYS)
    assert weights_sum([-np.zeros(3, "float32")]) == 0


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8"])
def test_values_of_other_dtypes_count(dtype: str) -> None:
    """A value that fits in 16 bits has the same sum in float32."""
    first, second = np.array([1, 2, 3], dtype), np.array([1, 2, 4], dtype)
    assert weights_sum([first]) != weights_sum([second])
    is_same = weights_sum([first]) == weights_sum([first.astype("float32")])
    assert is_same is (dtype == "float16")


def test_the_smallest_change_counts() -> None:
    """Every value in every block counts, also if two changes have opposite signs."""
    large = np.random.default_rng(1).normal(size=2**20 + 5).astype("float32")
    total = weights_sum([large])
    for place in (0, 2**20 - 1, 2**20 + 4):
        changed = large.copy()
        changed[place] = np.nextafter(changed[place], np.float32(9))
        assert weights_sum([changed]) != total
    moved = large.copy()
    moved[1] += 0.5
    moved[2] -= 0.5
    assert weights_sum([moved]) != total
