"""
The errors of a candidate's tensor, reduced on the device to a few numbers in one of two ways: a
quick one for ordinary values, and an exact one for all others.

Everything is summed and counted over pairs of elements; what that means (relative error,
signal-to-noise ratio, shares) is derived from it elsewhere.

Both take tensors of any shape, and go through them part by part. Operations on elements are those
with a GPU kernel for their dtype: 16-bit values are looked at as float32, or as the integers of
their bits, and integers of 32 bits, which are compared and summed on the host of a GPU, as floats.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from ..tensors import are_compatible, dtype_name, is_eager, to_array

if TYPE_CHECKING:
    from typing import Any, Callable


BITS = {
    "float16": ("int16", 10, 5),
    "bfloat16": ("int16", 7, 8),
    "float32": ("int32", 23, 8),
    "float64": ("int64", 52, 11),
}
"""Float dtype to the integers of its size, and how many bits its fraction and its exponent have."""

FLOORS = {"float32": (1e-31, 1e-20), "float64": (1e-65, 1e-20)}
"""
Mean squares, of the error and of a tensor, above which a sum of squares is right.

CPU kernels take what is below the smallest normal number, 1.2e-38 in float32, for 0: a square in
float32, and in float64 a value that was cast from float32. Even if that were all of them, a sum
whose mean is above the first is right to 1e-6. An error of 0 is taken for that where the tensors'
means are above the second: what could be lost of it is below 1e-9 of them.
"""

NAN = float("nan")

SMALLEST_FLOAT16 = 2.0**-24
"""The smallest positive number of float16."""

CPU_PART = 2**19
"""How many elements are reduced at a time on a CPU, whose cache holds a few such tensors."""

GPU_PART = 2**24
"""
The same where there is a GPU, which needs much to do at a time; float32 counts no further.
"""

_LARGEST, _ERROR = 11, 13
"""Where the largest values and the largest error stand in the vector."""


def smallest_normal(dtype: str) -> float:
    """Return the smallest positive number of a dtype that is not subnormal."""
    return float(2.0 ** (2 - 2 ** (BITS[dtype][2] - 1)))


def smallest_value(dtype: str) -> float:
    """
    Return the smallest positive number that a dtype represents in kernels: for float16 a subnormal
    one, and for others a normal one, because CPU kernels treat their subnormal numbers as zero.
    """
    return SMALLEST_FLOAT16 if dtype == "float16" else smallest_normal(dtype)


def _least_of_reference(dtype: str) -> float:
    """Return the smallest magnitude in a reference that does not count as zero."""
    return smallest_normal("float64" if dtype == "float64" else "float32")


def quick_reductions(tf: Any, reference: Any, candidate: Any) -> tuple[Any, Any]:
    """
    Return the vector, computed in a few passes over the tensors, and whether it is valid; if it is
    not, use :func:`exact`.

    It is valid if all values are finite and no sum of squares left the range of the dtype in which
    it is summed. The relative error of float32 sums is then at most 1e-7 if values vary, and 3e-6
    if all are equal (Eigen of TensorFlow 2.21, up to 40 million elements; 1.3e-5 in 2.2).
    """
    sum_dtype = tf.float64 if tf.float64 in (reference.dtype, candidate.dtype) else tf.float32

    def add_part(reference_part: Any, candidate_part: Any, total: Any) -> Any:
        """Return the total with a part added."""
        first, second = tf.cast(reference_part, sum_dtype), tf.cast(candidate_part, sum_dtype)
        error = first - second
        sums = tf.stack([tf.nn.l2_loss(error), tf.nn.l2_loss(first), tf.nn.l2_loss(second)])
        counts = [
            tf.cast(tf.size(reference_part, out_type=tf.int64), tf.float64)[tf.newaxis],
            2 * tf.cast(sums, tf.float64),
            tf.zeros([5], tf.float64),
            _count_lost_values(tf, reference_part, candidate_part, first, second),
        ]
        distance = tf.abs(error)
        largest = [tf.reduce_max(tf.abs(tensor)) for tensor in (first, second)]
        most = tf.cast(tf.reduce_max(distance), tf.float64)

        def locate() -> Any:
            place = tf.argmax(distance)
            pair = [most, tf.gather(first, place), tf.gather(second, place)]
            return tf.stack([tf.cast(value, tf.float64) for value in pair])

        return _add_part(
            tf, total, tf.concat(counts, 0), tf.cast(tf.stack(largest), tf.float64), (most, locate)
        )

    vector = _by_parts(tf, reference, candidate, add_part)
    sums, none = vector[1:4] / 2, tf.equal(vector[_ERROR], 0)
    smallest_part, floor = FLOORS[sum_dtype.name]
    smallest_sums = vector[0] * tf.stack(
        [
            tf.where(none, tf.constant(0.0, tf.float64), tf.constant(smallest_part, tf.float64)),
            floor,
            floor,
        ]
    )
    is_valid = tf.reduce_all(
        tf.logical_and(sums >= smallest_sums, sums <= float(sum_dtype.max))
    )  # NaN is neither
    return vector, is_valid


def exact_reductions(tf: Any, reference: Any, candidate: Any) -> Any:
    """
    Return the vector for any values. It is computed in float64 over the pairs in which both values
    are finite; all other values are counted.
    """
    least, limit = _least_of_reference(reference.dtype.name), smallest_value(candidate.dtype.name)

    def count(mask: Any) -> Any:
        return tf.reduce_sum(tf.cast(mask, tf.float64))

    def add_part(reference: Any, candidate: Any, total: Any) -> Any:
        """Return the total with a part added, whose values may be infinite or NaN."""
        first, second = _values(tf, reference), _values(tf, candidate)
        finite = tf.math.is_finite(first), tf.math.is_finite(second)
        both = tf.logical_and(*finite)
        zeros = tf.zeros_like(first)
        finite_first, finite_second = tf.where(both, first, zeros), tf.where(both, second, zeros)
        error = finite_first - finite_second
        zero, is_subnormal = _classes(tf, candidate)
        size = tf.abs(first)
        too_small = tf.logical_and(size >= least, size < limit)
        counts = [
            tf.cast(tf.size(first, out_type=tf.int64), tf.float64),
            *(tf.reduce_sum(tf.square(tensor)) for tensor in (error, finite_first, finite_second)),
            count(tf.logical_and(finite[0], tf.logical_not(finite[1]))),
            *(
                count(test(tensor))
                for test in (tf.math.is_nan, tf.math.is_inf)
                for tensor in (first, second)
            ),
            count(is_subnormal) - count(zero),
            count(tf.logical_and(zero, too_small)),
        ]
        largest = [
            tf.reduce_max(tf.abs(tf.where(mask, tensor, zeros)))
            for mask, tensor in zip(finite, (first, second))
        ]
        most = tf.reduce_max(tf.abs(error))

        def locate() -> Any:
            distance = tf.where(both, tf.abs(error), zeros - 1)  # below that of any pair
            place = tf.argmax(distance)
            missing = tf.constant(NAN, tf.float64)
            known = tf.gather(both, place)
            pair = [
                tf.where(known, tf.gather(tensor, place), missing)
                for tensor in (finite_first, finite_second)
            ]
            return tf.stack([most, *pair])

        return _add_part(tf, total, tf.stack(counts), tf.stack(largest), (most, locate))

    return _by_parts(tf, reference, candidate, add_part)


def _by_parts(
    tf: Any, reference: Any, candidate: Any, add_part: Callable[[Any, Any, Any], Any]
) -> Any:
    """
    Return the vector of two tensors, computed part by part.

    The intermediate values of a part stay in the CPU's cache until they are added up. This takes
    about half the time of passes over whole tensors, and no memory for tensors of their size.
    """
    length = GPU_PART if tf.config.list_physical_devices("GPU") else CPU_PART
    first, second = tf.reshape(reference, [-1]), tf.reshape(candidate, [-1])
    count = tf.size(first, out_type=tf.int64)

    def add(start: Any, total: Any) -> tuple[Any, Any]:
        """Add the part that begins at an element to the total."""
        size = tf.minimum(count - start, tf.constant(length, tf.int64))
        reference_part, candidate_part = (
            tf.slice(tensor, [start], [size]) for tensor in (first, second)
        )
        return start + size, add_part(reference_part, candidate_part, total)

    initial = tf.constant([0.0] * (_ERROR + 1) + [NAN] * 3, tf.float64)
    _, vector = tf.while_loop(
        lambda start, _: start < count,
        add,
        (tf.constant(0, tf.int64), initial),
        parallel_iterations=1,
    )
    return vector


def _add_part(
    tf: Any, total: Any, counts: Any, largest: Any, error: tuple[Any, Callable[[], Any]]
) -> Any:
    """
    Return the vector with a part added: what is counted or summed, the largest values, and the
    largest error with the function that finds its place.
    """
    most, locate = error
    is_larger = tf.logical_or(most > total[_ERROR], tf.math.is_nan(total[_ERROR + 1]))
    return tf.concat(
        [
            total[:_LARGEST] + counts,
            tf.maximum(total[_LARGEST:_ERROR], largest),
            tf.cond(is_larger, locate, lambda: total[_ERROR:-1]),
            total[-1:],
        ],
        0,
    )


def _count_lost_values(tf: Any, reference: Any, candidate: Any, first: Any, second: Any) -> Any:
    """
    Return the number of the candidate's subnormal values, and the number of its zeros at values of
    the reference that its dtype cannot represent.
    """
    zero, is_small = _classes(tf, candidate)
    if candidate.dtype == tf.float16:
        zero = tf.equal(
            second, 0
        )  # the same in one pass: float32 holds its subnormal numbers as normal ones
    limit = smallest_value(candidate.dtype.name)
    masks = [tf.logical_and(is_small, tf.logical_not(zero))]
    if limit > _least_of_reference(reference.dtype.name):
        too_small = tf.logical_and(tf.not_equal(first, 0), tf.abs(first) < limit)
        masks.append(tf.logical_and(zero, too_small))
    counts = [tf.reduce_sum(tf.cast(mask, tf.float32)) for mask in masks]  # exact up to 2**24
    zeros = [tf.zeros_like(counts[0])] * (2 - len(counts))
    return tf.cast(tf.stack(counts + zeros), tf.float64)


def _classes(tf: Any, tensor: Any) -> tuple[Any, Any]:
    """
    Return a mask of zeros, and a mask of zeros and subnormal values.

    Both are derived from the bits, because CPU kernels treat subnormal numbers as zero. For long
    floats, the bits are made into floats that no kernel treats as zero: an exponent with no
    fraction, and a fraction with the exponent of 1.
    """
    name, fraction, exponent = BITS[tensor.dtype.name]
    integers = getattr(tf, name)
    bits = tf.bitcast(tensor, integers)

    def masked(mask: int) -> Any:
        return tf.bitwise.bitwise_and(bits, tf.constant(mask, integers))

    scale = masked(((1 << exponent) - 1) << fraction)
    if integers == tf.int16:
        return tf.equal(masked(0x7FFF), 0), tf.equal(scale, 0)
    is_small = tf.equal(tf.bitcast(scale, tensor.dtype), 0)
    unit_exponent = tf.constant(((1 << (exponent - 1)) - 1) << fraction, integers)
    digits = tf.bitcast(
        tf.bitwise.bitwise_or(masked((1 << fraction) - 1), unit_exponent), tensor.dtype
    )
    return tf.logical_and(is_small, tf.equal(digits, 1)), is_small


def _values(tf: Any, tensor: Any) -> Any:
    """
    Return a tensor as float64. Subnormal numbers of float32 and bfloat16 are computed from their
    bits.
    """
    float64_values = tf.cast(tensor, tf.float64)
    if tensor.dtype not in (tf.float32, tf.bfloat16):
        return float64_values
    bits = tf.cast(tf.bitcast(tf.cast(tensor, tf.float32), tf.int32), tf.int64)
    small_values = (
        tf.cast(tf.bitwise.bitwise_and(bits, tf.constant(0x7FFFFF, tf.int64)), tf.float64)
        * 2.0**-149
    )
    signed = tf.where(bits < 0, -small_values, small_values)
    return tf.where(
        tf.equal(tf.bitwise.bitwise_and(bits, tf.constant(0x7F800000, tf.int64)), 0),
        signed,
        float64_values,
    )


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
    ),  # of the candidate: not 0 and below its smallest normal number; 0 where its dtype cannot
    # represent the reference, because it is too small
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
    within a ``tf.function``, or as an array for a backend without graphs. Tensors other than floats
    of 16 to 64 bits are only compared for equality.

    :raises ValueError: for shapes that are known to differ.
    """
    if not are_compatible(reference, candidate):
        raise ValueError(reference.shape, candidate.shape)
    is_float = {dtype_name(reference), dtype_name(candidate)} <= set(BITS)
    if is_eager(tf):
        return _array_errors(reference, candidate, is_float=is_float)
    if not is_float:
        return _differing(tf, reference, candidate)
    first, second = (
        tf.stop_gradient(reference),
        tf.stop_gradient(candidate),
    )  # else a tape around this asks for gradients of every reduction
    return _function(tf, reference.dtype, candidate.dtype)(first, second)


def _array_errors(reference: Any, candidate: Any, *, is_float: bool) -> Any:
    """Return the vector of two tensors that have values, computed by NumPy."""
    first, second = (np.ravel(to_array(tensor)) for tensor in (reference, candidate))
    total = np.array([0.0] * (_ERROR + 1) + [NAN] * 3)
    if not is_float:
        total[1:] = NAN
        total[[0, -1]] = first.size, np.count_nonzero(first != second.astype(first.dtype))
        return total
    name = dtype_name(candidate)
    range_of_lost = _least_of_reference(dtype_name(reference)), smallest_value(name)
    for start in range(0, first.size, CPU_PART):
        stop = start + CPU_PART
        parts = [array[start:stop].astype("float64") for array in (first, second)]
        part_vector = _part_errors(parts[0], parts[1], smallest_normal(name), range_of_lost)
        total = merge(total, part_vector)
    return total


def _part_errors(first: Any, second: Any, normal: float, range_of_lost: tuple[float, float]) -> Any:
    """
    Return the vector of two float64 arrays.

    :param normal: the smallest normal number of the dtype of the second
    :param range_of_lost: the magnitudes of the first, without the upper end, that are too small for
        this dtype
    """
    finite = np.isfinite(first), np.isfinite(second)
    both = finite[0] & finite[1]
    kept = (
        [first, second] if both.all() else [np.where(both, array, 0) for array in (first, second)]
    )
    error = np.abs(kept[0] - kept[1])
    place = int(np.argmax(error if both.all() else np.where(both, error, -1.0)))
    size = np.abs(second)
    zero = size == 0
    first_size, (least, limit) = np.abs(first), range_of_lost
    pair = [array[place] if both[place] else NAN for array in kept]
    return np.array(
        [
            first.size,
            *(float(np.dot(array, array)) for array in (error, *kept)),
            np.count_nonzero(finite[0] & ~finite[1]),
            *(np.count_nonzero(np.isnan(array)) for array in (first, second)),
            *(np.count_nonzero(np.isinf(array)) for array in (first, second)),
            np.count_nonzero(~zero & (size < normal)),
            np.count_nonzero(zero & (first_size >= least) & (first_size < limit)),
            *(
                float(np.abs(array).max(where=mask, initial=0.0))
                for array, mask in zip((first, second), finite)
            ),
            error[place],
            *pair,
            NAN,
        ]
    )


def merge(first: Any, second: Any) -> Any:
    """Return the reductions over the elements of two batches."""
    total = np.asarray(first, "float64") + np.asarray(second, "float64")
    for name in LARGEST:
        place = FIELDS.index(name)
        total[place] = np.maximum(first[place], second[place])
    error, pair = FIELDS.index("largest_error"), [FIELDS.index(name) for name in PAIR]
    is_second_larger = second[error] > first[error] or np.isnan(first[pair[0]])
    for place in pair:
        total[place] = (second if is_second_larger else first)[place]
    return total


def to_json(vector: Any) -> dict[str, float | int | None]:
    """
    Return the reductions by name: counts as integers, and None for values that were not measured.
    """
    reductions: dict[str, float | int | None] = {}
    for name, value in zip(FIELDS, np.asarray(vector, "float64").tolist()):
        is_count = name not in (*SUMS, *LARGEST, *PAIR)
        reductions[name] = None if value != value else int(value) if is_count else value + 0.0  # noqa: PLR0124  # NaN; and no -0.0
    return reductions


@functools.lru_cache(maxsize=None)
def _function(tf: Any, first: Any, second: Any) -> Any:
    """
    Return the function that computes the reductions for a pair of dtypes; it is not inlined.

    It is traced once for tensors of any shape, not for each of hundreds of comparisons. If it were
    inlined, Grappler would need much longer for a model's graph: 40 s for 270 comparisons, and 3 s
    as calls (measured with TensorFlow 2.21). A release that cannot turn inlining off only takes
    longer.
    """
    pair = [tf.TensorSpec(None, first), tf.TensorSpec(None, second)]
    called = functools.partial(
        tf.function, input_signature=pair, autograph=False, **_no_inline_arguments(tf)
    )
    exact_function = called(functools.partial(exact_reductions, tf))

    def reductions(reference: Any, candidate: Any) -> Any:
        vector, is_valid = quick_reductions(tf, reference, candidate)
        return tf.cond(is_valid, lambda: vector, lambda: exact_function(reference, candidate))

    return called(reductions)


def _no_inline_arguments(tf: Any) -> dict[str, Any]:
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
    """
    Return the vector of tensors that are not floats: the number of elements and of differing
    elements.
    """
    other = candidate if candidate.dtype == reference.dtype else tf.cast(candidate, reference.dtype)
    counts = {
        "elements": tf.size(reference),
        "differing": tf.math.count_nonzero(tf.not_equal(reference, other)),
    }
    missing = tf.constant(float("nan"), tf.float64)
    return tf.stack(
        [tf.cast(counts[name], tf.float64) if name in counts else missing for name in FIELDS]
    )
