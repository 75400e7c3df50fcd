"""
What the layers of a functional model are called with, whatever release wrote its config.

Keras 1, 2 and tf_keras write each call as a node: the structure of its first argument, with
``[layer, call, output, kwargs]`` for a tensor and ``["_CONSTANT_VALUE", -1, value, kwargs]`` for
anything else, and all further arguments by their names (``Node.serialize`` in
keras/engine/node.py). Within the keyword arguments a tensor is ``[layer, call, output]``.

Keras 3 writes ``args`` and ``kwargs``, with tensors as ``__keras_tensor__``
(keras/src/models/functional.py, ``serialize_node``, and keras/src/saving/serialization_lib.py). The
config of a tensor has its shape and dtype too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias, TypeGuard

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
What a layer is called with: JSON, with tensors, constants and slices in their places; tuples are
told from lists.
"""

CONSTANT: Final = "_CONSTANT_VALUE"
"""What stands for the layer of an argument that is no tensor in configs of Keras 2."""

_KEYED: Final = 4
"""The items of a tensor of Keras 2 with keyword arguments beside it."""

TENSOR: Final = "__keras_tensor__"
_ARRAYS: Final = frozenset({"__tensor__", "__numpy__"})
SLICE: Final = "__slice__"
_GET_ITEM: Final = "GetItem"
_HISTORY: Final = 3
"""The items of a reference: layer, call, output."""

UNKNOWN_SHAPE: Final[list[Json]] = [None]
"""The shape of a tensor that a file does not tell."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """One output of one call of a layer, in the network that contains the reference."""

    layer: str
    call: int = 0
    """Which of the layer's calls in this network, counted from 0 for nested models too."""

    output: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Constant:
    """A tensor or an array whose values are in the config."""

    value: Argument
    """Nested lists of numbers, or one."""

    dtype: str | None = None
    """A Keras dtype; None where the file leaves it open, as Keras 2 does."""

    shape: tuple[int | None, ...] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Slice:
    """``start:stop:step`` of an index; ``Ellipsis`` has a flag of its own."""

    start: Argument = None
    stop: Argument = None
    step: Argument = None
    ellipsis: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Dtype:
    """A dtype as an argument of an op, by Keras' name."""

    name: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One call of a layer, with all arguments that are no defaults."""

    args: tuple[Argument, ...]
    kwargs: Mapping[str, Argument] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, kw_only=True, slots=True)
class CalledLayer:
    """One layer or operation in the list of a model's layers."""

    position: int
    """Its position in the list."""

    name: str
    entry: dict[str, Json]
    """The object that serializes it."""

    calls: tuple[Call, ...]
    """In the order of the config."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelCalls:
    """All calls of a functional model's layers."""

    layers: tuple[CalledLayer, ...]
    """In the order of the config."""

    inputs: Argument
    """References in the structure that the model takes."""

    outputs: Argument
    keras3: bool
    """Whether they are counted as Keras 3 counts them, and not as Keras 2 does."""


def model_calls(config: Mapping[str, Json], *, keras3: bool) -> ModelCalls:
    """
    Return the calls that a functional model's config has.

    :param keras3: whether Keras 3 wrote a config that has no calls
    """
    entries = list(layer_entries(config))
    nodes = [_as_list(entry.get("inbound_nodes")) for _, entry in entries]
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
    Return the name of a layer; where the file has none (a Sequential of Keras 1), the one that
    Keras would give.
    """
    config = entry.get("config")
    for holder in (entry, config):  # an op layer's own name stands only in the entry
        if isinstance(holder, dict) and isinstance(holder.get("name"), str) and holder["name"]:
            return str(holder["name"])
    return snake_case(public_class_name(str(keras_objects.class_of(entry))).rpartition(">")[2])


def _as_list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def call_tensors(call: Call) -> Iterator[Reference]:
    """Yield the tensors that a call takes: positional arguments, then the others as written."""
    for argument in (*call.args, *call.kwargs.values()):
        yield from tensors(argument)


def tensors(argument: Argument) -> Iterator[Reference]:
    """
    Yield the tensors in an argument in the order in which ``nest.flatten``, and Keras 3's
    ``tree.flatten``, find them: dicts by their keys.
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
    Return one tensor bare: Keras 2 writes it in a list, and the model takes or gives it without
    one.
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
    Return one call, as an item of ``inbound_nodes`` has it.

    An index of ``GetItem`` that Keras 3 wrote has a slice for each axis that its ellipsis stands
    for, as far as the shape of the tensor tells: no archive of Keras 2 can hold an ellipsis.

    :param names: the layers of the model
    :param class_name: the class of the layer that is called
    """
    if not _is_of_keras3(node):
        return _call_of_keras2(node, names)
    call = _call_of_keras3(node)
    return _without_ellipsis(call, node) if class_name == _GET_ITEM else call


def _call_of_keras2(node: Json, names: frozenset[str]) -> Call:
    kwargs: dict[str, Argument] = {}
    first = _first(node, names, kwargs)
    if isinstance(first, list) and len(first) == 1 and isinstance(first[0], Reference | Constant):
        first = first[0]  # a layer gets its one tensor bare
    return Call(args=(first,), kwargs=kwargs)


def _first(value: Json, names: frozenset[str], kwargs: dict[str, Argument]) -> Argument:
    """Return the first argument, and add the others, which each of its tensors is followed by."""
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
    """Return a further argument."""
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
    return (
        [_plain(item) for item in value]
        if isinstance(value, list)
        else {k: _plain(v) for k, v in value.items()}
        if isinstance(value, dict)
        else value
    )


def _ends_of_keras2(value: Json, names: frozenset[str]) -> Argument:
    """
    Return a model's inputs or outputs; one that stands alone in a list is what the model takes or
    gives.
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


def _axes(node: dict[str, Json]) -> int | None:
    """Return how many axes the first tensor of a call has; None where that is unknown."""
    args = node.get("args")
    first = args[0] if isinstance(args, list) and args else None
    shape = keras_objects.arguments_of(first).get("shape")
    return len(shape) if isinstance(shape, list) and shape != UNKNOWN_SHAPE else None


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
