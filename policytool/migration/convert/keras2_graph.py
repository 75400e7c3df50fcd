"""
The graph of a functional model as Keras 1, 2 and tf_keras write it.

Each call is a node: the structure of its first argument, with ``[layer, call, output, kwargs]`` for
a tensor and ``["_CONSTANT_VALUE", -1, value, kwargs]`` for anything else, and all further arguments
by their names (``Node.serialize`` in keras/engine/node.py). Within the keyword arguments a tensor
is ``[layer, call, output]``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.migration.convert._numbering import first_calls_keras2, from_keras2
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

CONSTANT: Final = "_CONSTANT_VALUE"
KEEPS_STRUCTURE: Final = frozenset(
    {"TFOpLambda", "SlicingOpLambda", "ClassMethod", "InstanceMethod", "InstanceProperty"}
)
"""
Layers of ops, whose single tensor stands in no list (``_preserve_input_structure_in_config``).
"""

OP_LAYERS: Final = KEEPS_STRUCTURE | {"TensorFlowOpLayer"}
"""Keras' own layers around single ops, which no release exports under ``keras.layers``."""


_TENSOR: Final = 3
_FIRST: Final = 4


def decode(
    units: Sequence[Unit], nodes: Sequence[Sequence[Json]], inputs: Json, outputs: Json
) -> Network:
    """Return the network of units, whose calls ``nodes`` has in the same order."""
    names = frozenset(unit.name for unit in units)
    called = tuple(
        replace(unit, calls=tuple(_call(node, names) for node in found))
        for unit, found in zip(units, nodes, strict=True)
    )
    return from_keras2(
        Network(
            units=called, inputs=_alone(_ends(inputs, names)), outputs=_alone(_ends(outputs, names))
        )
    )


def _alone(ends: Argument) -> Argument:
    """
    Return one tensor bare: Keras 2 writes it in a list, and the model takes or gives it without
    one.
    """
    return (
        ends[0]
        if isinstance(ends, list) and len(ends) == 1 and isinstance(ends[0], Reference)
        else ends
    )


def _call(node: Json, names: frozenset[str]) -> Call:
    kwargs: dict[str, Argument] = {}
    first = _first(node, names, kwargs)
    if isinstance(first, list) and len(first) == 1 and isinstance(first[0], Reference | Constant):
        first = first[0]  # a layer gets its one tensor bare
    return Call(args=(first,), kwargs=kwargs)


def _first(value: Json, names: frozenset[str], kwargs: dict[str, Argument]) -> Argument:
    """Return the first argument, and gather the others, which stand beside each tensor of it."""
    if isinstance(value, list):
        if (
            _TENSOR <= len(value) <= _FIRST
            and isinstance(value[0], str)
            and isinstance(value[1], int)
        ):
            if len(value) == _FIRST and isinstance(value[3], dict):
                kwargs.update({key: _within(item, names) for key, item in value[3].items()})
            if value[0] == CONSTANT:
                return Constant(value=_plain(value[2]))
            if value[0] in names and isinstance(value[2], int):
                return Reference(layer=value[0], call=value[1], output=value[2])
        return [_first(item, names, kwargs) for item in value]
    if isinstance(value, dict):
        if keras_objects.class_of(value) == keras_objects.TUPLE:
            return _first(value.get("items"), names, kwargs)
        return {key: _first(item, names, kwargs) for key, item in value.items()}
    return value


def _within(value: Json, names: frozenset[str]) -> Argument:
    """Return a further argument."""
    if isinstance(value, list):
        if (
            len(value) == _TENSOR
            and isinstance(value[0], str)
            and value[0] in names
            and isinstance(value[1], int)
            and isinstance(value[2], int)
        ):
            return Reference(layer=value[0], call=value[1], output=value[2])
        return [_within(item, names) for item in value]
    if isinstance(value, dict):
        class_name = keras_objects.class_of(value)
        if class_name == keras_objects.TUPLE:
            return _within(value.get("items"), names)
        if class_name == keras_objects.ELLIPSIS:
            return Slice(ellipsis=True)
        return {key: _within(item, names) for key, item in value.items()}
    return value


def _plain(value: Json) -> Argument:
    return (
        [_plain(item) for item in value]
        if isinstance(value, list)
        else {k: _plain(v) for k, v in value.items()}
        if isinstance(value, dict)
        else value
    )


def _ends(value: Json, names: frozenset[str]) -> Argument:
    """
    Return a model's inputs or outputs; one that stands alone in a list is what the model takes or
    gives.
    """
    if isinstance(value, list):
        if (
            len(value) == _TENSOR
            and isinstance(value[0], str)
            and value[0] in names
            and isinstance(value[1], int)
        ):
            return Reference(
                layer=value[0], call=value[1], output=value[2] if isinstance(value[2], int) else 0
            )
        return [_ends(item, names) for item in value]
    if isinstance(value, dict):
        if keras_objects.class_of(value) == keras_objects.TUPLE:
            return _ends(value.get("items"), names)
        return {key: _ends(item, names) for key, item in value.items()}
    return value


class UnwritableCallError(ValueError):
    """A call that this graph has no words for."""


def has_ellipsis(unit: Unit) -> bool:
    """
    Return whether a slicing layer is called with an ellipsis.

    HDF5 has an object for it; archives have none, and their reader leaves that object as it is.
    """
    specs = [call.kwargs.get("slice_spec") for call in unit.calls]
    items = [item for spec in specs for item in (spec if isinstance(spec, list) else [spec])]
    return any(isinstance(item, Slice) and item.ellipsis for item in items)


def nodes(unit: Unit, offsets: Mapping[str, int]) -> list[Json]:
    """
    Return the calls of a unit as ``inbound_nodes``.

    :param offsets: the number of each unit's first call in the network
    :raises UnwritableCallError: for positional arguments behind the first, and for values that are
        no JSON.
    """
    found: list[Json] = []
    for call in unit.calls:
        if len(call.args) != 1:
            raise UnwritableCallError(f"{len(call.args)} positional arguments")
        kwargs: dict[str, Json] = {key: _encode(item, offsets) for key, item in call.kwargs.items()}
        first = _written_first(call.args[0], kwargs, offsets)
        alone = isinstance(call.args[0], Reference | Constant)
        found.append([first] if alone and unit.class_name not in KEEPS_STRUCTURE else first)
    return found


def _written_first(argument: Argument, kwargs: dict[str, Json], offsets: Mapping[str, int]) -> Json:
    if isinstance(argument, Reference):
        return [
            argument.layer,
            argument.call + offsets.get(argument.layer, 0),
            argument.output,
            kwargs,
        ]
    if isinstance(argument, list | tuple):
        return [_written_first(item, kwargs, offsets) for item in argument]
    if isinstance(argument, dict):
        return {key: _written_first(item, kwargs, offsets) for key, item in argument.items()}
    return [CONSTANT, -1, _encode(argument, offsets), kwargs]


def _encode(argument: Argument, offsets: Mapping[str, int]) -> Json:
    if isinstance(argument, Reference):
        return [argument.layer, argument.call + offsets.get(argument.layer, 0), argument.output]
    if isinstance(argument, list | tuple):
        return [_encode(item, offsets) for item in argument]
    if isinstance(argument, dict):
        return {key: _encode(item, offsets) for key, item in argument.items()}
    if isinstance(argument, Constant):
        return _encode(argument.value, offsets)
    if isinstance(argument, Dtype):
        return argument.name
    if isinstance(argument, Slice):
        if argument.ellipsis:
            return keras_objects.special(keras_objects.ELLIPSIS)
        raise UnwritableCallError("a slice")
    if argument is None or isinstance(argument, bool | int | float | str):
        return argument
    raise UnwritableCallError(
        "an object instead of a value"
    )  # of a config that is not what any release writes


def ends(network: Network, argument: Argument) -> Json:
    """
    Return a model's inputs or outputs as ``input_layers`` and ``output_layers``; one tensor stands
    in a list, which every release reads.
    """
    written = _ends_written(argument, first_calls_keras2(network))
    return [written] if isinstance(argument, Reference) else written


def _ends_written(argument: Argument, offsets: Mapping[str, int]) -> Json:
    if isinstance(argument, list | tuple):
        return [_ends_written(item, offsets) for item in argument]
    if isinstance(argument, dict):
        return {key: _ends_written(item, offsets) for key, item in argument.items()}
    return _encode(argument, offsets)
