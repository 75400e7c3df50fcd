"""
Names with a slash, which Keras 3 refuses (``Layer.__init__`` by way of keras/src/utils/naming.py):
underscores take their place everywhere.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import Network, Reference, Role, Unit
from policytool.migration.convert.rewrites._base import ConversionContext, Rewrite
from policytool.migration.convert.traversal import map_units, replace_references, rewire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.migration.convert.architecture import Argument

_SLASH: Final = "/"


def _apply(root: Unit, situation: ConversionContext) -> Unit:
    def change(unit: Unit) -> Unit:
        if unit.network is None:
            return unit
        names = _names(unit.network)
        for member in unit.network.units:
            if member.name in names:
                situation.log.change(
                    "renamed",
                    member,
                    f"{member.name} becomes {names[member.name]}: Keras 3 takes no slash in a name",
                )
        return replace(unit, network=_rename(unit.network, names)) if names else unit

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


def _names(network: Network) -> dict[str, str]:
    """Return, by name, another one for those with a slash, which no member has."""
    taken = {unit.name for unit in network.units}
    found: dict[str, str] = {}
    for unit in network.units:
        if _SLASH not in unit.name:
            continue
        name = unit.name.replace(_SLASH, "_")
        while name in taken:
            name = f"{name}_"
        taken.add(name)
        found[unit.name] = name
    return found


def _rename(network: Network, names: Mapping[str, str]) -> Network:
    def change(reference: Reference) -> Argument:
        return replace(reference, layer=names.get(reference.layer, reference.layer))

    found = rewire(network, change)
    units = tuple(replace(unit, name=names.get(unit.name, unit.name)) for unit in found.units)
    return replace(found, units=units, inputs=replace_references(found.inputs, change))


REWRITE: Final = Rewrite(name="naming", applies=lambda situation: situation.to_keras3, apply=_apply)
