"""
The graph of a functional model as Keras 3 writes it: each call with its ``args`` and ``kwargs``,
tensors as ``__keras_tensor__``.

keras/src/models/functional.py (``serialize_node``) and keras/src/saving/serialization_lib.py. A
tensor's shape and dtype stand beside its history and are not used where the graph is read (Keras
3.0 to 3.15); what a file of Keras 2 does not hold is written as unknown. Here the shape tells which
axes an ellipsis stands for: no archive of Keras 2 can hold one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.migration.convert._numbering import first_outputs_keras3, from_keras3
from policytool.migration.convert.architecture import (
    Call,
    Constant,
    Dtype,
    Network,
    Reference,
    Slice,
    Unit,
)
from policytool.releases import keras_objects

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policytool.migration.convert.architecture import Argument
    from policytool.support.text.jsontext import Json

_TENSOR: Final = "__keras_tensor__"
_ARRAYS: Final = frozenset({"__tensor__", "__numpy__"})
_SLICE: Final = "__slice__"

_GET_ITEM: Final = "GetItem"
_HISTORY: Final = 3
_UNKNOWN: Final[list[Json]] = [None]
"""The shape of a tensor that a file does not tell."""


def decode(
    units: Sequence[Unit], nodes: Sequence[Sequence[Json]], inputs: Json, outputs: Json
) -> Network:
    """Return the network of units, whose calls ``nodes`` has in the same order."""
    called = tuple(
        replace(
            unit,
            calls=tuple(
                _without_ellipsis(_call(node), node)
                if unit.class_name == _GET_ITEM
                else _call(node)
                for node in found
            ),
        )
        for unit, found in zip(units, nodes, strict=True)
    )
    return from_keras3(Network(units=called, inputs=_ends(inputs), outputs=_ends(outputs)))


def _call(node: Json) -> Call:
    args = node.get("args") if isinstance(node, dict) else None
    kwargs = node.get("kwargs") if isinstance(node, dict) else None
    return Call(
        args=tuple(_argument(item) for item in args) if isinstance(args, list) else (),
        kwargs={key: _argument(item) for key, item in kwargs.items()}
        if isinstance(kwargs, dict)
        else {},
    )


def _without_ellipsis(call: Call, node: Json) -> Call:
    """
    Return a call of ``GetItem`` whose key has a slice for each axis that an ellipsis stands for; as
    it is where the file does not tell how many there are.
    """
    arguments = (*call.args, *call.kwargs.values())
    axes = _axes(node)
    if len(arguments) != 2 or axes is None:  # noqa: PLR2004  # a tensor and a key
        return call
    tensor, key = arguments
    items = list(key) if isinstance(key, list | tuple) else [key]
    marks = [number for number, item in enumerate(items) if item == Slice(ellipsis=True)]
    counted = [item for item in items if item is not None]
    if len(marks) != 1 or len(counted) - 1 > axes:
        return call
    if not all(isinstance(item, int | Slice) for item in counted):
        return call  # an array of booleans takes several axes
    whole: list[Argument] = [Slice()] * (axes - len(counted) + 1)
    return Call(args=(tensor, [*items[: marks[0]], *whole, *items[marks[0] + 1 :]]))


def _axes(node: Json) -> int | None:
    """Return how many axes the first tensor of a call has; None where that is unknown."""
    args = node.get("args") if isinstance(node, dict) else None
    first = args[0] if isinstance(args, list) and args else None
    config = first.get("config") if isinstance(first, dict) else None
    shape = config.get("shape") if isinstance(config, dict) else None
    return len(shape) if isinstance(shape, list) and shape != _UNKNOWN else None


def _argument(value: Json) -> Argument:
    if isinstance(value, list):
        return [_argument(item) for item in value]
    if not isinstance(value, dict):
        return value
    class_name, config = keras_objects.class_of(value), value.get("config")
    if class_name == keras_objects.ELLIPSIS:
        return Slice(ellipsis=True)
    if class_name is not None and isinstance(config, dict):
        history = config.get("keras_history")
        if class_name == _TENSOR and isinstance(history, list) and len(history) == _HISTORY:
            return _reference(history)
        if class_name in _ARRAYS:
            dtype = config.get("dtype")
            return Constant(
                value=_argument(config.get("value")),
                dtype=dtype if isinstance(dtype, str) else None,
            )
        if class_name == _SLICE:
            return Slice(
                start=_argument(config.get("start")),
                stop=_argument(config.get("stop")),
                step=_argument(config.get("step")),
            )
    if class_name == keras_objects.TUPLE and isinstance(value.get("items"), list):
        return tuple(_argument(item) for item in value["items"] or ())  # type: ignore[union-attr]
    return {key: _argument(item) for key, item in value.items()}


def _reference(history: list[Json]) -> Reference:
    layer, call, output = history
    return Reference(
        layer=str(layer),
        call=call if isinstance(call, int) else 0,
        output=output if isinstance(output, int) else 0,
    )


def _ends(value: Json) -> Argument:
    if isinstance(value, list):
        if (
            len(value) == _HISTORY
            and isinstance(value[0], str)
            and isinstance(value[1], int)
            and isinstance(value[2], int)
        ):
            return _reference(value)
        return [_ends(item) for item in value]
    if isinstance(value, dict):
        return {key: _ends(item) for key, item in value.items()}
    return value


def nodes(unit: Unit) -> list[Json]:
    """Return the calls of a unit as ``inbound_nodes``."""
    return [
        {
            "args": [_encode(item) for item in call.args],
            "kwargs": {key: _encode(item) for key, item in call.kwargs.items()},
        }
        for call in unit.calls
    ]


def _encode(argument: Argument) -> Json:
    if isinstance(argument, Reference):
        history: list[Json] = [argument.layer, argument.call, argument.output]
        return keras_objects.short(
            _TENSOR, {"shape": list(_UNKNOWN), "dtype": "float32", "keras_history": history}
        )
    if isinstance(argument, list):
        return [_encode(item) for item in argument]
    if isinstance(argument, tuple):
        return keras_objects.special(
            keras_objects.TUPLE, items=[_encode(item) for item in argument]
        )
    if isinstance(argument, dict):
        return {key: _encode(item) for key, item in argument.items()}
    if isinstance(argument, Constant):
        return keras_objects.short(
            "__numpy__", {"value": _encode(argument.value), "dtype": argument.dtype or "float32"}
        )
    if isinstance(argument, Dtype):
        return argument.name
    if isinstance(argument, Slice):
        if argument.ellipsis:
            return keras_objects.short(keras_objects.ELLIPSIS, {})
        bounds = {"start": argument.start, "stop": argument.stop, "step": argument.step}
        return keras_objects.short(_SLICE, {key: _encode(item) for key, item in bounds.items()})
    return argument


def ends(network: Network, argument: Argument, *, flat: bool, counted: bool) -> Json:
    """
    Return a model's inputs or outputs as ``input_layers`` and ``output_layers``.

    :param flat: whether one tensor stands alone, as Keras 3.11 and later write it and Keras 3.6 is
        the first to read it; else in a list
    :param counted: whether the calls of nested functional models are counted from 1
    """
    offsets = first_outputs_keras3(network) if counted else {}
    written = _ends_written(argument, offsets)
    return [written] if isinstance(argument, Reference) and not flat else written


def _ends_written(argument: Argument, offsets: Mapping[str, int]) -> Json:
    if isinstance(argument, Reference):
        return [argument.layer, argument.call + offsets.get(argument.layer, 0), argument.output]
    if isinstance(argument, list | tuple):
        return [_ends_written(item, offsets) for item in argument]
    if isinstance(argument, dict):
        return {key: _ends_written(item, offsets) for key, item in argument.items()}
    raise TypeError(type(argument).__name__)
