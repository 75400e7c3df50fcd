"""
Propagation of facts about tensors through the graph of a model, from inputs to outputs.

A graph consists of calls, independent of the tree of its layers (:class:`CallGraph`). A transfer
function computes the facts about the outputs of a call from the class of the layer and the facts
about the inputs. :func:`follow` runs it once for each call.
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
"""A call of a layer: the name of the layer, and the number of the call, which is 0 for an input."""

BEFORE_CHAIN: Final = Reference(layer="")
"""The input of the first layer of a chain; no layer has this name."""


def inbound(call: Call, *, by_name: bool = True) -> Iterator[Reference]:
    """
    Yield the input tensors of a call in the order of its node: positional arguments, then keyword
    arguments.

    :param by_name: whether keyword arguments are sorted; tf_keras 2.21 keeps the order of the
        config (``_flat_arguments`` in tf_keras/src/engine/node.py)
    """
    yield from tensors(call.args)
    for key in sorted(call.kwargs) if by_name else call.kwargs:
        yield from tensors(call.kwargs[key])


class CallGraph:
    """The calls of a network, traversed as the libraries do: from the outputs to the inputs."""

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
        """Return the call that creates a tensor; None if the network has no such call."""
        calls = self._calls.get(reference.layer)
        return (
            (reference.layer, reference.call)
            if calls is not None and 0 <= reference.call < max(len(calls), 1)
            else None
        )

    def call(self, node: Node) -> Call | None:
        """Return the call of a node; None for inputs, and for layers without a call."""
        name, number = node
        return self._calls[name][number] if self._calls[name] else None

    def parents(self, node: Node) -> list[Node]:
        """Return the calls that create the inputs of a call, in the order of the inputs."""
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
        Return the calls in the order in which a depth-first walk from the outputs completes them,
        and the position of each layer in the order in which the walk reaches it first.
        """
        nodes = map(self.node, tensors(self._outputs))
        return self._walk_back([node for node in nodes if node is not None])

    @cached_property
    def inputs_first(self) -> Sequence[Node]:
        """
        All calls, including those that no output uses, each after the calls that create its inputs.
        A layer without calls has only node 0.
        """
        all_calls = [
            (name, number)
            for name, calls in self._calls.items()
            for number in range(max(len(calls), 1))
        ]
        return self._walk_back(all_calls)[0]

    def _walk_back(self, starts: Sequence[Node]) -> tuple[list[Node], dict[str, int]]:
        """
        Walk from calls to the calls of their inputs, depth first. Return the calls in the order in
        which the walk completes them, and the position of each layer in the order in which it is
        reached.
        """
        finished: dict[Node, None] = {}
        first_visits: dict[str, int] = {}
        for start in starts:
            pending: list[tuple[Node, bool]] = [(start, False)]
            under_way: set[Node] = set()
            while pending:
                node, parents_left = pending.pop()
                if parents_left:
                    finished[node] = None
                elif node not in finished and node not in under_way:
                    under_way.add(node)
                    first_visits.setdefault(node[0], len(first_visits))
                    pending.append((node, True))
                    pending += [(parent, False) for parent in reversed(self.parents(node))]
        spend(len(finished), walk="calls of a graph")
        return list(finished), first_visits


def chain_graph(names: Sequence[str]) -> CallGraph:
    """Return the graph of a chain, whose first layer is called on :data:`BEFORE_CHAIN`."""
    calls: dict[str, Sequence[Call]] = {BEFORE_CHAIN.layer: ()}
    for before, name in pairwise((BEFORE_CHAIN.layer, *names)):
        calls.setdefault(name, (Call(args=(Reference(layer=before),)),))
    return CallGraph(calls, Reference(layer=names[-1]) if names else BEFORE_CHAIN)


class TensorValues(Generic[Value]):
    """The known facts about each tensor of a network."""

    def __init__(self) -> None:
        self._outputs: dict[Node, Sequence[Value]] = {}

    def of(self, tensor: Reference) -> Value | None:
        """Return the facts about a tensor; None if the network has no such call."""
        outputs = self._outputs.get((tensor.layer, tensor.call))
        return outputs[min(tensor.output, len(outputs) - 1)] if outputs else None

    def add(self, node: Node, outputs: Sequence[Value]) -> None:
        """Add the facts about a call's outputs; the last value applies to all further outputs."""
        self._outputs[node] = outputs


def merged_graph(sources: Mapping[str, Sequence[str]]) -> CallGraph:
    """Return a graph in which each layer has one call, with the inputs of all its calls."""
    return CallGraph(
        {
            name: (Call(args=tuple(Reference(layer=source) for source in inputs_of_layer)),)
            for name, inputs_of_layer in sources.items()
        }
    )


def follow(
    graph: CallGraph,
    transfer: Callable[[Node, Call | None, TensorValues[Value]], Sequence[Value]],
    *,
    walk: str,
) -> TensorValues[Value]:
    """
    Return the facts that a transfer function computes about each tensor of a graph.

    :param transfer: receives a node, its call (None for an input) and the facts about earlier
        tensors, and returns the facts about its outputs; the last value applies to all further
        outputs
    :param walk: the name of the facts, such as ``"dtypes"``
    """
    known: TensorValues[Value] = TensorValues()
    order = graph.inputs_first
    spend(len(order), walk=walk)
    for node in order:
        known.add(node, transfer(node, graph.call(node), known))
    return known
