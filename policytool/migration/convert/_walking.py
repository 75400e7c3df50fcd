"""
A functional model's graph as the libraries walk through it: from the outputs back, each call's
arguments in one order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from policytool.model.calls import Reference, tensors
from policytool.support.steps import spend

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from policytool.migration.convert.architecture import Network
    from policytool.model.calls import Call

Node = tuple[str, int]
"""One call of a unit, by the unit's name and the call's number; an input has the one node 0."""


def inbound(call: Call, *, by_name: bool = True) -> Iterator[Reference]:
    """
    Yield the tensors that a call takes, in the order in which its node has them: positional
    arguments, then the others.

    :param by_name: whether those are sorted; tf_keras 2.21 has them as the config does
        (``_flat_arguments`` in tf_keras/src/engine/node.py)
    """
    yield from tensors(call.args)
    for key in sorted(call.kwargs) if by_name else call.kwargs:
        yield from tensors(call.kwargs[key])


class CallGraph:
    """The calls of one functional network."""

    def __init__(self, network: Network, *, by_name: bool = True) -> None:
        self._by_name = by_name
        self.units = {unit.name: unit for unit in network.units}
        self._outputs = [
            node
            for reference in tensors(network.outputs)
            if (node := self.node(reference)) is not None
        ]

    def node(self, reference: Reference) -> Node | None:
        """Return the call that a tensor comes from; None where there is no such."""
        unit = self.units.get(reference.layer)
        return (
            (reference.layer, reference.call)
            if unit is not None and 0 <= reference.call < max(len(unit.calls), 1)
            else None
        )

    def parents(self, node: Node) -> list[Node]:
        """Return the calls that a call takes tensors of, in its order."""
        calls = self.units[node[0]].calls
        return (
            [
                parent
                for reference in inbound(calls[node[1]], by_name=self._by_name)
                if (parent := self.node(reference)) is not None
            ]
            if calls
            else []
        )

    def walk(self) -> tuple[list[Node], dict[str, int]]:
        """
        Return the calls in the order in which a walk back from the outputs leaves them, and each
        unit's place among those that it meets.
        """
        return self._walk_back(self._outputs)

    def inputs_first(self) -> list[Node]:
        """
        Return all calls, those that lead to no output too, each after the calls that it takes
        tensors of; units without calls have the one node 0.
        """
        every = [
            (name, number)
            for name, unit in self.units.items()
            for number in range(max(len(unit.calls), 1))
        ]
        return self._walk_back(every)[0]

    def _walk_back(self, starts: Sequence[Node]) -> tuple[list[Node], dict[str, int]]:
        finished: dict[Node, None] = {}
        met: dict[str, int] = {}
        for start in starts:
            pending: list[tuple[Node, bool]] = [(start, False)]
            under_way: set[Node] = set()
            while pending:
                node, left = pending.pop()
                if left:
                    finished[node] = None
                elif node not in finished and node not in under_way:
                    under_way.add(node)
                    met.setdefault(node[0], len(met))
                    pending.append((node, True))
                    pending += [(parent, False) for parent in reversed(self.parents(node))]
        spend(len(finished), walk="calls of a graph")
        return list(finished), met
