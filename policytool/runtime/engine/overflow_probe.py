"""
The factor by which synthetic inputs can grow until a float16 candidate overflows.

The range of a user's data is unknown; how far the model is from an overflow on inputs of an
ordinary size, and where it comes first, can be measured.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..feeding.inputs import forget_states
from ..library import is_shortage
from ..tensors import is_eager, is_floating, to_array
from . import tensor_errors
from .layer_hooks import LayerId
from .measurements import is_worse

if TYPE_CHECKING:
    from typing import Any, Callable, Sequence

    from ..feeding.batches import FedInputs
    from ..feeding.recipes import Recipe
    from .call_pairs import Pair, Row

NARROW = "float16"
"""The only dtype that is probed: the others have the range of float32, or more."""

MOST = 2.0**15
"""The largest factor."""

LEAST = 16.0
"""
The factor that is tried in any case. A larger one takes the inputs at most to the end of float16's
range: beyond it every model overflows.
"""

CLOSE = 1.2
"""How far apart the largest factor without an overflow and the smallest one with it may be."""

_OVERFLOWED = tensor_errors.FIELDS.index("overflowed")


class Outcome(NamedTuple):
    """The result for inputs scaled by one factor."""

    overflow: Any = None
    """The first overflow of the candidate; None if it does not overflow."""

    is_usable: bool = True
    """Whether the reference is as finite as for the unscaled inputs."""


def probe_overflow(
    tf: Any, pair: Pair, fed: FedInputs, usual_vectors: Any, step: Callable[[str], None]
) -> dict[str, Any] | None:
    """
    Return the smallest factor by which inputs overflow the candidate, with the layer, and the
    largest that was tried and does not; None if there is nothing to probe.

    Both models run at most eight times on the first random batch and on the extra ones.

    :param usual_vectors: the vectors of all comparisons over the unscaled inputs
    """
    batches = [
        *(extreme.tensors for extreme in fed.extremes),
        *fed.batches[:1],
    ]  # likely ones first
    if not is_narrow(pair.rows) or first_overflow(pair.rows, usual_vectors) is not None:
        return None
    largest = max((_largest(tf, fed.recipes, batch) for batch in batches), default=0.0)
    if not largest:
        return None

    def run(factor: float) -> Outcome:
        """Run both models on inputs that are multiplied by a factor."""
        step("probing for overflow: inputs {:g} times larger".format(factor))
        for batch in batches:
            for model in (pair.reference, pair.candidate):
                forget_states(model)
            try:
                vectors = pair.vectors(scale_batch(tf, fed.recipes, batch, factor))
            except tf.errors.OpError as error:
                if is_shortage(error):
                    raise
                return Outcome(is_usable=False)  # an assertion in the model, for one
            if is_worse(usual_vectors, vectors):
                return Outcome(is_usable=False)
            overflowing_row = first_overflow(pair.rows, vectors)
            if overflowing_row is not None:
                return Outcome(overflowing_row)
        return Outcome()

    finite_to, factor, row = smallest_factor(run, most_factor(largest))
    layer = row.candidate.layer_id if row is not None else LayerId(None, None)
    return {"factor": factor, "finite_to": finite_to, **layer.fields()}


def most_factor(largest: float) -> float:
    """Return the largest factor to try, for the largest absolute value of the inputs."""
    ends = float(np.finfo(NARROW).max) / largest
    return min(MOST, max(LEAST, _rounded(ends, math.floor)))


def smallest_factor(
    run: Callable[[float], Outcome], most: float
) -> tuple[float, float | None, Any]:
    """
    Return the largest tried factor without an overflow, the smallest with one, and the first
    overflow at that factor; None for the last two if no factor causes an overflow.

    An overflow at a factor is assumed for every larger factor, so that each trial halves the
    interval. Factors have two digits, so that reports can print the tried ones.
    """
    passing, overflowing = 1.0, most
    outcome = run(most)
    if outcome.is_usable and outcome.overflow is None:
        return most, None, None
    while overflowing / passing > CLOSE:
        middle = _rounded(math.sqrt(passing * overflowing), round)
        if not passing < middle < overflowing:
            break
        trial = run(middle)
        if trial.is_usable and trial.overflow is None:
            passing = middle
        else:
            overflowing, outcome = middle, trial
    return (passing, overflowing, outcome.overflow) if outcome.is_usable else (passing, None, None)


def is_narrow(rows: Sequence[Row]) -> bool:
    """Return whether the candidate has values in float16."""
    return any(candidate == NARROW for row in rows for _, candidate in row.dtypes)


def first_overflow(rows: Sequence[Row], vectors: Any) -> Any:
    """
    Return the row of the first call in which the candidate has NaN or infinity and the reference
    has not; None if there is none.

    If the call does not overflow on the inputs of the reference, the candidate's inputs are already
    too large. Code of an enclosing layer computed them, such as the scores of an attention, so the
    row of that layer is returned.
    """

    def overflows(numbers: Sequence[int | None] | None) -> bool:
        return any(
            number is not None and vectors[number][_OVERFLOWED] > 0 for number in numbers or []
        )

    first = next((row for row in rows if overflows(row.accumulated)), None)
    if first is None or first.isolated is None or overflows(first.isolated):
        return first
    by_call = {row.candidate.key: row for row in rows}
    enclosing = first.candidate.parent
    while enclosing is not None:
        row = by_call.get(enclosing.key)
        if row is not None and overflows(row.isolated):
            return row
        enclosing = enclosing.parent
    return first


def scale_batch(tf: Any, recipes: Sequence[Recipe], batch: Any, factor: float) -> Any:
    """Return a batch whose float inputs are multiplied, except for the padding of sequences."""

    def multiply_leaf(leaf: Any, padding: float | None) -> Any:
        """Return a tensor of the batch after multiplying its floats."""

        def change(values: Any) -> Any:
            if not is_floating(values):
                return values  # where the values of a sparse or ragged tensor are
            larger = values * tf.cast(factor, values.dtype)
            if padding is None:
                return larger
            return tf.where(tf.equal(values, tf.cast(padding, values.dtype)), values, larger)

        return tf.nest.map_structure(change, leaf, **composites)

    composites = {} if is_eager(tf) else {"expand_composites": True}
    leaves = [
        multiply_leaf(leaf, recipe.padding) if recipe.is_scalable else leaf
        for leaf, recipe in zip(tf.nest.flatten(batch), recipes)
    ]
    return tf.nest.pack_sequence_as(batch, leaves)


def _largest(tf: Any, recipes: Sequence[Recipe], batch: Any) -> float:
    """Return the largest absolute value of the inputs that are scaled."""
    maxima = [
        float(np.abs(to_array(values).astype("float64")).max())
        for leaf, recipe in zip(tf.nest.flatten(batch), recipes)
        if recipe.is_scalable
        for values in tf.nest.flatten(leaf, expand_composites=True)
        if is_floating(values) and int(tf.size(values))
    ]
    return max(maxima, default=0.0)


def _rounded(value: float, rounding: Callable[[float], int]) -> float:
    """Return a positive number rounded to two digits."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float("{:.2g}".format(rounding(value / unit) * unit))
