"""
How far a candidate's tensor is from the reference's, reduced on the device to a few numbers.

Everything is summed and counted over pairs of elements; what that means (relative error,
signal-to-noise ratio, shares) is derived from it elsewhere.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from . import tensor_reductions

if TYPE_CHECKING:
    from typing import Any

FIELDS = (
    "elements",
    *(
        "squared_error",
        "squared_reference",
        "squared_candidate",
    ),  # sums, over pairs in which both are finite
    "overflowed",  # the candidate is NaN or infinite, the reference finite
    *("nan_reference", "nan_candidate", "infinite_reference", "infinite_candidate"),
    *(
        "subnormal",
        "flushed",
    ),  # of the candidate: not 0 and below its smallest normal number; 0 where the reference is not
    *("largest_reference", "largest_candidate"),  # absolute, of what is finite
    *(
        "largest_error",
        "reference_at_largest",
        "candidate_at_largest",
    ),  # absolute, over pairs in which both are finite, and the two values there
    "differing",  # of tensors that are no floats; NaN in them is equal to nothing
)
"""
What stands where in the vector of one comparison, which has NaN for what was not measured.

A float64 whose square is infinite makes its sum infinite.
"""

LARGEST = ("largest_reference", "largest_candidate", "largest_error")
PAIR = ("reference_at_largest", "candidate_at_largest")
SUMS = ("squared_error", "squared_reference", "squared_candidate")


def compare_tensors(tf: Any, reference: Any, candidate: Any) -> Any:
    """
    Return the reductions of two tensors of one shape, as a float64 vector in the order of FIELDS;
    within a ``tf.function``.

    What is no float of 16 to 64 bits is compared for equality alone.

    :raises ValueError: for shapes of which it is known that they differ.
    """
    reference.shape.assert_is_compatible_with(candidate.shape)
    if not {reference.dtype.name, candidate.dtype.name} <= set(tensor_reductions.BITS):
        return _differing(tf, reference, candidate)
    first, second = (
        tf.stop_gradient(reference),
        tf.stop_gradient(candidate),
    )  # else a tape around this asks for gradients of every reduction
    return _function(tf, reference.dtype, candidate.dtype)(first, second)


def merge(first: Any, second: Any) -> Any:
    """Return the reductions over the elements of two batches."""
    total = np.asarray(first, "float64") + np.asarray(second, "float64")
    for name in LARGEST:
        place = FIELDS.index(name)
        total[place] = np.maximum(first[place], second[place])
    error, pair = FIELDS.index("largest_error"), [FIELDS.index(name) for name in PAIR]
    later = second[error] > first[error] or np.isnan(first[pair[0]])
    for place in pair:
        total[place] = (second if later else first)[place]
    return total


def to_json(vector: Any) -> dict[str, float | int | None]:
    """Return the reductions by name: counts as whole numbers, None for what was not measured."""
    reductions: dict[str, float | int | None] = {}
    for name, value in zip(FIELDS, np.asarray(vector, "float64").tolist()):
        whole = name not in (*SUMS, *LARGEST, *PAIR)
        reductions[name] = None if value != value else int(value) if whole else value + 0.0  # noqa: PLR0124  # NaN; and no -0.0
    return reductions


@functools.lru_cache(maxsize=None)
def _function(tf: Any, first: Any, second: Any) -> Any:
    """
    Return the function that computes the reductions for a pair of dtypes; it is not inlined.

    It is traced once, for tensors of any shape, not for each of hundreds of comparisons. If it were
    inlined, Grappler would need much longer for a model's graph: 40 s for 270 comparisons, 3 s as
    calls (measured with TensorFlow 2.21). A release that cannot turn inlining off only takes
    longer.
    """
    pair = [tf.TensorSpec(None, first), tf.TensorSpec(None, second)]
    called = functools.partial(tf.function, input_signature=pair, autograph=False, **_called(tf))
    exact_function = called(functools.partial(tensor_reductions.exact_reductions, tf))

    def reductions(reference: Any, candidate: Any) -> Any:
        vector, right = tensor_reductions.quick_reductions(tf, reference, candidate)
        return tf.cond(right, lambda: vector, lambda: exact_function(reference, candidate))

    return called(reductions)


def _called(tf: Any) -> dict[str, Any]:
    """
    Return the arguments by which a ``tf.function`` is not inlined; TF 2.9 has no such argument yet,
    and 2.12 not this attribute.
    """
    arguments = {"experimental_attributes": {"_noinline": True}}
    try:
        tf.function(lambda: None, **arguments)
    except (TypeError, ValueError):
        return {}
    return arguments


def _differing(tf: Any, reference: Any, candidate: Any) -> Any:
    other = candidate if candidate.dtype == reference.dtype else tf.cast(candidate, reference.dtype)
    counts = {
        "elements": tf.size(reference),
        "differing": tf.math.count_nonzero(tf.not_equal(reference, other)),
    }
    missing = tf.constant(float("nan"), tf.float64)
    return tf.stack(
        [tf.cast(counts[name], tf.float64) if name in counts else missing for name in FIELDS]
    )
