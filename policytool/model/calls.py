"""
The arguments of the calls of layers in a functional model, independent of the config format.

Keras 1, 2 and tf_keras write each call as a node: the structure of its first argument, with
``[layer, call, output, kwargs]`` for a tensor and ``["_CONSTANT_VALUE", -1, value, kwargs]`` for
other values, and all further arguments by name (``Node.serialize`` in keras/engine/node.py). In
keyword arguments, a tensor is ``[layer, call, output]``.

Keras 3 writes ``args`` and ``kwargs``, with tensors as ``__keras_tensor__``
(keras/src/models/functional.py, ``serialize_node``, and keras/src/saving/serialization_lib.py). The
config of a tensor has its shape and dtype too.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias, TypeGuard

from msgspec import Struct, field

from policytool.releases import keras_objects
from policytool.releases.keras_objects import snake_case
from policytool.releases.layer_classes import public_class_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policytool.support.text.jsontext import Json

Argument: TypeAlias = (
    "bool | int | float | str | list[Argument] | tuple[Argument, ...] | dict[str, Argument] | "
    "Reference | Constant | Slice | Dtype | None"
)
"""
An argument of a call: JSON that may contain tensors, constants and slices. Tuples and lists are
different values.
"""

CONSTANT: Final = "_CONSTANT_VALUE"
"""The layer name of an argument that is not a tensor, in Keras 2 configs."""

_KEYED: Final = 4
"""The number of items of a Keras 2 tensor with keyword arguments."""

TENSOR: Final = "__keras_tensor__"
_ARRAYS: Final = frozenset({"__tensor__", "__numpy__"})
SLICE: Final = "__slice__"
_HISTORY: Final = 3
"""The number of items of a reference: layer, call, output."""

UNKNOWN_SHAPE: Final[list[Json]] = [None]
"""The shape of a tensor if the file does not store its shape."""


class Reference(Struct, frozen=True, kw_only=True):
    """An output of a call of a layer, in the network that contains the reference."""

    layer: str
    call: int = 0
    """The number of the layer's call in this network, counted from 0 even for nested models."""

    output: int = 0


class Constant(Struct, frozen=True, kw_only=True):
    """A tensor or an array whose values are in the config."""

    value: Argument
    """Nested lists of numbers, or a number."""

    dtype: str | None = None
    """A Keras dtype; None if the file does not store it, as in Keras 2."""

    shape: tuple[int | None, ...] | None = None


class Slice(Struct, frozen=True, kw_only=True):
    """``start:stop:step`` of an index; a separate flag marks an ``Ellipsis``."""

    start: Argument = None
    stop: Argument = None
    step: Argument = None
    ellipsis: bool = False


class Dtype(Struct, frozen=True, kw_only=True):
    """A dtype as an argument of an op, with the name in Keras."""

    name: str


class Call(Struct, frozen=True, kw_only=True):
    """A call of a layer, with all arguments that are not defaults."""

    args: tuple[Argument, ...]
    kwargs: Mapping[str, Argument] = field(default_factory=lambda: MappingProxyType({}))


class CalledLayer(Struct, frozen=True, kw_only=True):
    """A layer or operation in the list of a model's layers."""

    position: int
    """The position in the list."""

    name: str
    entry: dict[str, Json]
    """The object that serializes it."""

    calls: tuple[Call, ...]
    """In the order of the config."""


class ModelCalls(Struct, frozen=True, kw_only=True):
    """All calls of a functional model's layers."""

    layers: tuple[CalledLayer, ...]
    """In the order of the config."""

    inputs: Argument
    """References in the structure of the model's inputs."""

    outputs: Argument
    keras3: bool
    """Whether calls are counted as in Keras 3; if not, as in Keras 2."""


def model_calls(config: Mapping[str, Json], *, keras3: bool) -> ModelCalls:
    """
    Return the calls that a functional model's config has.

    :param keras3: whether Keras 3 wrote a config that has no calls
    """
    entries = list(layer_entries(config))
    nodes = [keras_objects.stored_calls(entry) for _, entry in entries]
    keras3 = any(_is_of_keras3(node) for listed in nodes for node in listed) or (
        keras3 and not any(nodes)
    )
    names = frozenset(layer_name(entry) for _, entry in entries)
    inputs, outputs = (
        _ends_of_keras3(ends) if keras3 else _alone(_ends_of_keras2(ends, names))
        for ends in (config.get("input_layers"), config.get("output_layers"))
    )
    return ModelCalls(
        layers=tuple(
            CalledLayer(
                position=position,
                name=layer_name(entry),
                entry=entry,
                calls=tuple(
                    _read_call(node, names, str(keras_objects.class_of(entry))) for node in listed
                ),
            )
            for (position, entry), listed in zip(entries, nodes, strict=True)
        ),
        inputs=inputs,
        outputs=outputs,
        keras3=keras3,
    )


def layer_entries(config: Mapping[str, Json]) -> Iterator[tuple[int, dict[str, Json]]]:
    """Yield the objects in the list of a model's layers, with their positions in it."""
    for position, entry in enumerate(keras_objects.layer_list(config)):
        if isinstance(entry, dict) and keras_objects.class_of(entry) is not None:
            yield position, entry


def layer_name(entry: Mapping[str, Json]) -> str:
    """
    Return the name of a layer. If the file has none, as for a Sequential of Keras 1, return the
    name that Keras would generate.
    """
    config = entry.get("config")
    for holder in (entry, config):  # only the entry has the name of an op layer
        if isinstance(holder, dict) and isinstance(holder.get("name"), str) and holder["name"]:
            return str(holder["name"])
    return snake_case(public_class_name(str(keras_objects.class_of(entry))).rpartition(">")[2])


def call_tensors(call: Call) -> Iterator[Reference]:
    """Yield the input tensors of a call: positional arguments, then keywords in stored order."""
    for argument in (*call.args, *call.kwargs.values()):
        yield from tensors(argument)


def tensors(argument: Argument) -> Iterator[Reference]:
    """
    Yield the tensors in an argument in the order of ``nest.flatten`` and of ``tree.flatten`` in
    Keras 3: the values of dicts are sorted by key.
    """
    if isinstance(argument, Reference):
        yield argument
    elif isinstance(argument, list | tuple):
        for item in argument:
            yield from tensors(item)
    elif isinstance(argument, dict):
        for key in sorted(argument):
            yield from tensors(argument[key])
    elif isinstance(argument, Slice):
        for item in (argument.start, argument.stop, argument.step):
            yield from tensors(item)


def _alone(ends: Argument) -> Argument:
    """
    Return a single tensor without its list: Keras 2 writes a list, although the input or output of
    the model is not a list.
    """
    return (
        ends[0]
        if isinstance(ends, list) and len(ends) == 1 and isinstance(ends[0], Reference)
        else ends
    )


def _is_of_keras3(node: Json) -> TypeGuard[dict[str, Json]]:
    """Return whether an item of ``inbound_nodes`` has the form of Keras 3."""
    return isinstance(node, dict) and "args" in node


def _read_call(node: Json, names: frozenset[str], class_name: str) -> Call:
    """
    Return the call in an item of ``inbound_nodes``.

    The ellipsis in a ``GetItem`` index of Keras 3 is replaced by a slice for each of its axes, if
    the shape of the tensor is known, because archives of Keras 2 cannot represent an ellipsis.

    :param names: the layers of the model
    :param class_name: the class of the layer that is called
    """
    if not _is_of_keras3(node):
        return _call_of_keras2(node, names)
    call = _call_of_keras3(node)
    return _without_ellipsis(call, node) if class_name == "GetItem" else call


def _call_of_keras2(node: Json, names: frozenset[str]) -> Call:
    kwargs: dict[str, Argument] = {}
    first = _first(node, names, kwargs)
    if isinstance(first, list) and len(first) == 1 and isinstance(first[0], Reference | Constant):
        first = first[0]  # a single tensor is not in a list
    return Call(args=(first,), kwargs=kwargs)


def _first(value: Json, names: frozenset[str], kwargs: dict[str, Argument]) -> Argument:
    """Return the first argument; add the keyword arguments after its tensors to ``kwargs``."""
    if isinstance(value, list):
        if (
            _HISTORY <= len(value) <= _KEYED
            and isinstance(value[0], str)
            and isinstance(value[1], int)
        ):
            if len(value) == _KEYED and isinstance(value[3], dict):
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
    """Return an argument after the first one."""
    if isinstance(value, list):
        if (
            len(value) == _HISTORY
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
    """Return a JSON value as an argument of a call."""
    return (
        [_plain(item) for item in value]
        if isinstance(value, list)
        else {k: _plain(v) for k, v in value.items()}
        if isinstance(value, dict)
        else value
    )


def _ends_of_keras2(value: Json, names: frozenset[str]) -> Argument:
    """
    Return the inputs or outputs of a model. For a list of a single tensor, return the tensor.
    """
    if isinstance(value, list):
        if (
            len(value) == _HISTORY
            and isinstance(value[0], str)
            and value[0] in names
            and isinstance(value[1], int)
        ):
            return Reference(
                layer=value[0], call=value[1], output=value[2] if isinstance(value[2], int) else 0
            )
        return [_ends_of_keras2(item, names) for item in value]
    if isinstance(value, dict):
        if keras_objects.class_of(value) == keras_objects.TUPLE:
            return _ends_of_keras2(value.get("items"), names)
        return {key: _ends_of_keras2(item, names) for key, item in value.items()}
    return value


def _call_of_keras3(node: dict[str, Json]) -> Call:
    args, kwargs = node.get("args"), node.get("kwargs")
    return Call(
        args=tuple(_argument(item) for item in args) if isinstance(args, list) else (),
        kwargs={key: _argument(item) for key, item in kwargs.items()}
        if isinstance(kwargs, dict)
        else {},
    )


def _without_ellipsis(call: Call, node: dict[str, Json]) -> Call:
    """
    Return a call of ``GetItem`` whose key has a slice for each axis of an ellipsis, instead of the
    ellipsis. If the number of axes is unknown, return the call unchanged.
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
        return call  # an array of booleans may index several axes
    whole: list[Argument] = [Slice()] * (axes - len(counted) + 1)
    return Call(args=(tensor, [*items[: marks[0]], *whole, *items[marks[0] + 1 :]]))


def _axes(node: dict[str, Json]) -> int | None:
    """Return the number of axes of the first tensor of a call; None if it is unknown."""
    args = node.get("args")
    first = args[0] if isinstance(args, list) and args else None
    shape = keras_objects.arguments_of(first).get("shape")
    return len(shape) if isinstance(shape, list) and shape != UNKNOWN_SHAPE else None


def _argument(value: Json) -> Argument:
    """
    Return an argument of a Keras 3 call: a tensor, a special value, a collection or a plain value.
    """
    if isinstance(value, list):
        return [_argument(item) for item in value]
    if not isinstance(value, dict):
        return value
    class_name, config = keras_objects.class_of(value), value.get("config")
    if class_name == keras_objects.ELLIPSIS:
        return Slice(ellipsis=True)
    if class_name is not None and isinstance(config, dict):
        history = config.get("keras_history")
        if class_name == TENSOR and isinstance(history, list) and len(history) == _HISTORY:
            return _reference(history)
        if class_name in _ARRAYS:
            dtype = config.get("dtype")
            return Constant(
                value=_argument(config.get("value")),
                dtype=dtype if isinstance(dtype, str) else None,
            )
        if class_name == SLICE:
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


def _ends_of_keras3(value: Json) -> Argument:
    """Return the inputs or outputs of a Keras 3 model."""
    if isinstance(value, list):
        if (
            len(value) == _HISTORY
            and isinstance(value[0], str)
            and isinstance(value[1], int)
            and isinstance(value[2], int)
        ):
            return _reference(value)
        return [_ends_of_keras3(item) for item in value]
    if isinstance(value, dict):
        return {key: _ends_of_keras3(item) for key, item in value.items()}
    return value
