"""
A model between two generations: its layers and what they are called with, free of how either of them writes it.

Everything is a frozen value. A config's nested objects (layers, initialisers, regularisers, constraints, policies) stand in it as values of this
module, at the keys where the file has them; all else in it is plain JSON.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from policytool.policy import Policy, PolicyMap

Value: TypeAlias = "bool | int | float | str | list[Value] | dict[str, Value] | Unit | Thing | Policy | PolicyMap | None"
"""What stands in a config: JSON, with objects in their places."""

Argument: TypeAlias = "bool | int | float | str | list[Argument] | tuple[Argument, ...] | dict[str, Argument] | Reference | Constant | Slice | Dtype | None"
"""What a layer is called with: JSON, with tensors, constants and slices in their places; tuples are told from lists."""


class Kind(StrEnum):
    """What an object in a config is; the words of ``data/layer_arguments.json`` where it has them."""

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
class Reference:
    """One output of one call of a layer, in the network that the reference stands in."""

    layer: str
    call: int = 0
    """Which of the layer's calls in this network, counted from 0 for nested models too."""

    output: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Constant:
    """A tensor or an array whose values stand in the config."""

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
class Thing:
    """A serialised object that is no layer."""

    kind: Kind
    class_name: str
    """Without its package."""

    config: Mapping[str, Value] | str | None
    """Of a function, its name."""

    package: str | None = None
    """Of someone else's class, what it was registered under; None for Keras' own."""

    module: str | None = None
    """As the file says it; None where it says none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """How one variable is made of stored ones that lie otherwise: each is reshaped, turned and flipped, then they are joined along the last axis."""

    parts: tuple[str, ...]
    """
    What the source calls the variables that it is made of, without the layer's name.

    ``W_i`` is stored as ``lstm_1_W_i:0`` and found as the one variable of the layer whose name is this or ends in ``_`` and this.
    """

    reshape: tuple[int, ...] = ()
    """The shape that each part is given first, in C order; empty for none."""

    axes: tuple[int, ...] = ()
    """As ``numpy.transpose`` takes them; empty for none."""

    flip: tuple[int, ...] = ()
    """The axes that are reversed, after :attr:`axes` were turned."""


@dataclass(frozen=True, kw_only=True, slots=True)
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

    def unit(self, name: str) -> Unit:
        """Return the unit of a name; :class:`KeyError` where there is none."""
        for unit in self.units:
            if unit.name == name:
                return unit
        raise KeyError(name)


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """A layer, a model, or an op of a graph."""

    class_name: str
    """The public name, without its package."""

    name: str
    config: Mapping[str, Value]
    """
    Without ``name`` (unless it is another than the graph's), and of models without what :attr:`network` says.

    ``dtype`` is a :class:`~policytool.policy.Policy` or a :class:`~policytool.policy.PolicyMap` where it spells a policy, and a bare string for an input
    layer's tensor dtype.
    """

    role: Role = Role.LAYER
    custom: bool = False
    """Whether the class is not Keras' own."""

    package: str | None = None
    """Of someone else's class, what it was registered under (``package>Class``); None where it was not, or the file does not say."""

    module: str | None = None
    """As the file says it; None where it says none."""

    path: str = ""
    """The layer path in the source, which reports name."""

    site: int | None = None
    """The index of the layer in the source's model, whose variables it takes over; None for one that conversion added."""

    calls: tuple[Call, ...] = ()
    network: Network | None = None
    build: Mapping[str, Value] | None = None
    """Keras 3's ``build_config``, where the file has one."""

    scales: Mapping[str, tuple[float, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """By a variable's name, factors along its last axis: what the weights are multiplied by where the user allows it."""

    given: Mapping[str, Value] = field(default_factory=lambda: MappingProxyType({}))
    """By a variable's name, the values of a variable that the source has none of: nested lists of numbers."""

    layout: Mapping[str, Recipe] = field(default_factory=lambda: MappingProxyType({}))
    """By a variable's name, how it is made of the source's; where it is empty, the source's variables have the names and the shapes already."""

    def with_config(self, **changes: Value) -> Unit:
        """Return the unit with keys of its config set."""
        return replace(self, config={**self.config, **changes})

    def without(self, *keys: str) -> Unit:
        """Return the unit without keys of its config."""
        return replace(self, config={key: value for key, value in self.config.items() if key not in keys})


def below(unit: Unit) -> Iterator[Unit]:
    """Yield the units directly below one: of its network, then those that stand in its config."""
    if unit.network is not None:
        yield from unit.network.units
    yield from _in_value(dict(unit.config))


def walk(unit: Unit) -> Iterator[Unit]:
    """Yield a unit and all below it, parents first."""
    yield unit
    for inner in below(unit):
        yield from walk(inner)


def _in_value(value: Value) -> Iterator[Unit]:
    if isinstance(value, Unit):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _in_value(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _in_value(item)
    elif isinstance(value, Thing) and not isinstance(value.config, str | None):
        yield from _in_value(dict(value.config))


def mapped(unit: Unit, change: Callable[[Unit], Unit]) -> Unit:
    """Return the unit with all below it changed, then changed itself: children first, as Keras builds them."""
    network = unit.network
    if network is not None:
        network = replace(network, units=tuple(mapped(inner, change) for inner in network.units))
    config = {key: _mapped_value(value, change) for key, value in unit.config.items()}
    return change(replace(unit, network=network, config=config))


def _mapped_value(value: Value, change: Callable[[Unit], Unit]) -> Value:
    if isinstance(value, Unit):
        return mapped(value, change)
    if isinstance(value, list):
        return [_mapped_value(item, change) for item in value]
    if isinstance(value, dict):
        return {key: _mapped_value(item, change) for key, item in value.items()}
    if isinstance(value, Thing) and not isinstance(value.config, str | None):
        return replace(value, config={key: _mapped_value(item, change) for key, item in value.config.items()})
    return value


def things(unit: Unit) -> Iterator[tuple[str, Thing]]:
    """Yield the objects of a unit's own config that are no layers, with the key that holds each; not those of units below."""
    pending: list[tuple[str, Value]] = list(unit.config.items())
    while pending:
        key, value = pending.pop(0)
        if isinstance(value, Thing):
            yield key, value
            if not isinstance(value.config, str | None):
                pending += [(f"{key}/{inner}", item) for inner, item in value.config.items()]
        elif isinstance(value, list):
            pending += [(key, item) for item in value]
        elif isinstance(value, dict):
            pending += [(f"{key}/{inner}", item) for inner, item in value.items()]


def references(argument: Argument) -> Iterator[Reference]:
    """Yield the tensors in an argument, in its order."""
    if isinstance(argument, Reference):
        yield argument
    elif isinstance(argument, list | tuple):
        for item in argument:
            yield from references(item)
    elif isinstance(argument, dict):
        for item in argument.values():
            yield from references(item)
    elif isinstance(argument, Slice):
        for item in (argument.start, argument.stop, argument.step):
            yield from references(item)


def replaced(argument: Argument, change: Callable[[Reference], Argument]) -> Argument:
    """Return an argument with each tensor of it changed."""
    if isinstance(argument, Reference):
        return change(argument)
    if isinstance(argument, list):
        return [replaced(item, change) for item in argument]
    if isinstance(argument, tuple):
        return tuple(replaced(item, change) for item in argument)
    if isinstance(argument, dict):
        return {key: replaced(item, change) for key, item in argument.items()}
    if isinstance(argument, Slice):
        return replace(argument, start=replaced(argument.start, change), stop=replaced(argument.stop, change), step=replaced(argument.step, change))
    return argument


def rewired(network: Network, change: Callable[[Reference], Argument]) -> Network:
    """Return a functional network in which each use of a tensor is changed, the outputs' too."""
    units = tuple(
        replace(
            unit,
            calls=tuple(
                Call(
                    args=tuple(replaced(item, change) for item in call.args),
                    kwargs={key: replaced(item, change) for key, item in call.kwargs.items()},
                )
                for call in unit.calls
            ),
        )
        for unit in network.units
    )
    return replace(network, units=units, outputs=replaced(network.outputs, change))
