"""Graphs without what leads to no output."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.random_models.description import Graph, Node


def references(node: Node) -> Iterator[str]:
    """Yield the identifiers of the nodes that a node needs, for their values or their layer."""
    for ref in (*node.inputs, *_refs(list(node.call.values()))):
        yield ref.partition(":")[0]
    if node.reuse is not None:
        yield node.reuse


def _refs(found: Any) -> Iterator[str]:
    if isinstance(found, dict) and "ref" in found:
        yield found["ref"]
    elif isinstance(found, list):
        for item in found:
            yield from _refs(item)


def prune(graph: Graph) -> Graph:
    """Return a graph without nodes and inputs that lead to no output."""
    wanted = {ref.partition(":")[0] for ref in graph.outputs}
    kept = []
    for node in reversed(graph.nodes):
        if node.id in wanted:
            kept.append(node)
            wanted |= set(references(node))
    inputs = tuple(spec for spec in graph.inputs if spec.id in wanted)
    return replace(
        graph,
        nodes=tuple(reversed(kept)),
        inputs=inputs,
        outputs=tuple(dict.fromkeys(graph.outputs)),
    )
