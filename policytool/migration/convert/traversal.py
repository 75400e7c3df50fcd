"""
Ways through a model of :mod:`policytool.migration.convert.architecture`: its units, the objects in
a config, the tensors in an argument; each seen, or changed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from policytool.migration.convert.architecture import (
    Network,
    Thing,
    Unit,
    Value,
    once_per_network,
)
from policytool.model.calls import Argument, Call, Reference, Slice, tensors
from policytool.model.flow import BEFORE_CHAIN, CallGraph, chain_graph
from policytool.support.steps import spend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


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


def count_calls(unit: Unit) -> int:
    """Return how many calls a model makes of itself and of the units below it."""
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


def _changed_items(
    items: Mapping[str, Value], change: Callable[[Unit], Unit]
) -> Mapping[str, Value]:
    """Return the items that differ once the units in them are changed."""
    mapped = {
        key: _mapped_value(value, change)
        for key, value in items.items()
        if isinstance(value, Unit | Thing | list | dict)
    }
    return {key: value for key, value in mapped.items() if value is not items[key]}


def _mapped_value(value: Value, change: Callable[[Unit], Unit]) -> Value:
    """Return the same object if no unit in it changes."""
    if isinstance(value, Unit):
        return map_units(value, change)
    if isinstance(value, list):
        items = [_mapped_value(item, change) for item in value]
        same = all(after is before for after, before in zip(items, value, strict=True))
        return value if same else items
    if isinstance(value, dict):
        changed = _changed_items(value, change)
        return {**value, **changed} if changed else value
    if isinstance(value, Thing) and not isinstance(value.config, str | None):
        changed = _changed_items(value.config, change)
        return replace(value, config={**value.config, **changed}) if changed else value
    return value


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


def used_layers(network: Network) -> set[str]:
    """Return the names of the layers whose tensors a call or an output of a network takes."""
    given = (
        argument
        for unit in network.units
        for call in unit.calls
        for argument in (*call.args, *call.kwargs.values())
    )
    return {
        reference.layer
        for argument in (*given, network.outputs)
        for reference in references(argument)
    }


def prune(network: Network, may_go: Callable[[Unit], bool]) -> Network:
    """Return a network without the units that may go and that nothing takes, or only such."""
    while True:
        used = used_layers(network)
        units = tuple(unit for unit in network.units if unit.name in used or not may_go(unit))
        if len(units) == len(network.units):
            return network
        network = replace(network, units=units)


def replace_references(argument: Argument, change: Callable[[Reference], Argument]) -> Argument:
    """Return an argument with each tensor of it changed."""
    if isinstance(argument, Reference):
        return change(argument)
    if isinstance(argument, list):
        return [replace_references(item, change) for item in argument]
    if isinstance(argument, tuple):
        return tuple(replace_references(item, change) for item in argument)
    if isinstance(argument, dict):
        return {key: replace_references(item, change) for key, item in argument.items()}
    if isinstance(argument, Slice):
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
