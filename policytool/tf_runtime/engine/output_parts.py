"""
The rows and the channels of a model's outputs, compared one by one: the error of the whole output
hides those whose values are small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from typing import Any

CHANNELS = 1 << 16
"""The most channels that are told apart."""

SUMS = ("squared_error", "squared_reference", "squared_candidate")
"""What is summed for each channel."""

WORST = ("index", "squared_error", "squared_reference", "squared_candidate")
"""What is told of the worst channel, and of the worst row."""


def applies(reference: Any, candidate: Any) -> bool:
    """Return whether outputs have rows and channels: floats, along a first and a last axis."""
    shape = reference.shape
    return bool(
        reference.dtype.is_floating
        and candidate.dtype.is_floating
        and shape.rank is not None
        and shape.rank > 1
        and shape[-1] is not None
        and 0 < shape[-1] <= CHANNELS
    )


def compare(tf: Any, reference: Any, candidate: Any) -> tuple[Any, Any, Any]:
    """
    Return float64 tensors: the sums of each channel and of each row (``[n, 3]``, in the order of
    SUMS), and the lowest and the highest finite value of the reference; within a ``tf.function``.

    Only pairs in which both are finite count.
    """
    first, second = (tf.cast(tf.stop_gradient(one), tf.float64) for one in (reference, candidate))
    both = tf.logical_and(tf.math.is_finite(first), tf.math.is_finite(second))
    zeros = tf.zeros_like(first)
    one, other = tf.where(both, first, zeros), tf.where(both, second, zeros)
    squares = [tf.square(tensor) for tensor in (one - other, one, other)]
    axes = list(range(first.shape.rank))
    channels, rows = (
        tf.stack([tf.reduce_sum(square, axis) for square in squares], -1)
        for axis in (axes[:-1], axes[1:])
    )
    finite = tf.math.is_finite(first)
    ends = [
        tf.reduce_min(tf.where(finite, first, tf.fill(tf.shape(first), first.dtype.max))),
        tf.reduce_max(tf.where(finite, first, tf.fill(tf.shape(first), first.dtype.min))),
    ]
    return channels, rows, tf.stack(ends)


class Parts:
    """The sums of one output, over all batches."""

    def __init__(self, channels: Any, rows: Any, ends: Any) -> None:
        self.channels = np.asarray(channels, "float64")
        self.rows = [np.asarray(rows, "float64")]
        self.ends = np.asarray(ends, "float64")

    def merged(self, other: Parts) -> Parts:
        """Return the sums over the examples of both."""
        ends = [min(self.ends[0], other.ends[0]), max(self.ends[1], other.ends[1])]
        found = Parts(self.channels + other.channels, self.rows[0], ends)
        found.rows = self.rows + other.rows
        return found

    def to_json(self) -> dict[str, Any]:
        """
        Return the worst channel and row that are not zero in the reference, None where there is
        none, and the range of the reference; None where nothing in it is finite.
        """
        lowest, highest = self.ends.tolist()
        return {
            "channel": _worst(self.channels),
            "row": _worst(np.concatenate(self.rows)),
            "range": [lowest, highest] if lowest <= highest else None,
        }


def _worst(found: Any) -> dict[str, Any] | None:
    error, reference = found[:, 0], found[:, 1]
    # A square below the smallest number is 0 although the value is not: nothing can be divided by.
    relative = np.divide(error, reference, out=np.zeros_like(error), where=reference > 0)
    if not relative.size or not relative.max() > 0:
        return None
    place = int(relative.argmax())
    return dict(zip(WORST, [place, *found[place].tolist()]))
