"""
Writes the graph of a functional model for Keras 3, in the form that
:mod:`policytool.model.calls` describes.

Keras 3.0 to 3.15 do not use the shape and dtype of a tensor when they read a graph; those that a
file of Keras 2 does not contain are written as unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from policytool.migration.convert._numbering import first_outputs_keras3
from policytool.model.calls import (
    SLICE,
    TENSOR,
    UNKNOWN_SHAPE,
    Constant,
    Dtype,
    Reference,
    Slice,
)
from policytool.releases import keras_objects

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.migration.convert.architecture import Network, Unit
    from policytool.model.calls import Argument
    from policytool.support.text.jsontext import Json


def keras3_nodes(unit: Unit) -> list[Json]:
    """Return the calls of a unit as ``inbound_nodes``."""
    return [
        {
            "args": [_keras3_argument(item) for item in call.args],
            "kwargs": {key: _keras3_argument(item) for key, item in call.kwargs.items()},
        }
        for call in unit.calls
    ]


def _keras3_argument(argument: Argument) -> Json:
    if isinstance(argument, Reference):
        history: list[Json] = [argument.layer, argument.call, argument.output]
        return keras_objects.short(
            TENSOR, {"shape": list(UNKNOWN_SHAPE), "dtype": "float32", "keras_history": history}
        )
    if isinstance(argument, list):
        return [_keras3_argument(item) for item in argument]
    if isinstance(argument, tuple):
        return keras_objects.special(
            keras_objects.TUPLE, items=[_keras3_argument(item) for item in argument]
        )
    if isinstance(argument, dict):
        return {key: _keras3_argument(item) for key, item in argument.items()}
    if isinstance(argument, Constant):
        return keras_objects.short(
            "__numpy__",
            {"value": _keras3_argument(argument.value), "dtype": argument.dtype or "float32"},
        )
    if isinstance(argument, Dtype):
        return argument.name
    if isinstance(argument, Slice):
        if argument.ellipsis:
            return keras_objects.short(keras_objects.ELLIPSIS, {})
        bounds = {"start": argument.start, "stop": argument.stop, "step": argument.step}
        return keras_objects.short(
            SLICE, {key: _keras3_argument(item) for key, item in bounds.items()}
        )
    return argument


def keras3_ends(network: Network, argument: Argument, *, flat: bool, counted: bool) -> Json:
    """
    Return a model's inputs or outputs as ``input_layers`` and ``output_layers``.

    :param flat: whether one tensor stands alone, as Keras 3.11 and later write it and Keras 3.6 is
        the first to read it; else in a list
    :param counted: whether the calls of nested functional models are counted from 1
    """
    offsets = first_outputs_keras3(network) if counted else {}
    written = _keras3_ends(argument, offsets)
    return [written] if isinstance(argument, Reference) and not flat else written


def _keras3_ends(argument: Argument, offsets: Mapping[str, int]) -> Json:
    if isinstance(argument, Reference):
        return [argument.layer, argument.call + offsets.get(argument.layer, 0), argument.output]
    if isinstance(argument, list | tuple):
        return [_keras3_ends(item, offsets) for item in argument]
    if isinstance(argument, dict):
        return {key: _keras3_ends(item, offsets) for key, item in argument.items()}
    raise TypeError(type(argument).__name__)
