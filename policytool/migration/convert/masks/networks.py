"""Changes to each network of a model whose calls have masks of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from policytool.migration.convert.traversal import rewire

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from collections.abc import Set as AbstractSet

    from policytool.migration.convert.architecture import Network, Unit
    from policytool.migration.convert.masks.expressions import Scope
    from policytool.migration.convert.masks.flow import CallKey
    from policytool.model.calls import Reference


def change_networks(
    unit: Unit,
    change: Callable[[Network, Scope], tuple[Network, frozenset[CallKey]]],
    scope: Scope = (),
) -> tuple[Unit, frozenset[CallKey]]:
    """
    Return a model whose graphs are changed, and the calls that the changes are about.

    The masks of a model that is called several times differ from call to call: its graph is left
    alone, and so are chains, in which nothing can be put beside a layer.
    """
    network = unit.network
    if network is None or network.is_chain:
        return unit, frozenset()
    units: list[Unit] = []
    done: frozenset[CallKey] = frozenset()
    for one in network.units:
        inner = one
        if len(one.calls) == 1:
            inner, below = change_networks(one, change, (*scope, f"{one.name}:0"))
            done |= below
        units.append(inner)
    changed, found = change(replace(network, units=tuple(units)), scope)
    return replace(unit, network=changed), done | found


def put_in_place(
    network: Network, stand_ins: Mapping[Reference, Reference], keeping: AbstractSet[str]
) -> Network:
    """
    Return a network in which other tensors stand for some outputs of layers.

    :param keeping: the operations that make them, which take the outputs as they are
    """
    changed = rewire(network, lambda one: stand_ins.get(one, one))
    units = tuple(
        replace(after, calls=before.calls) if before.name in keeping else after
        for before, after in zip(network.units, changed.units, strict=True)
    )
    return replace(changed, units=units)
