"""
Two ways to reduce a pair of float tensors to the vector of :data:`measuring.FIELDS`: a quick one
for ordinary values, and an exact one for all others.

Both take tensors of two dimensions that hold at least one element. Operations are those with a GPU
kernel for their dtype: 16-bit values are looked at as float32, or as the integers of their bits,
and integers of 32 bits, which are compared and summed on the host of a GPU, as floats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

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


def quick(tf: Any, reference: Any, candidate: Any, *, full: bool) -> tuple[Any, Any]:
    """
    Return the vector, in a few passes over the tensors, and whether it is right: where it is not,
    :func:`exact` tells.

    It is right where everything is finite and no sum of squares left the range of the dtype that it
    is summed in. Sums in float32 are then right to 1e-7 where values vary, and to 3e-6 where all
    are the same (Eigen of TensorFlow 2.21, up to 40 million elements; 1.3e-5 in 2.2).
    """
    wide = tf.float64 if tf.float64 in (reference.dtype, candidate.dtype) else tf.float32
    first, second = tf.cast(reference, wide), tf.cast(candidate, wide)
    error = first - second
    elements = tf.cast(tf.size(error, out_type=tf.int64), tf.float64)
    sums = tf.cast(
        tf.stack([tf.nn.l2_loss(error), tf.nn.l2_loss(first), tf.nn.l2_loss(second)]), tf.float64
    )
    if full:
        extremes = _extremes(tf, error, first, second)
        rest = [_lost(tf, candidate, first, second), extremes, tf.constant([NAN], tf.float64)]
        none = tf.equal(extremes[2], 0)
    else:
        rest = [tf.constant([NAN] * 8, tf.float64)]
        none = tf.equal(sums[0], 0)
    small, floor = FLOORS[wide.name]
    least = elements * tf.stack(
        [tf.where(none, tf.constant(0.0, tf.float64), tf.constant(small, tf.float64)), floor, floor]
    )
    right = tf.reduce_all(tf.logical_and(sums >= least, sums <= float(wide.max)))  # NaN is neither
    return tf.concat([elements[tf.newaxis], 2 * sums, tf.zeros([5], tf.float64), *rest], 0), right


def exact(tf: Any, reference: Any, candidate: Any, *, full: bool) -> Any:
    """
    Return the vector for any values: in float64, over the pairs in which both are finite, with
    everything else counted.
    """
    first, second = _values(tf, reference), _values(tf, candidate)
    finite = tf.math.is_finite(first), tf.math.is_finite(second)
    both = tf.logical_and(*finite)
    zeros = tf.zeros_like(first)
    one, other = tf.where(both, first, zeros), tf.where(both, second, zeros)
    error = one - other

    def count(mask: Any) -> Any:
        return tf.reduce_sum(tf.cast(mask, tf.float64))

    found = [
        tf.cast(tf.size(first, out_type=tf.int64), tf.float64),
        *(tf.reduce_sum(tf.square(tensor)) for tensor in (error, one, other)),
    ]
    found.append(count(tf.logical_and(finite[0], tf.logical_not(finite[1]))))
    found += [
        count(test(tensor))
        for test in (tf.math.is_nan, tf.math.is_inf)
        for tensor in (first, second)
    ]
    missing = tf.constant(NAN, tf.float64)
    if not full:
        return tf.stack([*found, *[missing] * 8])
    zero, small = _classes(tf, candidate)
    present = tf.logical_and(
        finite[0], tf.abs(first) >= (2.0**-1022 if reference.dtype == tf.float64 else 2.0**-126)
    )
    found += [count(small) - count(zero), count(tf.logical_and(zero, present))]
    found += [
        tf.reduce_max(tf.abs(tf.where(mask, tensor, zeros)))
        for mask, tensor in zip(finite, (first, second))
    ]
    distance = tf.where(
        both, tf.abs(error), tf.fill(tf.shape(error), tf.constant(-1.0, tf.float64))
    )  # below that of any pair
    place = tf.argmax(tf.reshape(distance, [-1]))
    known = tf.gather(tf.reshape(both, [-1]), place)
    found.append(tf.reduce_max(tf.abs(error)))
    found += [
        tf.where(known, tf.gather(tf.reshape(tensor, [-1]), place), missing)
        for tensor in (one, other)
    ]
    return tf.stack([*found, missing])


def _extremes(tf: Any, error: Any, first: Any, second: Any) -> Any:
    """
    Return the largest absolute values of both tensors, that of the error, and both values where
    that is.
    """

    def rows(tensor: Any) -> Any:
        return tf.maximum(
            tf.reduce_max(tensor, 1), -tf.reduce_min(tensor, 1)
        )  # two passes that only read: faster than one that writes absolute values

    errors = rows(error)
    row = tf.argmax(errors)
    column = tf.argmax(tf.abs(tf.gather(error, row)))
    largest = [
        tf.reduce_max(rows(first)),
        tf.reduce_max(rows(second)),
        tf.gather(errors, row),
        first[row, column],
        second[row, column],
    ]
    return tf.cast(tf.stack(largest), tf.float64)


def _lost(tf: Any, candidate: Any, first: Any, second: Any) -> Any:
    """
    Return how many of the candidate's values are subnormal, and how many are zero where the
    reference is not.
    """
    zero, small = _classes(tf, candidate)
    if candidate.dtype == tf.float16:
        zero = tf.equal(
            second, 0
        )  # the same in one pass: float32 holds its subnormal numbers as normal ones
    masks = tf.not_equal(small, zero), tf.logical_and(zero, tf.not_equal(first, 0))
    counts = tf.stack(
        [tf.reduce_sum(tf.cast(mask, tf.float32), 1) for mask in masks]
    )  # exact up to 2**24 elements a row
    return tf.reduce_sum(tf.cast(counts, tf.float64), 1)


def _classes(tf: Any, tensor: Any) -> tuple[Any, Any]:
    """
    Return which values are zero, and which are zero or subnormal, told from their bits: CPU kernels
    take subnormal numbers for zero.

    The bits of longer floats become floats that nobody takes for zero: an exponent with no
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
    small = tf.equal(tf.bitcast(scale, tensor.dtype), 0)
    one = tf.constant(((1 << (exponent - 1)) - 1) << fraction, integers)
    digits = tf.bitcast(tf.bitwise.bitwise_or(masked((1 << fraction) - 1), one), tensor.dtype)
    return tf.logical_and(small, tf.equal(digits, 1)), small


def _values(tf: Any, tensor: Any) -> Any:
    """
    Return a tensor as float64, the subnormal numbers of float32 and bfloat16 made of their bits.
    """
    wide = tf.cast(tensor, tf.float64)
    if tensor.dtype not in (tf.float32, tf.bfloat16):
        return wide
    bits = tf.cast(tf.bitcast(tf.cast(tensor, tf.float32), tf.int32), tf.int64)
    small = (
        tf.cast(tf.bitwise.bitwise_and(bits, tf.constant(0x7FFFFF, tf.int64)), tf.float64)
        * 2.0**-149
    )
    signed = tf.where(bits < 0, -small, small)
    return tf.where(
        tf.equal(tf.bitwise.bitwise_and(bits, tf.constant(0x7F800000, tf.int64)), 0), signed, wide
    )
