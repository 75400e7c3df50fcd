"""
A model between two generations: its layers and what they are called with, free of how either of
them writes it.

Everything is a frozen value. A config's nested objects (layers, initialisers, regularisers,
constraints, policies) stand in it as values of this module, at the keys where the file has them;
all else in it is plain JSON.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property, wraps
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias, TypeVar, TypeVarTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from policytool.model.calls import Argument, Call
    from policytool.releases.policy import Policy, PolicyMap

Value: TypeAlias = (
    "bool | int | float | str | list[Value] | dict[str, Value] | Unit | Thing | Policy | PolicyMap "
    "| None"
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
class Thing:
    """A serialised object that is no layer."""

    kind: ObjectKind
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

    package: str | None = None
    """
    Of someone else's class, what it was registered under (``package>Class``); None where it was
    not, or the file does not say.
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
    Return the name of an activation that is one of Keras' functions; None for someone else's, and
    for layers.
    """
    if isinstance(value, str):
        return value
    if (
        isinstance(value, Thing)
        and value.kind is ObjectKind.FUNCTION
        and value.package is None
        and isinstance(value.config, str)
    ):
        return value.config
    return None
