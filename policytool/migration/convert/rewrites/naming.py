"""
Names that Keras 3 refuses: with a slash (``Layer.__init__`` by way of keras/src/utils/naming.py),
for which underscores take their place everywhere; and those that it gives to operations of its own.

Where a mask travels, ``compute_mask`` of layers adds operations to the graph, named after their
classes and counted (``auto_name`` in keras/src/utils/naming.py). A layer of the file that is called
so gets another name: a Concatenate of masked inputs would share the name ``concatenate`` with the
operation that joins the masks.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import Network, Reference, Role, Unit
from policytool.migration.convert.rewrites._base import ConversionContext, Rewrite
from policytool.migration.convert.rewrites._mask_graph import MaskGraph, each_network
from policytool.migration.convert.traversal import (
    map_units,
    references,
    replace_references,
    rewire,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from policytool.migration.convert.architecture import Argument

_SLASH: Final = "/"
_OF_MASKS: Final = re.compile(
    r"(all|any|broadcast_to|cast|concatenate|expand_dims|logical_and|logical_or|not_equal"
    r"|ones_like|squeeze|where|zeros_like)(_\d+)?"
)
"""What ``compute_mask`` of the layers of Keras 3.0 to 3.15 makes."""


def _apply(root: Unit, situation: ConversionContext) -> Unit:
    if not situation.from_keras3:
        root = each_network(root, lambda network, graph: _apart(network, graph, situation))

    def change(unit: Unit) -> Unit:
        if unit.network is None:
            return unit
        names = _names(unit.network, lambda name: name.replace(_SLASH, "_"))
        return replace(
            unit, network=_rename(unit.network, names, situation, "takes no slash in a name")
        )

    def inner(unit: Unit) -> Unit:
        config = {
            key: _plain(value) if isinstance(value, Unit) else value
            for key, value in unit.config.items()
        }
        return replace(unit, config=config)

    return _plain(map_units(root, lambda unit: inner(change(unit))))


def _plain(unit: Unit) -> Unit:
    return (
        unit if unit.role is Role.OPERATION else replace(unit, name=unit.name.replace(_SLASH, "_"))
    )


def _apart(network: Network, graph: MaskGraph, situation: ConversionContext) -> Network:
    """Return a network whose layers have no names of operations that Keras 3 adds to it."""
    names = _names(network, lambda name: f"{name}_" if _OF_MASKS.fullmatch(name) else name)
    tensors = (
        reference
        for unit in network.units
        for call in unit.calls
        for argument in (*call.args, *call.kwargs.values())
        for reference in references(argument)
    )
    if not names or not any(map(graph.may_be_masked, tensors)):
        return network
    return _rename(network, names, situation, "gives that name to an operation on masks")


def _names(network: Network, change: Callable[[str], str]) -> dict[str, str]:
    """Return, by name, another one for those that are changed, which no member has."""
    taken = {unit.name for unit in network.units}
    found: dict[str, str] = {}
    for unit in network.units:
        name = change(unit.name)
        if name == unit.name:
            continue
        while name in taken:
            name = f"{name}_"
        taken.add(name)
        found[unit.name] = name
    return found


def _rename(
    network: Network, names: Mapping[str, str], situation: ConversionContext, why: str
) -> Network:
    if not names:
        return network
    for member in network.units:
        if member.name in names:
            text = f"{member.name} becomes {names[member.name]}: Keras 3 {why}"
            situation.log.change("renamed", member, text)

    def change(reference: Reference) -> Argument:
        return replace(reference, layer=names.get(reference.layer, reference.layer))

    found = rewire(network, change)
    units = tuple(replace(unit, name=names.get(unit.name, unit.name)) for unit in found.units)
    return replace(found, units=units, inputs=replace_references(found.inputs, change))


REWRITE: Final = Rewrite(name="naming", applies=lambda situation: situation.to_keras3, apply=_apply)
