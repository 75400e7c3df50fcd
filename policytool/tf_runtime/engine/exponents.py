"""How many values of a tensor have which binary exponent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from typing import Any

EXPONENT_BINS = 256
"""The exponents of float32 as its bits have them: 0 for zero, 255 for what is not finite."""

_BIAS = 127


def count_exponents(tf: Any, tensor: Any) -> Any:
    """
    Return the number of values for each exponent, as a float64 vector; within a ``tf.function``.

    Counted on the CPU: GPUs have no deterministic kernel for it.
    """
    bits = tf.bitcast(tf.cast(tf.stop_gradient(tensor), tf.float32), tf.int32)
    biased_exponents = tf.bitwise.bitwise_and(tf.bitwise.right_shift(bits, 23), 255)
    with tf.device("/CPU:0"):
        return tf.cast(
            tf.math.bincount(
                tf.reshape(biased_exponents, [-1]), minlength=EXPONENT_BINS, maxlength=EXPONENT_BINS
            ),
            tf.float64,
        )


def exponents_to_json(vector: Any) -> list[list[int]]:
    """Return the exponents of normal numbers in ascending order, each with its count."""
    counts = np.asarray(vector, "int64").tolist()
    return [
        [place - _BIAS, counts[place]] for place in range(1, EXPONENT_BINS - 1) if counts[place]
    ]
