"""
A model between two generations: its layers and what they are called with, free of how either of
them writes it.

Everything is a frozen value. A config's nested objects (layers, initialisers, regularisers,
constraints, policies) stand in it as values of this module, at the keys where the file has them;
all else in it is plain JSON. The functions visit, or change, the units of a model, the objects in a
config, the tensors in an argument, and the arguments of calls by their names.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property, wraps
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, TypeVarTuple

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
"""What stands in a config: JSON, with objects in their places."""


Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")


class ObjectKind(StrEnum):
    """
    What an object in a config is; the words of ``data/layer_arguments.json`` where it has them.
    """

    INITIALIZER = "initializers"
    REGULARIZER = "regularizers"
    CONSTRAINT = "constraints"
    FUNCTION = "activations"
    """A function that is serialised by its name."""

    OTHER = "objects"
    """Anything else: quantisers, input specifications, objects of someone else's."""


class Role(StrEnum):
    """What a unit is in its model."""

    LAYER = "layer"
    MODEL = "model"
    OPERATION = "operation"
    """An op of Keras 3's graphs, which is no layer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SerializedObject:
    """A serialised object that is not a layer."""

    kind: ObjectKind
    class_name: str
    """Without its package."""

    config: Mapping[str, Value] | str | None
    """Of a function, its name."""

    registered_name: str | None = None
    """Of someone else's class, what it was registered under (``package>name``); else None."""

    module: str | None = None
    """As the file says it; None where it says none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """
    How one variable is made of stored ones that lie otherwise: each is reshaped, turned and
    flipped, then they are joined along the last axis.
    """

    parts: tuple[str, ...]
    """
    What the source calls the variables that it is made of, without the layer's name.

    ``W_i`` is stored as ``lstm_1_W_i:0`` and found as the one variable of the layer whose name is
    this or ends in ``_`` and this.
    """

    reshape: tuple[int, ...] = ()
    """The shape that each part is given first, in C order; empty for none."""

    axes: tuple[int, ...] = ()
    """As ``numpy.transpose`` takes them; empty for none."""

    flip: tuple[int, ...] = ()
    """The axes that are reversed, after :attr:`axes` were turned."""

    @property
    def only_renames(self) -> bool:
        """Whether the values of one stored variable stay as they are."""
        return len(self.parts) == 1 and not (self.reshape or self.axes or self.flip)


@dataclass(frozen=True, kw_only=True)
class Network:
    """The graph of a functional model, or the chain of a sequential one."""

    units: tuple[Unit, ...]
    """In the file's order; in a functional model each with its calls."""

    inputs: Argument = None
    """References in the structure that the model takes; None for a chain."""

    outputs: Argument = None

    @property
    def is_chain(self) -> bool:
        """Whether it is a Sequential's."""
        return self.outputs is None

    @cached_property
    def by_name(self) -> Mapping[str, Unit]:
        """The units by their names; of several of one name, the first."""
        return {unit.name: unit for unit in reversed(self.units)}

    def unit(self, name: str) -> Unit:
        """Return the unit of a name; :class:`KeyError` where there is none."""
        return self.by_name[name]


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """A layer, a model, or an op of a graph."""

    class_name: str
    """The public name, without its package."""

    name: str
    config: Mapping[str, Value]
    """
    Without ``name`` (unless it is another than the graph's), and of models without what
    :attr:`network` says.

    ``dtype`` is a :class:`~policytool.releases.policy.Policy` or a
    :class:`~policytool.releases.policy.PolicyMap` where it spells a policy, and a bare string for
    an input layer's tensor dtype.
    """

    role: Role = Role.LAYER
    custom: bool = False
    """Whether the class is not Keras' own."""

    registered_name: str | None = None
    """
    What its class was registered under (``package>name``, by default the name of the class); None
    where it was not, or the file does not say.
    """

    module: str | None = None
    """As the file says it; None where it says none."""

    path: str = ""
    """The layer path in the source, which reports name."""

    site: int | None = None
    """
    The index of the layer in the source's model, whose variables it takes over; None for one that
    conversion added.
    """

    calls: tuple[Call, ...] = ()
    network: Network | None = None
    build: Mapping[str, Value] | None = None
    """Keras 3's ``build_config``, where the file has one."""

    scales: Mapping[str, tuple[float, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """
    By a variable's name, factors along its last axis: what the weights are multiplied by where the
    user allows it.
    """

    given: Mapping[str, Value] = field(default_factory=lambda: MappingProxyType({}))
    """
    By a variable's name, the values of a variable that the source has none of: nested lists of
    numbers.
    """

    layout: Mapping[str, Recipe] = field(default_factory=lambda: MappingProxyType({}))
    """
    By a variable's name, how it is made of the source's; where it is empty, the source's variables
    have the names and the shapes already.
    """

    def with_config(self, **changes: Value) -> Unit:
        """Return the unit with keys of its config set."""
        return replace(self, config={**self.config, **changes})

    def with_key_renamed(self, before: str, after: str) -> Unit:
        """Return the unit with a key of its config by another name, at the same place."""
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
    Return a function of a network as one whose results the network keeps.

    Those of the networks in it are derived first, so that models in models need no deep recursion.
    """
    place = f"{derive.__module__}.{derive.__qualname__}"

    def results(network: Network) -> dict[tuple[object, ...], Result]:
        # as a cached property is kept; the copies of `replace` begin without it
        kept: dict[tuple[object, ...], Result] = vars(network).setdefault(place, {})
        return kept

    @wraps(derive)
    def find_or_derive(network: Network, *arguments: *Arguments) -> Result:
        pending = [network] if arguments not in results(network) else []
        while pending:
            inside = [
                unit.network
                for unit in pending[-1].units
                if unit.network is not None and arguments not in results(unit.network)
            ]
            pending += inside
            if not inside:
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
    """Return the tensors of a network that stand for those that it is called on."""
    return [BEFORE_CHAIN] if network.is_chain else list(tensors(network.inputs))


def exits(network: Network) -> list[Reference]:
    """Return the tensors that a network gives; none for a chain without layers."""
    if network.is_chain:
        return [Reference(layer=unit.name) for unit in network.units[-1:]]
    return list(tensors(network.outputs))


def below(unit: Unit) -> Iterator[Unit]:
    """Yield the units directly below one: of its network, then those that stand in its config."""
    if unit.network is not None:
        yield from unit.network.units
    yield from _in_value(dict(unit.config))


def walk(unit: Unit) -> Iterator[Unit]:
    """Yield a unit and all below it, parents first."""
    spend(1, walk="units of a model")
    yield unit
    for inner in below(unit):
        yield from walk(inner)


def _in_value(value: Value) -> Iterator[Unit]:
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
    """Return how many calls a model contains, of itself and of the units below it."""
    return max(len(unit.calls), 1) * (1 + sum(map(count_calls, below(unit))))


def map_units(unit: Unit, change: Callable[[Unit], Unit]) -> Unit:
    """
    Return the unit with all below it changed, then changed itself: children first, as Keras builds
    them.
    """
    network = unit.network
    if network is not None:
        units = tuple(map_units(inner, change) for inner in network.units)
        if any(after is not before for after, before in zip(units, network.units, strict=True)):
            network = replace(network, units=units)
    changed = _changed_items(unit.config, change)
    # Most rewrites change few units: copies of all others took a third of a plan's time.
    if changed or network is not unit.network:
        unit = replace(unit, network=network, config={**unit.config, **changed})
    return change(unit)


def map_networks(root: Unit, change: Callable[[Network], Network]) -> Unit:
    """Return a model with its network changed, and those of all models in it before."""

    def change_network(unit: Unit) -> Unit:
        network = change(unit.network) if unit.network is not None else None
        return unit if network is unit.network else replace(unit, network=network)

    return map_units(root, change_network)


def _changed_items(
    items: Mapping[str, Value], change: Callable[[Unit], Unit]
) -> Mapping[str, Value]:
    """Return the items that differ once the units in them are changed."""
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
            same = all(after is before for after, before in zip(items, value, strict=True))
            return value if same else items
        case dict():
            changed = _changed_items(value, change)
            return {**value, **changed} if changed else value
        case SerializedObject(config=config) if not isinstance(config, str | None):
            changed = _changed_items(config, change)
            return replace(value, config={**config, **changed}) if changed else value
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
    """Return the name, with as many underscores that it is not used yet, and note it as used."""
    while name in used:
        name = f"{name}_"
    used.add(name)
    return name


def prune(network: Network, may_go: Callable[[Unit], bool]) -> Network:
    """Return a network without the units that may go and that nothing takes, or only such."""
    while True:
        used = used_calls(network)
        units = tuple(unit for unit in network.units if unit.name in used or not may_go(unit))
        if len(units) == len(network.units):
            return network
        network = replace(network, units=units)


def replace_references(argument: Argument, change: Callable[[Reference], Argument]) -> Argument:
    """Return an argument with each tensor of it changed."""
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
            return replace(
                argument,
                start=replace_references(argument.start, change),
                stop=replace_references(argument.stop, change),
                step=replace_references(argument.step, change),
            )
    return argument


def rewire(network: Network, change: Callable[[Reference], Argument]) -> Network:
    """Return a functional network in which each use of a tensor is changed, the outputs' too."""
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
"""The argument for the states that a sequence starts with."""

VALUE: Final = "value"


def is_attention(unit: Unit) -> bool:
    """Return whether a layer is an attention whose masks hide rows and columns of its scores."""
    return layer_facts(unit.class_name).masks_scores and not unit.custom


def argument_names(unit: Unit) -> tuple[str, ...]:
    """Return the names of a layer's arguments in the order in which Keras 3 takes them."""
    return layer_facts(None if unit.custom else unit.class_name).call


def named_arguments(unit: Unit, call: Call) -> dict[str, Argument]:
    """Return a call's arguments by their names, the first one's as Keras 3 calls it."""
    return {**dict(zip(argument_names(unit), call.args, strict=False)), **call.kwargs}


BACKWARD: Final = "backward_layer"
"""What a Bidirectional and its config call it by."""


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
