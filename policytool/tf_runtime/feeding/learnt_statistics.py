"""The mean and the variance of an input's values, from the layers that learnt them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..facts import category, facts
from .element_paths import open_as_one
from .reached_layers import CHANGED, has_statistics

if TYPE_CHECKING:
    from typing import Any, Sequence

    from .reached_layers import Reached
    from .slots import Slot


class Statistics(NamedTuple):
    """The statistics of an input, by element or in a shape that can be broadcast to it."""

    mean: Any
    spread: Any
    """The standard deviations."""

    names: tuple[str, ...]
    """The layers that they are from."""


def input_statistics(slot: Slot, reached: Sequence[Reached]) -> Statistics | None:
    """
    Return the statistics of an input; None if no layer that its values reach has any.

    Elements that reach no such layer have a mean of 0 and a variance of 1.
    """
    sizes = open_as_one(slot.shape)
    if sizes is None:
        return None
    known = np.zeros(sizes, dtype=bool)
    mean, spread = np.zeros(sizes), np.ones(sizes)
    names = []
    for reached_layer in reached:
        learnt = _of_layer(slot, reached_layer)
        if learnt is None:
            continue
        own_mean, own_spread, elements = learnt
        present = elements.ravel() >= 0
        places, sources = elements.ravel()[present], np.flatnonzero(present)
        new = ~known.flat[places]
        if not new.any():
            continue
        mean.flat[places[new]] = own_mean.flat[sources[new]]
        spread.flat[places[new]] = own_spread.flat[sources[new]]
        known.flat[places] = True
        names.append(str(reached_layer.layer.name))
    return Statistics(mean, spread, tuple(names)) if names else None


def _of_layer(slot: Slot, reached: Reached) -> tuple[Any, Any, Any] | None:
    """
    Return the means and standard deviations of a layer's input values, converted to the model's
    input, and the input's element to which each belongs; None for a layer without statistics.
    """
    if not has_statistics(reached.layer):
        return None
    is_batch_layer = category(reached.layer) == "normalization"
    if is_batch_layer and reached.way == CHANGED:
        return None  # they describe values that an operation or a custom class computed
    elements = reached.elements
    if elements is None:
        sizes = open_as_one(slot.shape) or ()
        elements = np.arange(int(np.prod(sizes))).reshape(sizes)
    axis = _axis(reached, elements.shape) if is_batch_layer else None
    fitted = [
        _fitted(_array(getattr(reached.layer, attribute, None)), elements.shape, axis)
        for attribute in facts(reached.layer)["statistics"]
    ]
    if any(array is None or not np.isfinite(array).all() for array in fitted):
        return None
    scale, offset = reached.scaling
    mean, variance = fitted
    return (mean - offset) / scale, np.sqrt(np.maximum(variance, 0)) / abs(scale), elements


def _array(value: Any) -> Any:
    """Return a constant or a variable as an array."""
    if value is None:
        return None
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value).astype("float64")


def _axis(reached: Reached, sizes: Sequence[int]) -> int:
    """
    Return the axis of a BatchNormalization's features, counting the batch as the first. If the
    shape of the layer's input is unknown, as in a TimeDistributed, the last axis is assumed.
    """
    if reached.elements is None:
        return len(sizes)
    axis = (
        reached.layer.axis
        if isinstance(reached.layer.axis, int)
        else next(iter(reached.layer.axis))
    )
    return int(axis) % (len(sizes) + 1)


def _fitted(array: Any, sizes: Sequence[int], axis: int | None) -> Any:
    """
    Return statistics in the shape of a layer's input without its batch; None if they do not fit.

    :param axis: the only one that the statistics have; None where they have as many as the layer's
        input, or less
    """
    if array is None:
        return None
    if axis is not None:
        array = array.reshape([-1 if place == axis else 1 for place in range(len(sizes) + 1)])
    try:
        return np.broadcast_to(array, (1, *sizes))[0]
    except ValueError:
        return None
