"""How often two classifiers give a sample the same class."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from typing import Any

FIELDS = ("rows", "agreed")
"""What stands where in the vector of one output. Vectors of further batches are added."""


def applies(tensor: Any) -> bool:
    """
    Return whether an output can hold the scores of classes: floats, of two dimensions at least, and
    two along the last.
    """
    rank = tensor.shape.rank
    return bool(
        tensor.dtype.is_floating
        and rank is not None
        and rank > 1
        and (tensor.shape[-1] is None or tensor.shape[-1] > 1)
    )


def agreement(tf: Any, reference: Any, candidate: Any) -> Any:
    """
    Return, as a float64 vector in the order of FIELDS, how many rows there are along the last axis,
    and in how many both have their largest value in one place.

    Of several largest values the first counts. A row that holds NaN in the reference has no class
    and is left out; one that holds NaN in the candidate alone does not agree.
    """
    nans = [tf.math.is_nan(tf.cast(tensor, tf.float64)) for tensor in (reference, candidate)]
    lowest = tf.fill(tf.shape(reference), tf.constant(-float("inf"), tf.float64))
    classes = [
        tf.argmax(tf.where(nan, lowest, tf.cast(tensor, tf.float64)), -1)
        for nan, tensor in zip(nans, (reference, candidate))
    ]
    lost = [tf.reduce_any(nan, -1) for nan in nans]
    counted = tf.logical_not(lost[0])
    same = tf.logical_and(tf.logical_and(counted, tf.logical_not(lost[1])), tf.equal(*classes))
    return tf.stack([tf.reduce_sum(tf.cast(mask, tf.float64)) for mask in (counted, same)])


def to_json(vector: Any) -> dict[str, int]:
    """Return the counts by name."""
    return dict(zip(FIELDS, (int(count) for count in np.asarray(vector))))
