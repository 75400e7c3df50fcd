"""
In which order a model that is loaded has its layers: that in which loaders count them when they hand out weights.

A functional model does not keep the order of its config. It computes ``layers`` from its graph: by decreasing depth, which is the longest way from a
layer to the outputs, and within a depth by the order in which a walk back from the outputs meets them (``_map_graph_network`` in
keras/engine/functional.py of Keras 2, network.py before TF 2.3, ``map_graph`` in keras/src/ops/function.py of Keras 3). HDF5's groups, the counts of
``.keras`` archives and the variables of nested models go by it, so that layers of one shape swap their weights where it is another.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.conversion.architecture import Reference, Slice, mapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from policytool.conversion.architecture import Argument, Call, Network, Unit

    Longer = Callable[[Unit, Reference], int]

Node = tuple[str, int]
"""One call of a unit, by the unit's name and the call's number; an input has the one node 0."""

_NOT_MET: Final = -1


def ordered(root: Unit, added: Callable[[Network], Longer | None]) -> Unit:
    """
    Return a model with the units of it, and of all functional models in it, in the order in which they are loaded.

    :param added: what a network's loader puts between its layers
    """

    def change(unit: Unit) -> Unit:
        if unit.network is None or unit.network.is_chain:
            return unit
        return replace(unit, network=replace(unit.network, units=order(unit.network, added(unit.network))))

    return mapped(root, change)


def order(network: Network, longer: Longer | None = None) -> tuple[Unit, ...]:
    """
    Return the units of a functional network in the order of the loaded model's ``layers``.

    :param longer: how much longer the way is from a unit's call to one of its inputs than the config shows

    Inputs that lead to no output stand before all others at depth 0. Other units that do so stand last, in their own order: Keras 2 appends them
    (``connect_ancillary_layers``), Keras 3 does not have them, and no count goes beyond them.
    """
    graph = _Graph(network, longer)
    depths, met = graph.depths()
    names = [name for name in dict.fromkeys(reference.layer for reference in tensors(network.inputs)) if name not in depths and name in graph.units]
    for name in names:
        depths[name], met[name] = 0, _NOT_MET
    found = sorted(depths, key=lambda name: (-depths[name], met[name]))  # stable, as Keras' own sorting is
    return (*(graph.units[name] for name in found), *(unit for unit in network.units if unit.name not in depths))


def tensors(argument: Argument) -> Iterator[Reference]:
    """Yield the tensors in an argument in the order in which ``nest.flatten``, and Keras 3's ``tree.flatten``, find them: dicts by their keys."""
    if isinstance(argument, Reference):
        yield argument
    elif isinstance(argument, list | tuple):
        for item in argument:
            yield from tensors(item)
    elif isinstance(argument, dict):
        for key in sorted(argument):
            yield from tensors(argument[key])
    elif isinstance(argument, Slice):
        for item in (argument.start, argument.stop, argument.step):
            yield from tensors(item)


def inbound(call: Call) -> Iterator[Reference]:
    """Yield the tensors that a call takes, in the order in which its node has them: positional arguments, then the others by their names."""
    yield from tensors(call.args)
    yield from tensors(dict(call.kwargs))


class _Graph:
    """The calls of one functional network."""

    def __init__(self, network: Network, longer: Longer | None) -> None:
        self._longer = longer
        self.units = {unit.name: unit for unit in network.units}
        self._outputs = [node for reference in tensors(network.outputs) if (node := self._node(reference)) is not None]

    def _node(self, reference: Reference) -> Node | None:
        """Return the call that a tensor comes from; None where there is no such."""
        unit = self.units.get(reference.layer)
        return (reference.layer, reference.call) if unit is not None and 0 <= reference.call < max(len(unit.calls), 1) else None

    def _inputs(self, node: Node) -> list[tuple[Reference, Node]]:
        """Return the tensors that a call takes, each with the call that it comes from."""
        calls = self.units[node[0]].calls
        return [(reference, parent) for reference in inbound(calls[node[1]]) if (parent := self._node(reference)) is not None] if calls else []

    def _step(self, node: Node, reference: Reference) -> int:
        return 1 + (self._longer(self.units[node[0]], reference) if self._longer is not None else 0)

    def depths(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return the depth of each unit that leads to an output, and in which place the walk met it."""
        finished, met = self._walked()
        nodes: dict[Node, int] = {}
        units: dict[str, int] = {}
        for node in reversed(finished):
            depth = max(nodes.setdefault(node, 0), units.get(node[0], 0))  # a layer that was met deeper takes its later calls down with it
            nodes[node] = units[node[0]] = depth
            for reference, parent in self._inputs(node):
                nodes[parent] = max(depth + self._step(node, reference), nodes.get(parent, 0))
        return units, met

    def _walked(self) -> tuple[list[Node], dict[str, int]]:
        """Return the calls in the order in which a walk back from the outputs leaves them, and each unit's place among those that it meets."""
        finished: dict[Node, None] = {}
        met: dict[str, int] = {}
        for output in self._outputs:
            pending: list[tuple[Node, bool]] = [(output, False)]
            under_way: set[Node] = set()
            while pending:
                node, left = pending.pop()
                if left:
                    finished[node] = None
                elif node not in finished and node not in under_way:
                    under_way.add(node)
                    met.setdefault(node[0], len(met))
                    pending.append((node, True))
                    pending += [(parent, False) for _, parent in reversed(self._inputs(node))]
        return list(finished), met
