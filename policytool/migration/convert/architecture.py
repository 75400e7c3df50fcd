"""
A model between two generations: its layers and their calls, independent of the config formats.

All values are frozen. Nested objects in a config (layers, initializers, regularizers, constraints,
policies) are values of this module, under the same keys as in the file; everything else is plain
JSON. The functions visit or change the units of a model, the objects in a config, the tensors in an
argument, and the arguments of calls by name.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property, wraps
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, TypeVarTuple

from msgspec import Struct, structs

from policytool.model.calls import Argument, Call, Reference, Slice, tensors
from policytool.model.flow import BEFORE_CHAIN, CallGraph, chain_graph
from policytool.releases.layer_classes import layer_facts
from policytool.support.steps import spend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from policytool.model.loaded_model import LoadedModel
    from policytool.releases.policy import Policy, PolicyMap


Value: TypeAlias = (
    "bool | int | float | str | list[Value] | dict[str, Value] | Unit | SerializedObject "
    "| Policy | PolicyMap | None"
)
"""A value in a config: JSON, in which serialized objects are decoded."""


Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")


class ObjectKind(StrEnum):
    """
    The kind of an object in a config; the values are those of ``data/layer_arguments.json``, except
    for ``OTHER``.
    """

    INITIALIZER = "initializers"
    REGULARIZER = "regularizers"
    CONSTRAINT = "constraints"
    FUNCTION = "activations"
    """A function that is serialized by its name."""

    OTHER = "objects"
    """Other objects: quantizers, input specifications, custom objects."""


class Role(StrEnum):
    """The role of a unit in its model."""

    LAYER = "layer"
    MODEL = "model"
    OPERATION = "operation"
    """An operation in a Keras 3 graph, which is not a layer."""


class SerializedObject(Struct, frozen=True, kw_only=True):
    """A serialized object that is not a layer."""

    kind: ObjectKind
    class_name: str
    """The class name, without its package."""

    config: Mapping[str, Value] | str | None
    """The config; for a function, its name."""

    registered_name: str | None = None
    """The registered name of a custom class (``package>name``); None for other classes."""

    module: str | None = None
    """The module in the file; None if the file contains none."""


class Recipe(Struct, frozen=True, kw_only=True):
    """
    The steps that create a variable from stored variables with another layout: each is reshaped,
    transposed and reversed, then all are joined along the last axis.
    """

    parts: tuple[str, ...]
    """
    The names of the stored variables, without the name of the layer.

    ``W_i`` is stored as ``lstm_1_W_i:0``: it matches the only variable of the layer whose name
    equals ``W_i`` or ends with ``_W_i``.
    """

    reshape: tuple[int, ...] = ()
    """The shape to which each part is reshaped first, in C order; empty for no change."""

    axes: tuple[int, ...] = ()
    """The axes for ``numpy.transpose``; empty for no change."""

    flip: tuple[int, ...] = ()
    """The axes to reverse, after the transposition by :attr:`axes`."""

    product: float | None = None
    """
    The factor of the matrix product of the second and third part, which is added to the first
    instead of joining the parts; None to join them.
    """

    @property
    def only_renames(self) -> bool:
        """Whether the recipe copies a single stored variable unchanged."""
        return len(self.parts) == 1 and not (self.reshape or self.axes or self.flip)


@dataclass(frozen=True, kw_only=True)
class Network:
    """The graph of a functional model, or the chain of a sequential one."""

    units: tuple[Unit, ...]
    """The units in the order of the file; in a functional model, each with its calls."""

    inputs: Argument = None
    """References in the structure of the model's inputs; None for a chain."""

    outputs: Argument = None

    @property
    def is_chain(self) -> bool:
        """Whether the network belongs to a Sequential."""
        return self.outputs is None

    @cached_property
    def by_name(self) -> Mapping[str, Unit]:
        """The units by name; the first unit if several have the same name."""
        return {unit.name: unit for unit in reversed(self.units)}

    def unit(self, name: str) -> Unit:
        """Return the unit with a name; raise :class:`KeyError` if there is none."""
        return self.by_name[name]


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A layer, a model, or an op of a graph."""

    class_name: str
    """The public name of the class, without its package."""

    name: str
    config: Mapping[str, Value]
    """
    The config without ``name`` (unless it differs from the name in the graph), and, for models,
    without the keys that :attr:`network` represents.

    ``dtype`` is a :class:`~policytool.releases.policy.Policy` or a
    :class:`~policytool.releases.policy.PolicyMap` if it is a policy, and a string if it is the
    tensor dtype of an input layer.
    """

    role: Role = Role.LAYER
    custom: bool = False
    """Whether the class is custom."""

    registered_name: str | None = None
    """
    The registered name of the class (``package>name``, by default the class name); None if the
    class is not registered or the file does not contain the name.
    """

    module: str | None = None
    """The module in the file; None if the file contains none."""

    path: str = ""
    """The path of the layer in the source, used in reports."""

    site: int | None = None
    """
    The index of the source layer that provides the variables; None for a layer that the conversion
    added.
    """

    calls: tuple[Call, ...] = ()
    network: Network | None = None
    build: Mapping[str, Value] | None = None
    """The ``build_config`` of Keras 3; None if the file has none."""

    scales: Mapping[str, tuple[float, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """
    The factors by which the weights are multiplied along the last axis if the user allows it, by
    the name of the variable.
    """

    given: Mapping[str, Value] = field(default_factory=lambda: MappingProxyType({}))
    """
    The values of variables that the source does not contain, as nested lists of numbers, by the
    name of the variable.
    """

    layout: Mapping[str, Recipe] = field(default_factory=lambda: MappingProxyType({}))
    """
    The recipe of each variable, by its name; empty if the variables of the source already have the
    right names and shapes.
    """

    @cached_property
    def inner(self) -> tuple[Unit, ...]:
        """The units in the config, such as the layer of a wrapper."""
        return tuple(_in_value(dict(self.config)))

    def with_config(self, **changes: Value) -> Unit:
        """Return the unit with keys of its config set."""
        return replace(self, config={**self.config, **changes})

    def with_key_renamed(self, before: str, after: str) -> Unit:
        """Return the unit with a key of its config renamed, in the same position."""
        config = {after if key == before else key: value for key, value in self.config.items()}
        return replace(self, config=config)

    def without(self, *keys: str) -> Unit:
        """Return the unit without keys of its config."""
        return replace(
            self, config={key: value for key, value in self.config.items() if key not in keys}
        )


def once_per_network(
    derive: Callable[[Network, *Arguments], Result],
) -> Callable[[Network, *Arguments], Result]:
    """
    Return a function of a network that caches its results in the network.

    Results for nested networks are computed first, so that nested models need no deep recursion.
    """
    place = f"{derive.__module__}.{derive.__qualname__}"

    def results(network: Network) -> dict[tuple[object, ...], Result]:
        # stored like a cached property; copies by `replace` do not have it
        kept: dict[tuple[object, ...], Result] = vars(network).setdefault(place, {})
        return kept

    @wraps(derive)
    def find_or_derive(network: Network, *arguments: *Arguments) -> Result:
        """
        Return the result for a network from its cache, after computing those of nested networks.
        """
        pending = [network] if arguments not in results(network) else []
        while pending:
            nested_networks = [
                unit.network
                for unit in pending[-1].units
                if unit.network is not None and arguments not in results(unit.network)
            ]
            pending += nested_networks
            if not nested_networks:
                last = pending.pop()
                if arguments not in results(last):  # two units may have one network
                    results(last)[arguments] = derive(last, *arguments)
        return results(network)[arguments]

    return find_or_derive


def function_name(value: Value) -> str | None:
    """
    Return the name of an activation that is a Keras function; None for custom functions and for
    layers.
    """
    if (
        isinstance(value, SerializedObject)
        and value.kind is ObjectKind.FUNCTION
        and value.registered_name is None
    ):
        value = value.config if isinstance(value.config, str) else None
    return value if isinstance(value, str) else None


@once_per_network
def call_graph(network: Network) -> CallGraph:
    """Return the calls of a network."""
    return connect_calls(network)


def connect_calls(network: Network, *, by_name: bool = True) -> CallGraph:
    """
    Return the calls of a network.

    :param by_name: as for :func:`policytool.model.flow.inbound`
    """
    if network.is_chain:
        return chain_graph([unit.name for unit in network.units])
    calls = {unit.name: network.unit(unit.name).calls for unit in network.units}
    return CallGraph(calls, network.outputs, by_name=by_name)


def entries(network: Network) -> list[Reference]:
    """Return the tensors in a network that represent its inputs."""
    return [BEFORE_CHAIN] if network.is_chain else list(tensors(network.inputs))


def exits(network: Network) -> list[Reference]:
    """Return the output tensors of a network; empty for a chain without layers."""
    if network.is_chain:
        return [Reference(layer=unit.name) for unit in network.units[-1:]]
    return list(tensors(network.outputs))


def below(unit: Unit) -> Iterator[Unit]:
    """Yield the direct children of a unit: in its network, then in its config."""
    if unit.network is not None:
        yield from unit.network.units
    yield from unit.inner


def walk(unit: Unit) -> Iterator[Unit]:
    """Yield a unit and all its descendants, parents first."""
    spend(1, walk="units of a model")
    yield unit
    for inner in below(unit):
        yield from walk(inner)


def _in_value(value: Value) -> Iterator[Unit]:
    """Yield the units in a value, at any depth, except units in the config of another unit."""
    items: Iterable[Value] = ()
    match value:
        case Unit():
            yield value
        case list():
            items = value
        case dict():
            items = value.values()
        case SerializedObject(config=config) if not isinstance(config, str | None):
            items = config.values()
    for item in items:
        yield from _in_value(item)


def count_calls(unit: Unit) -> int:
    """Return the number of calls of a model and its descendants, repeated for each outer call."""
    return max(len(unit.calls), 1) * (1 + sum(map(count_calls, below(unit))))


def map_units(unit: Unit, change: Callable[[Unit], Unit]) -> Unit:
    """
    Return the unit after changing its descendants and then the unit itself: children first, as
    Keras builds them.
    """
    network = unit.network
    if network is not None:
        units = tuple(map_units(inner, change) for inner in network.units)
        if any(after is not before for after, before in zip(units, network.units, strict=True)):
            network = replace(network, units=units)
    changed = _changed_items(unit.config, change) if unit.inner else {}
    # Most rewrites change few units; copying all other units took a third of the planning time.
    if changed or network is not unit.network:
        unit = replace(unit, network=network, config={**unit.config, **changed})
    return change(unit)


def map_layers(root: Unit, change: Callable[[Unit], Unit]) -> Unit:
    """Return a model with its layers of Keras classes changed, as :func:`map_units` does."""
    return map_units(
        root,
        lambda unit: change(unit) if unit.role is Role.LAYER and not unit.custom else unit,
    )


def map_networks(root: Unit, change: Callable[[Network], Network]) -> Unit:
    """Return a model with its network changed, after those of all nested models."""

    def change_network(unit: Unit) -> Unit:
        network = change(unit.network) if unit.network is not None else None
        return unit if network is unit.network else replace(unit, network=network)

    return map_units(root, change_network)


def _changed_items(
    items: Mapping[str, Value], change: Callable[[Unit], Unit]
) -> Mapping[str, Value]:
    """Return the items that differ after changing the units in them."""
    mapped = {
        key: _mapped_value(value, change)
        for key, value in items.items()
        if isinstance(value, Unit | SerializedObject | list | dict)
    }
    return {key: value for key, value in mapped.items() if value is not items[key]}


def _mapped_value(value: Value, change: Callable[[Unit], Unit]) -> Value:
    """Return the same object if no unit in it changes."""
    match value:
        case Unit():
            return map_units(value, change)
        case list():
            items = [_mapped_value(item, change) for item in value]
            is_unchanged = all(after is before for after, before in zip(items, value, strict=True))
            return value if is_unchanged else items
        case dict():
            changed = _changed_items(value, change)
            return {**value, **changed} if changed else value
        case SerializedObject(config=config) if not isinstance(config, str | None):
            changed = _changed_items(config, change)
            return structs.replace(value, config={**config, **changed}) if changed else value
    return value


def used_calls(network: Network) -> Mapping[str, set[int]]:
    """Return, by layer, the numbers of the calls whose tensors a call or an output uses."""
    used: dict[str, set[int]] = defaultdict(set)
    arguments = (
        argument
        for unit in network.units
        for call in unit.calls
        for argument in (*call.args, *call.kwargs.values())
    )
    for argument in (*arguments, network.outputs):
        for reference in tensors(argument):
            used[reference.layer].add(reference.call)
    return used


def unused_name(name: str, used: set[str]) -> str:
    """Return the name, with underscores added until it is unused, and record it as used."""
    while name in used:
        name = f"{name}_"
    used.add(name)
    return name


def prune(network: Network, may_go: Callable[[Unit], bool]) -> Network:
    """
    Return a network without the units that ``may_go`` accepts, if no kept unit or output uses them.
    """
    while True:
        used = used_calls(network)
        units = tuple(unit for unit in network.units if unit.name in used or not may_go(unit))
        if len(units) == len(network.units):
            return network
        network = replace(network, units=units)


def replace_references(argument: Argument, change: Callable[[Reference], Argument]) -> Argument:
    """Return an argument after changing each tensor reference in it."""
    match argument:
        case Reference():
            return change(argument)
        case list():
            return [replace_references(item, change) for item in argument]
        case tuple():
            return tuple(replace_references(item, change) for item in argument)
        case dict():
            return {key: replace_references(item, change) for key, item in argument.items()}
        case Slice():
            return structs.replace(
                argument,
                start=replace_references(argument.start, change),
                stop=replace_references(argument.stop, change),
                step=replace_references(argument.step, change),
            )
    return argument


def rewire(network: Network, change: Callable[[Reference], Argument]) -> Network:
    """Return a functional network after changing all tensor references in calls and outputs."""
    units = tuple(
        replace(
            unit,
            calls=tuple(
                Call(
                    args=tuple(replace_references(item, change) for item in call.args),
                    kwargs={
                        key: replace_references(item, change) for key, item in call.kwargs.items()
                    },
                )
                for call in unit.calls
            ),
        )
        for unit in network.units
    )
    return replace(network, units=units, outputs=replace_references(network.outputs, change))


STATE: Final = "initial_state"
"""The argument for the initial states of a recurrent layer."""

VALUE: Final = "value"


def is_attention(unit: Unit) -> bool:
    """Return whether a layer is an attention layer whose masks apply to its scores."""
    return layer_facts(unit.class_name).masks_scores and not unit.custom


def argument_names(unit: Unit) -> tuple[str, ...]:
    """Return the names of a layer's call arguments in the order of Keras 3."""
    return layer_facts(None if unit.custom else unit.class_name).call


def named_arguments(unit: Unit, call: Call) -> dict[str, Argument]:
    """Return a call's arguments by name; the first argument has its name in Keras 3."""
    return {**dict(zip(argument_names(unit), call.args, strict=False)), **call.kwargs}


BACKWARD: Final = "backward_layer"
"""The attribute and config key of a Bidirectional's backward layer."""


def backward_twin(unit: Unit, forward: Unit, loaded: LoadedModel) -> Unit | None:
    """
    Return a copy of a Bidirectional's forward layer with the variables of its backward layer; None
    if the file has no variables of the backward layer.
    """
    if unit.site is None or forward.site is None:
        return None
    children = loaded.children[unit.site]
    other = next((child for child in children if loaded.sites[child].attribute == BACKWARD), None)
    if other is None:
        return None
    sites = dict(zip(loaded.below(forward.site), loaded.below(other), strict=False))
    return map_units(
        forward,
        lambda inner_unit: replace(
            inner_unit, site=sites.get(inner_unit.site) if inner_unit.site is not None else None
        ),
    )
