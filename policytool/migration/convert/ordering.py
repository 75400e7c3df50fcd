"""
In which order a model that is loaded has its layers: that in which loaders count them when they
hand out weights.

A functional model does not keep the order of its config. It computes ``layers`` from its graph: by
decreasing depth, which is the longest way from a layer to the outputs, and within a depth by the
order in which a walk back from the outputs meets them (``_map_graph_network`` in
keras/engine/functional.py of Keras 2, network.py before TF 2.3, ``map_graph`` in
keras/src/ops/function.py of Keras 3). HDF5's groups, the counts of ``.keras`` archives and the
variables of nested models go by it, so that layers of one shape swap their weights where it is
another.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.implicit_casts import ImplicitEdges, implicit_edges
from policytool.migration.convert.traversal import call_graph, connect_calls, map_units
from policytool.model.calls import tensors
from policytool.releases.releases import releases_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policytool.migration.convert.architecture import Network, Unit
    from policytool.migration.convert.implicit_casts import Edge
    from policytool.migration.convert.target import Target
    from policytool.model.flow import CallGraph, Node

_NOT_MET: Final = -1
_AS_GIVEN: Final = releases_in("after tf2.15")
"""The releases that do not sort keyword arguments."""

_NONE: Final = ImplicitEdges()


def order_layers(root: Unit, target: Target) -> Unit:
    """
    Return a model with the units of it, and of all functional models in it, in the order in which
    the target has them.
    """
    by_name = target.loader not in _AS_GIVEN

    def change(unit: Unit) -> Unit:
        if unit.network is None or unit.network.is_chain:
            return unit
        return replace(
            unit,
            network=replace(
                unit.network,
                units=order(
                    unit.network,
                    implicit_edges(unit.network, target) if target.is_keras3 else _NONE,
                    by_name=by_name,
                ),
            ),
        )

    return map_units(root, change)


def order(
    network: Network, further: ImplicitEdges = _NONE, *, by_name: bool = True
) -> tuple[Unit, ...]:
    """
    Return the units of a functional network in the order of the loaded model's ``layers``.

    Inputs that lead to no output stand before all others at depth 0. Other units that do so stand
    last, in their own order: Keras 2 appends them (``connect_ancillary_layers``), Keras 3 does not
    have them, and no count goes beyond them.

    :param further: what the loader puts between calls by itself
    :param by_name: whether a call's keyword arguments are sorted
    """
    graph = connect_calls(network, by_name=by_name)
    finished, met = graph.walk()
    depths = _depths(graph, finished, further)[1]
    names = [
        name
        for name in dict.fromkeys(reference.layer for reference in tensors(network.inputs))
        if name not in depths and name in network.by_name
    ]
    for name in names:
        depths[name], met[name] = 0, _NOT_MET
    found = sorted(
        depths, key=lambda name: (-depths[name], met[name])
    )  # stable, as Keras' own sorting is
    return (
        *(network.unit(name) for name in found),
        *(unit for unit in network.units if unit.name not in depths),
    )


def calls_in_order(network: Network) -> list[Node]:
    """Return the calls of a functional network in the order in which Keras 3 runs them."""
    graph = call_graph(network)
    depths = _depths(graph, graph.walk()[0], _NONE)[0]
    return sorted(depths, key=lambda node: -depths[node])


def _depths(
    graph: CallGraph, finished: Sequence[Node], further: ImplicitEdges
) -> tuple[dict[Node, int], dict[str, int]]:
    """Return the depth of each call, and of each unit, that leads to an output."""
    nodes: dict[Node, int] = {}
    units: dict[str, int] = {}
    masks: dict[Node, int] = {}

    def push_down(edges: Sequence[Edge], depth: int) -> None:
        for parent, ops, is_mask in edges:
            depths = masks if is_mask else nodes
            depths[parent] = max(depth + ops, depths.get(parent, 0))

    for node in reversed(finished):
        depth = max(
            nodes.setdefault(node, 0), units.get(node[0], 0)
        )  # a layer that was met deeper takes its later calls down with it
        nodes[node] = units[node[0]] = depth
        for parent in graph.parents(node):
            nodes[parent] = max(depth + 1, nodes.get(parent, 0))
        push_down(further.calls.get(node, ()), depth + 1)
        if node in masks:  # all that take it were met before, as those that take the call's output
            push_down(further.masks[node], masks[node])
    return nodes, units
