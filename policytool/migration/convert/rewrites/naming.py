"""The names of layers."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import (
    Network,
    Unit,
    map_units,
    replace_references,
    rewire,
    walk,
)
from policytool.migration.convert.masks.flow import makes_mask
from policytool.migration.convert.rewrites._base import ConversionContext, rewrite

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from policytool.migration.convert.architecture import Value
    from policytool.model.calls import Argument, Reference

_SLASH: Final = "/"
_NO_SCOPE: Final = re.compile(r"^[^A-Za-z0-9.]+|[^A-Za-z0-9_./>-]")
_OF_MASKS: Final = re.compile(
    r"(all|any|broadcast_to|cast|concatenate|expand_dims|logical_and|logical_or|not_equal"
    r"|ones_like|squeeze|where|zeros_like)(_\d+)?"
)
"""What ``compute_mask`` of the layers of Keras 3.0 to 3.15 makes."""

_SLASHES: Final = "Keras 3 does not allow slashes in names"
_SCOPES: Final = "Keras 2 cannot use the old name as a name scope"
_NAMELESS: Final = "layer"


@rewrite(
    applies=lambda context: context.to_keras3 or context.crosses,
)
def naming(root: Unit, context: ConversionContext) -> Unit:
    """
    Renames layers whose names the other library does not support.

    Keras 3 takes no slash (``Layer.__init__`` by way of keras/src/utils/naming.py). Keras 2 makes a
    name scope of a layer's name, which TensorFlow takes if it begins with a letter, a digit or a
    dot and goes on with these and ``_ / > -`` (``name_scope`` in
    tensorflow/python/framework/ops.py). Underscores take the place of all other characters.

    Where a mask travels, ``compute_mask`` of layers adds operations to the graph, named after their
    classes and counted (``auto_name`` in keras/src/utils/naming.py). A layer of the file that is
    called so gets another name: a Concatenate of masked inputs would share the name ``concatenate``
    with the operation that joins the masks.
    """
    if not context.from_keras3 and any(map(makes_mask, walk(root))):
        root = _apart(root, context)
    change, why = (_without_slash, _SLASHES) if context.to_keras3 else (_scope_name, _SCOPES)
    return _change_names(root, change, lambda network, names: _rename(network, names, context, why))


def _without_slash(name: str) -> str:
    return name.replace(_SLASH, "_")


def _scope_name(name: str) -> str:
    """Return a name that Keras 2 can make a scope of."""
    scope = _NO_SCOPE.sub(lambda match: "" if match.start() == 0 else "_", name)
    return scope or _NAMELESS


def _change_names(
    root: Unit,
    change: Callable[[str], str],
    rename: Callable[[Network, Mapping[str, str]], Network],
) -> Unit:
    """Return a model with other names; members of a network get some that no other has."""

    def plain(value: Value) -> Value:
        if isinstance(value, Unit):
            return replace(value, name=change(value.name))
        return [plain(item) for item in value] if isinstance(value, list) else value

    def inside(unit: Unit) -> Unit:
        renamed = replace(unit, config={key: plain(value) for key, value in unit.config.items()})
        if unit.network is None:
            return renamed
        return replace(renamed, network=rename(unit.network, _names(unit.network, change)))

    return replace(map_units(root, inside), name=change(root.name))


def _apart(root: Unit, context: ConversionContext) -> Unit:
    """Return a model whose layers have no names of operations that Keras 3 adds to it."""

    def change(unit: Unit) -> Unit:
        if unit.network is None or unit.network.is_chain:
            return unit
        names = _names(unit.network, lambda name: f"{name}_" if _OF_MASKS.fullmatch(name) else name)
        why = "Keras 3 uses the old name for an operation on masks"
        return replace(unit, network=_rename(unit.network, names, context, why))

    return map_units(root, change)


def _names(network: Network, change: Callable[[str], str]) -> dict[str, str]:
    """Return, by name, another one for those that are changed, which no member has."""
    taken = {unit.name for unit in network.units}
    names: dict[str, str] = {}
    for unit in network.units:
        name = change(unit.name)
        if name == unit.name:
            continue
        while name in taken:
            name = f"{name}_"
        taken.add(name)
        names[unit.name] = name
    return names


def _rename(
    network: Network, names: Mapping[str, str], context: ConversionContext, why: str
) -> Network:
    if not names:
        return network
    for member in network.units:
        if member.name in names:
            text = f"{member.name} is renamed to {names[member.name]}: {why}"
            context.log.change("renamed", member, text)

    def change(reference: Reference) -> Argument:
        return replace(reference, layer=names.get(reference.layer, reference.layer))

    rewired = rewire(network, change)
    units = tuple(replace(unit, name=names.get(unit.name, unit.name)) for unit in rewired.units)
    return replace(rewired, units=units, inputs=replace_references(rewired.inputs, change))
