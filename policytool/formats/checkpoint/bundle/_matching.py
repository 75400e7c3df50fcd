"""
Which tensor of a checkpoint belongs to which variable of a SavedModel, found as TensorFlow finds
it.
"""

from __future__ import annotations

from collections import deque
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from policytool.support import steps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policytool.formats.checkpoint.bundle._bundle import Bundle
    from policytool.formats.checkpoint.bundle._objects import ObjectGraph, Trackable

_ROOT: Final = 0
_NONE: Final[Mapping[int, Sequence[tuple[int, str, int]]]] = MappingProxyType({})


def keys_of(
    bundle: Bundle,
    children: Mapping[int, Sequence[tuple[str, int]]],
    slots: Mapping[int, Sequence[tuple[int, str, int]]] = _NONE,
) -> Mapping[int, str]:
    """
    Return the checkpoint key of each variable in another object graph, such as a SavedModel's,
    whose root is 0.

    Both graphs are walked along the same edge names from their roots, breadth first, and an object
    stays with the first partner it meets: numbers of nodes differ from graph to graph. ``slots``
    gives each optimizer's slot variables: the node of the variable, the slot's name, and its own
    node. Objects that only one of the graphs has are left out, and so is everything where the
    checkpoint has no object graph (TF 1).

    :raises BundleError: where the checkpoint's object graph cannot be read.
    """
    graph = bundle.objects()
    if graph is None or not graph.nodes:
        return {}
    partners = _partners(graph, children)
    for node, kept in slots.items():
        _match_slots(graph, partners, node, kept)
    values = {partner: graph.nodes[partner].value for partner in set(partners.values())}
    return {
        node: value.key
        for node, partner in partners.items()
        if (value := values[partner]) is not None and value.key in bundle.entries
    }


def _partners(
    graph: ObjectGraph, children: Mapping[int, Sequence[tuple[str, int]]]
) -> dict[int, int]:
    """Return the checkpoint's node for each node that both graphs have."""
    partners = {_ROOT: _ROOT}
    pending = deque([_ROOT])
    edges: dict[int, dict[str, tuple[int, int]]] = {}
    while pending:
        node = pending.popleft()
        partner = partners[node]
        if partner not in edges:  # once, however many nodes have this partner
            edges[partner] = _edges(graph.nodes[partner])
        child_edges = children.get(node, ())
        steps.spend(1 + len(child_edges), walk="edges of objects")
        common_edges = sorted(
            (*edges[partner][name], child)
            for name, child in dict(child_edges).items()
            if name in edges[partner]
        )
        for _, below, child in common_edges:
            if child not in partners:
                partners[child] = below
                pending.append(child)
    return partners


def _edges(node: Trackable) -> dict[str, tuple[int, int]]:
    """Return the place and the node of each edge by its name; of equal names, the first."""
    steps.spend(len(node.children), walk="edges of objects")
    edges: dict[str, tuple[int, int]] = {}
    for place, (name, child) in enumerate(node.children):
        edges.setdefault(name, (place, child))
    return edges


def _match_slots(
    graph: ObjectGraph,
    partners: dict[int, int],
    optimizer: int,
    kept: Sequence[tuple[int, str, int]],
) -> None:
    if optimizer not in partners:
        return
    stored = {
        (slot.variable, slot.name): slot.node for slot in graph.nodes[partners[optimizer]].slots
    }
    for variable, name, node in kept:
        partner = stored.get((partners.get(variable, -1), name))
        if partner is not None:
            partners.setdefault(node, partner)
