"""
The one walk that carries what is known of tensors through a model's graph, from its inputs to its
outputs.

A graph consists of calls, whichever tree its layers are in: :class:`CallGraph` has them. A transfer
function says what a call gives, by the facts of its class and what is known of the tensors that it
takes; :func:`follow` asks it once for each call.
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from policytool.model.calls import Call, Reference, tensors
from policytool.support.steps import spend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from policytool.model.calls import Argument

Value = TypeVar("Value")

Node = tuple[str, int]
"""One call of a layer, by the layer's name and the call's number; an input has the one node 0."""

BEFORE_CHAIN: Final = Reference(layer="")
"""What the first layer of a chain is called on; no layer has this name."""


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
    """The calls of one network, as the libraries walk through them: from the outputs back."""

    def __init__(
        self, calls: Mapping[str, Sequence[Call]], outputs: Argument = None, *, by_name: bool = True
    ) -> None:
        """
        Connect the calls of layers by their names.

        :param by_name: as for :func:`inbound`
        """
        self._calls = calls
        self._outputs = outputs
        self._by_name = by_name

    def node(self, reference: Reference) -> Node | None:
        """Return the call that a tensor comes from; None where there is no such."""
        calls = self._calls.get(reference.layer)
        return (
            (reference.layer, reference.call)
            if calls is not None and 0 <= reference.call < max(len(calls), 1)
            else None
        )

    def call(self, node: Node) -> Call | None:
        """Return what a layer is called with; None for inputs and layers that nothing calls."""
        name, number = node
        return self._calls[name][number] if self._calls[name] else None

    def parents(self, node: Node) -> list[Node]:
        """Return the calls that a call takes tensors of, in its order."""
        call = self.call(node)
        return (
            [
                parent
                for reference in inbound(call, by_name=self._by_name)
                if (parent := self.node(reference)) is not None
            ]
            if call is not None
            else []
        )

    def walk(self) -> tuple[list[Node], dict[str, int]]:
        """
        Return the calls in the order in which a walk back from the outputs leaves them, and each
        layer's place among those that it meets.
        """
        nodes = map(self.node, tensors(self._outputs))
        return self._walk_back([node for node in nodes if node is not None])

    @cached_property
    def inputs_first(self) -> Sequence[Node]:
        """
        All calls, those that lead to no output too, each after the calls that it takes tensors of;
        layers without calls have the one node 0.
        """
        every = [
            (name, number)
            for name, calls in self._calls.items()
            for number in range(max(len(calls), 1))
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


def chain_graph(names: Sequence[str]) -> CallGraph:
    """Return the graph of a chain, whose first layer is called on :data:`BEFORE_CHAIN`."""
    calls: dict[str, Sequence[Call]] = {BEFORE_CHAIN.layer: ()}
    for before, name in pairwise((BEFORE_CHAIN.layer, *names)):
        calls.setdefault(name, (Call(args=(Reference(layer=before),)),))
    return CallGraph(calls, Reference(layer=names[-1]) if names else BEFORE_CHAIN)


class TensorValues(Generic[Value]):
    """What is known of each tensor of one network."""

    def __init__(self) -> None:
        self._outputs: dict[Node, Sequence[Value]] = {}

    def of(self, tensor: Reference) -> Value | None:
        """Return what is known of a tensor; None if the network has no such call."""
        outputs = self._outputs.get((tensor.layer, tensor.call))
        return outputs[min(tensor.output, len(outputs) - 1)] if outputs else None

    def add(self, node: Node, outputs: Sequence[Value]) -> None:
        """Add what a call gives; the last value stands for all further outputs."""
        self._outputs[node] = outputs


def merged_graph(sources: Mapping[str, Sequence[str]]) -> CallGraph:
    """Return a graph in which each layer has one call on all layers that it is ever called on."""
    return CallGraph(
        {
            name: (Call(args=tuple(Reference(layer=source) for source in taken)),)
            for name, taken in sources.items()
        }
    )


def follow(
    graph: CallGraph,
    transfer: Callable[[Node, Call | None, TensorValues[Value]], Sequence[Value]],
    *,
    walk: str,
) -> TensorValues[Value]:
    """
    Return what a transfer function says of each tensor of a graph.

    :param transfer: takes a node, its call (None for an input) and what is known of the tensors
        before it, and returns what is known of its outputs; the last value stands for all further
        outputs
    :param walk: what the values are, such as ``"dtypes"``
    """
    known: TensorValues[Value] = TensorValues()
    order = graph.inputs_first
    spend(len(order), walk=walk)
    for node in order:
        known.add(node, transfer(node, graph.call(node), known))
    return known
