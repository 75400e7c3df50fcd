"""
Ids that pass through floats on their way to a lookup.

float16 tells integers apart up to 2048, bfloat16 up to 256: a layer that casts its inputs would make different ids the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.planning.keep._base import KeepRule, float_inputs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.planning.graph import Graph
    from policytool.planning.subject import Subject
    from policytool.policy import Policy

_LOOKUPS: Final = frozenset({"Embedding", "CategoryEncoding", "IntegerLookup", "Hashing", "HashedCrossing", "Discretization"})
"""An Embedding is built with ``autocast=False`` in both libraries, and the others stay in float32 (``encoders``): what leads there counts."""


def find(subject: Subject, _policy: Policy) -> Iterator[tuple[int, str]]:
    """Yield the weightless layers between a float input and a lookup."""
    for graph in subject.graphs.values():
        for node in graph.nodes.values():
            if node.class_name in _LOOKUPS and node.site is not None:
                between, from_floats = _carriers(subject, graph, node.name)
                if from_floats:
                    for index in between:
                        yield index, f"it carries ids to {subject.layers[node.site].path}, and a 16-bit float cannot tell large ones apart"


def _carriers(subject: Subject, graph: Graph, name: str) -> tuple[list[int], bool]:
    """Return the weightless layers that lead from inputs to a node, and whether one of those inputs has floats."""
    pending, seen = list(graph.nodes[name].parents), set[str]()
    between: list[int] = []
    from_floats = False
    while pending:
        parent = pending.pop()
        if parent in seen or parent not in graph.nodes:
            continue
        seen.add(parent)
        index = graph.nodes[parent].site
        if index is not None and subject.is_input(index):
            from_floats |= float_inputs(subject, index)
        elif index is None or not (subject.has_weights(index) or subject.children[index]):
            between += [index] if index is not None else []
            pending += graph.nodes[parent].parents
    return between, from_floats


RULE: Final = KeepRule(name="identifiers", find=find)
