"""Metrics that are computed from reductions, including their special cases."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from policytool.formats.casting import DTYPES
from policytool.numerics.check_results.metrics import (
    LARGEST_FINITE,
    Metrics,
    TensorReductions,
    metrics,
)
from policytool.runtime.engine import tensor_errors
from policytool.support.text import codec

FLOATS: Final = st.lists(
    st.tuples(
        *[st.floats(-1e4, 1e4, allow_subnormal=False).filter(lambda x: x == 0 or abs(x) > 1e-6)] * 2
    ),
    min_size=1,
    max_size=20,
)
"""Pairs of a reference's and a candidate's values."""


def reductions(reference: Any, candidate: Any, **changed: Any) -> TensorReductions:
    """
    Return the reductions of finite values without subnormal values, as a device would compute them.
    """
    first, second = np.asarray(reference, "float64"), np.asarray(candidate, "float64")
    error = np.abs(first - second)
    place = int(np.argmax(error)) if error.size else None
    found = {
        "elements": first.size,
        "squared_error": float(np.sum(error**2)),
        "squared_reference": float(np.sum(first**2)),
        "squared_candidate": float(np.sum(second**2)),
        **dict.fromkeys(
            (
                "overflowed",
                "nan_reference",
                "nan_candidate",
                "infinite_reference",
                "infinite_candidate",
                "subnormal",
            ),
            0,
        ),
        "flushed": int(np.sum((second == 0) & (first != 0))),
        "largest_reference": float(np.max(np.abs(first), initial=0)),
        "largest_candidate": float(np.max(np.abs(second), initial=0)),
        "largest_error": float(np.max(error, initial=0)),
        "reference_at_largest": None if place is None else float(first[place]),
        "candidate_at_largest": None if place is None else float(second[place]),
        "differing": None,
        **changed,
    }
    return codec.read(TensorReductions, found)


def found(reference: Any, candidate: Any, **changed: Any) -> Metrics:
    """Return the metrics of values, with the candidate in float16."""
    return metrics(reductions(reference, candidate, **changed), "float16")


def test_child_process_returns_every_reduction() -> None:
    """The child returns each reduction under the name of its attribute."""
    assert TensorReductions.__struct_fields__ == tensor_errors.FIELDS


@pytest.mark.parametrize("dtype", sorted(LARGEST_FINITE))
def test_the_largest_finite_value_is_that_of_the_dtype(dtype: str) -> None:
    """The largest finite value of each dtype is correct: the next larger value is infinite."""
    largest = DTYPES[dtype].type(LARGEST_FINITE[dtype])
    assert float(largest) == LARGEST_FINITE[dtype]
    with np.errstate(over="ignore"):
        assert np.isinf(np.nextafter(largest, DTYPES[dtype].type(np.inf)).astype("float64"))
        assert np.isfinite(largest.astype("float64"))


@given(FLOATS)
def test_metrics_equal_those_of_numpy(pairs: list[tuple[float, float]]) -> None:
    """
    The metrics equal those computed with NumPy: distance, relative error, SNR in decibels, and
    cosine.
    """
    first, second = np.array(pairs).T
    value = found(first, second)
    norms = [float(np.linalg.norm(array)) for array in (first - second, first, second)]
    assert value.max_abs == np.max(np.abs(first - second))
    if norms[1]:
        assert value.relative == pytest.approx(norms[0] / norms[1])
    if norms[0] and norms[1]:
        assert value.snr_db == pytest.approx(20 * math.log10(norms[1] / norms[0]), abs=1e-9)
    if norms[1] and norms[2]:
        assert value.cosine == pytest.approx(float(first @ second) / norms[1] / norms[2], abs=1e-6)


def test_equal_tensors_have_no_error() -> None:
    """Equal tensors have no error and an infinite SNR, also if all values are zero."""
    for values in ([1.0, -2.0], [0.0, 0.0]):
        value = found(values, values)
        assert (value.max_abs, value.relative, value.snr_db, value.cosine, value.pair) == (
            0.0,
            0.0,
            math.inf,
            1.0,
            None,
        )


def test_anything_is_infinitely_far_from_a_reference_of_zeros() -> None:
    """
    Any candidate has an infinite relative error from a reference of zeros, and the cosine is
    undefined.
    """
    value = found([0.0, 0.0], [0.0, 3.0])
    assert (value.max_abs, value.relative, value.snr_db, value.cosine, value.pair) == (
        3.0,
        math.inf,
        -math.inf,
        None,
        (0.0, 3.0),
    )


def test_a_candidate_of_zeros_is_as_far_as_the_reference_is_long() -> None:
    """
    A candidate of zeros has an error as large as the reference, full headroom, and all values
    flushed.
    """
    value = found([3.0, 4.0], [0.0, 0.0])
    assert (value.relative, value.snr_db, value.cosine, value.flushed, value.headroom) == (
        1.0,
        0.0,
        None,
        1.0,
        math.inf,
    )


def test_a_wrong_value_is_seen() -> None:
    """A wrong value is visible in the metrics: tf_keras 2.21 averages tens to 2 in float16."""
    value = found([10.0, 10.0], [10.0, 2.0])
    assert (value.pair, value.max_abs, value.largest, value.largest_reference) == (
        (10.0, 2.0),
        8.0,
        10.0,
        10.0,
    )
    assert value.headroom == 65504 / 10


def test_an_overflow_has_the_headroom_of_the_reference() -> None:
    """
    After an overflow the headroom is that of the reference, because the remaining values of the
    candidate are the small ones.
    """
    spoiled = {"overflowed": 1, "infinite_candidate": 1}
    value = found([10.0, 71000.0], [10.0, 0.0], **spoiled, largest_candidate=10.0)
    assert value.headroom == 65504 / 71000
    assert found([10.0, 100.0], [0.0, 0.0], **spoiled).headroom == 65504 / 100


def test_counts_are_shares_of_all_elements() -> None:
    """Shares are relative to all elements, including those without a finite pair."""
    changed = {
        "elements": 8,
        "overflowed": 2,
        "subnormal": 1,
        "flushed": 4,
        "nan_reference": 0,
        "nan_candidate": 1,
        "infinite_reference": 3,
        "infinite_candidate": 4,
    }
    value = found([1.0], [1.0], **changed)
    assert (value.overflow, value.subnormal, value.flushed, value.nan, value.infinite) == (
        0.25,
        0.125,
        0.5,
        (0, 1),
        (3, 4),
    )
    assert value.relative == 0.0


def test_distance_without_a_pair_of_finite_values_is_unknown() -> None:
    """
    Without a pair of finite values the distance is unknown, and the tensors do not count as equal.
    """
    value = found(
        [], [], elements=4, nan_reference=1, infinite_reference=1, overflowed=2, nan_candidate=4
    )
    assert (value.max_abs, value.relative, value.snr_db, value.cosine, value.pair) == (None,) * 5
    assert (value.overflow, value.nan) == (0.5, (1, 4))


def test_a_tensor_without_elements_is_equal() -> None:
    """A tensor without elements is equal to another, with shares of 0."""
    value = found([], [])
    assert (
        value.elements,
        value.max_abs,
        value.relative,
        value.overflow,
        value.subnormal,
        value.flushed,
        value.pair,
    ) == (0, 0.0, 0.0, 0.0, 0.0, 0.0, None)


@pytest.mark.parametrize(
    "changed",
    [
        {"squared_reference": math.inf},
        {"squared_error": math.inf},
        {"squared_error": 0.0, "largest_error": 1e-200},
    ],
)
def test_sums_outside_the_range_of_float64_are_unknown(changed: dict[str, float]) -> None:
    """
    Sums that exceed the range of float64 are unknown: squares of values above 1e154, or of errors
    below 1e-162.
    """
    value = metrics(reductions([1.0], [2.0], **changed), "float64")
    assert (value.relative, value.snr_db, value.cosine) == (None, None, None)
    assert value.max_abs == changed.get("largest_error", 1.0)


def test_metrics_that_were_not_measured_are_unknown() -> None:
    """
    Metrics that were not measured are unknown: a short comparison has only sums and counts, and
    integers have only the number of differing elements.
    """
    brief = dict.fromkeys(tensor_errors.FIELDS[9:])
    value = found([3.0, 4.0], [3.0, 4.5], **brief)
    assert value.relative == 0.1
    assert (
        value.max_abs,
        value.pair,
        value.subnormal,
        value.flushed,
        value.largest,
        value.headroom,
    ) == (None,) * 6
    value = metrics(
        codec.read(
            TensorReductions, {**dict.fromkeys(tensor_errors.FIELDS), "elements": 7, "differing": 2}
        ),
        "int32",
    )
    assert [
        (field.name, part)
        for field in structs.fields(value)
        if (part := getattr(value, field.name)) is not None
    ] == [("elements", 7), ("differing", 2)]


def test_a_dtype_without_a_largest_value_has_no_headroom() -> None:
    """A dtype without a known largest value, such as an 8-bit float, has no headroom."""
    assert metrics(reductions([1.0], [1.0]), "float8_e4m3fn").headroom is None


def vector(**known: float) -> Any:
    """Return the vector of a child: 0 for missing values, and NaN for None."""
    return np.array([known.get(name, 0.0) for name in tensor_errors.FIELDS])


def test_sums_of_batches_are_added_and_the_largest_error_is_kept() -> None:
    """Sums of batches are added, and the largest error is kept with the first pair that has it."""
    one = vector(
        elements=3,
        squared_error=2,
        flushed=1,
        largest_error=1,
        largest_candidate=9,
        reference_at_largest=5,
        candidate_at_largest=6,
    )
    two = vector(
        elements=4,
        squared_error=3,
        nan_candidate=2,
        largest_error=2,
        largest_candidate=8,
        reference_at_largest=-1,
        candidate_at_largest=1,
    )
    for first, second in ((one, two), (two, one)):
        result = tensor_errors.to_json(tensor_errors.merge(first, second))
        assert (
            result["elements"],
            result["squared_error"],
            result["flushed"],
            result["nan_candidate"],
        ) == (7, 5.0, 1, 2)
        assert (
            result["largest_candidate"],
            result["largest_error"],
            result["reference_at_largest"],
            result["candidate_at_largest"],
        ) == (9.0, 2.0, -1.0, 1.0)
    same = vector(largest_error=1, reference_at_largest=7, candidate_at_largest=8)
    assert tensor_errors.to_json(tensor_errors.merge(one, same))["reference_at_largest"] == 5.0


def test_a_batch_without_a_pair_leaves_the_other_s() -> None:
    """
    A batch without a finite pair or without elements keeps the pair of the other batch, and the
    pair is None if both have none.
    """
    none = vector(reference_at_largest=math.nan, candidate_at_largest=math.nan)
    one = vector(reference_at_largest=4, candidate_at_largest=4)
    for first, second, pair in ((none, one, 4.0), (one, none, 4.0), (none, none, None)):
        result = tensor_errors.to_json(tensor_errors.merge(first, second))
        assert (result["reference_at_largest"], result["candidate_at_largest"]) == (pair, pair)
