"""
How far a candidate's tensor is from the reference's, reduced on the device to a few numbers.

Everything is summed and counted over pairs of elements; what that means (relative error, signal-to-noise ratio, shares) is derived from it elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from typing import Any

FIELDS = ("elements", "squared_error", "largest_error", "squared_reference", "squared_candidate", "largest_candidate")
"""What stands where in the vector of one comparison."""


def compared(tf: Any, reference: Any, candidate: Any) -> Any:
    """Return the reductions of two float tensors of one shape, as a float64 vector in the order of FIELDS."""
    wide = tf.cast(candidate, reference.dtype)
    error = reference - wide
    found = (
        tf.size(reference),
        2 * tf.nn.l2_loss(error),
        tf.maximum(tf.reduce_max(error), -tf.reduce_min(error)),
        2 * tf.nn.l2_loss(reference),
        2 * tf.nn.l2_loss(wide),
        tf.maximum(tf.reduce_max(wide), -tf.reduce_min(wide)),
    )
    return tf.stack([tf.cast(one, tf.float64) for one in found])


def merged(one: Any, other: Any) -> Any:
    """Return the reductions over the elements of two batches."""
    largest = [name.startswith("largest") for name in FIELDS]
    return np.where(largest, np.maximum(one, other), one + other)


def told(vector: Any) -> dict[str, float]:
    """Return the reductions by name."""
    return dict(zip(FIELDS, (float(value) for value in vector)))
