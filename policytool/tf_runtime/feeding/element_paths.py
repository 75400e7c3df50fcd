"""
Where the single values of an input are in the tensors that layers make of it without computing:
reshaped, permuted, cut, padded, and joined with others.

A tensor is described by an array of its shape without the batch, in which every dimension that is
open has the size 1: the numbers of the input's elements, and NOTHING where it has none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..facts import facts

if TYPE_CHECKING:
    from typing import Any, Sequence

NOTHING = -1

MOST_ELEMENTS = 2**22
"""Inputs with more of them are not followed: an image of 1024 by 1024 pixels has 3 million."""

_RESHAPING_OPS = frozenset({"reshape", "expanddims", "squeeze", "flatten", "ravel"})
_JOINING_OPS = frozenset({"concat", "concatv2", "concatenate"})


def call_arguments(node: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a call, in both generations of Keras."""
    arguments = getattr(node, "arguments", None)
    values = getattr(arguments, "args", None) or getattr(node, "call_args", None) or ()
    named = getattr(arguments, "kwargs", None) or getattr(node, "call_kwargs", None) or {}
    return list(values), dict(named)


def open_as_one(shape: Any) -> tuple[int, ...] | None:
    """Return a shape without its batch, with 1 for what is open; None for an unknown rank."""
    if shape is None or getattr(shape, "rank", 0) is None:
        return None
    return tuple(1 if size is None else int(size) for size in list(shape)[1:])


def elements_of_input(shape: Any) -> Any:
    """Return the array of an input itself; None for what is too large or of an unknown rank."""
    sizes = open_as_one(shape)
    if sizes is None or np.prod(sizes) > MOST_ELEMENTS:
        return None
    return np.arange(int(np.prod(sizes))).reshape(sizes)


def elements_after(layer: Any, call: tuple[str, Any], arrays: Sequence[Any], shape: Any) -> Any:
    """
    Return the array of element indexes of the output of a layer or operation; None if unknown.

    :param call: the operation's name, in lower case and without underscores, empty for a layer;
        and the node with the arguments of the call, None if there is none
    :param arrays: the array of each input tensor; None if it is unknown
    :param shape: the shape of the output tensor
    """
    sizes = open_as_one(shape)
    if sizes is None or not arrays or any(array is None for array in arrays):
        return None
    try:
        elements = _move_elements(layer, call, arrays, sizes)
    except (IndexError, TypeError, ValueError):
        return None  # arguments of a kind that no array takes, such as tensors
    return elements if elements is not None and elements.shape == sizes else None


def _move_elements(
    layer: Any, call: tuple[str, Any], arrays: Sequence[Any], sizes: tuple[int, ...]
) -> Any:
    (symbol, node), entry = call, facts(layer)
    moves = entry.get("moves")
    if moves == "joined" or symbol in _JOINING_OPS:
        axis = getattr(layer, "axis", None)
        axis = int(call_arguments(node)[1].get("axis", -1) if axis is None else axis)
        return np.concatenate(arrays, axis=axis if axis < 0 else axis - 1)
    first = arrays[0]
    if moves == "reshaped" or symbol in _RESHAPING_OPS:
        if getattr(layer, "data_format", None) == "channels_first" and first.ndim > 1:
            first = np.moveaxis(first, 0, -1)
        return first.reshape(sizes)
    if moves == "permuted":
        return np.transpose(first, [axis - 1 for axis in layer.dims])
    if moves == "repeated":
        return np.repeat(first[np.newaxis], layer.n, axis=0)
    if moves == "indexed" or symbol == "getitem":
        return first[np.newaxis][_key(node)][0]
    if moves == "padded":
        return _padded(first, _by_axis(layer, layer.padding, entry["rank"] - 2, first.ndim))
    if moves == "cut":
        return _cropped(first, _by_axis(layer, layer.cropping, entry["rank"] - 2, first.ndim))
    return first  # of another shape where this is not so


def _by_axis(layer: Any, ends: Any, dimensions: int, rank: int) -> list[tuple[int, int]]:
    """
    Return the sizes that a layer adds to, or removes from, both ends of each axis.

    :param ends: its argument, for the dimensions without those of batch and channels
    """
    pairs = [tuple(ends)] if dimensions == 1 else [tuple(pair) for pair in ends]
    is_first = getattr(layer, "data_format", None) == "channels_first"
    before, after = [(0, 0)] * is_first, [(0, 0)] * (rank - dimensions - is_first)
    return [*before, *((int(low), int(high)) for low, high in pairs), *after]


def _padded(array: Any, ends: Sequence[tuple[int, int]]) -> Any:
    return np.pad(array, ends, constant_values=NOTHING)


def _cropped(array: Any, ends: Sequence[tuple[int, int]]) -> Any:
    return array[tuple(slice(low, size - high) for (low, high), size in zip(ends, array.shape))]


def _key(node: Any) -> tuple[Any, ...]:
    """
    Return the index of an indexing operation; Keras 2 stores slices as dicts.

    :raises TypeError: for an index of the batch, or one that is not a constant.
    """
    values, named = call_arguments(node)
    key = named.get("slice_spec", named.get("key", values[1] if len(values) > 1 else None))
    parts = list(key) if isinstance(key, (list, tuple)) else [key]
    index = tuple(
        slice(part.get("start"), part.get("stop"), part.get("step"))
        if isinstance(part, dict)
        else part
        for part in parts
    )
    if index[0] not in (slice(None), Ellipsis) or not all(
        part is None or part is Ellipsis or isinstance(part, (int, slice)) for part in index
    ):
        raise TypeError("an index that is not the same for all rows")
    return index
