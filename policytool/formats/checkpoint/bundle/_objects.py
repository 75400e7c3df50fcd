"""
The object graph in a checkpoint of TF 2: which object holds which under which name, and the keys of
their tensors.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from policytool.support import limits, steps
from policytool.support.errors import BundleError
from policytool.support.text import protobuf_messages

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from policytool.formats.checkpoint.bundle._bundle import Bundle


OBJECT_GRAPH_KEY: Final = "_CHECKPOINTABLE_OBJECT_GRAPH"
VALUE: Final = "VARIABLE_VALUE"
"""The attribute of a variable that is its value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Attribute:
    """A tensor that an object saved."""

    name: str
    """
    :data:`VALUE` for a variable's value; others are for lookup tables, Python state and the like.
    """

    full_name: str
    """The variable's own name, such as ``dense/kernel``; empty where the object had none."""

    key: str
    """The tensor's key in the checkpoint."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotVariable:
    """A variable that an optimizer keeps for another, such as Adam's ``m``."""

    variable: int
    """The node of the variable that it is kept for."""

    name: str
    node: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Trackable:
    """One object."""

    children: tuple[tuple[str, int], ...] = ()
    """Names and nodes of what it holds, in the file's order."""

    attributes: tuple[Attribute, ...] = ()
    slots: tuple[SlotVariable, ...] = ()

    @property
    def value(self) -> Attribute | None:
        """The value, where the object is a variable."""
        return next((attribute for attribute in self.attributes if attribute.name == VALUE), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectGraph:
    """All objects by number; 0 is the root."""

    nodes: tuple[Trackable, ...]


def parse_object_graph(data: bytes) -> ObjectGraph:
    """
    Return the object graph; edges to nodes that do not exist are left out.

    :raises ValueError: for data that is not an object graph.
    :raises BundleError: for an object graph that exceeds a limit.
    """
    if excess := limits.CHECKPOINT_GRAPH_BYTES.exceeded_message(len(data)):
        raise BundleError("checkpoint-limit", f"its object graph has {excess}")
    try:
        message = protobuf_messages.parse("TrackableGraph", data)
    except protobuf_messages.MessagesError as error:
        raise BundleError("checkpoint-limit", f"its object graph has {error}") from error
    count = len(message.nodes)
    if excess := limits.OBJECT_NODES.exceeded_message(count):
        raise BundleError("checkpoint-limit", f"its object graph has {excess}")
    return ObjectGraph(nodes=tuple(_node(node, count) for node in message.nodes))


def _node(
    message: Any, count: int
) -> Trackable:  # message classes made at run time have no static type
    return Trackable(
        children=tuple(
            (_text(edge.local_name), edge.node_id)
            for edge in message.children
            if 0 <= edge.node_id < count
        ),
        attributes=tuple(
            Attribute(
                name=_text(attribute.name),
                full_name=_text(attribute.full_name),
                key=_text(attribute.checkpoint_key),
            )
            for attribute in message.attributes
        ),
        slots=tuple(_slots(message, count)),
    )


def _slots(message: Any, count: int) -> Iterator[SlotVariable]:
    for slot in message.slots:
        if 0 <= slot.original_node < count and 0 <= slot.node < count:
            yield SlotVariable(variable=slot.original_node, name=_text(slot.name), node=slot.node)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


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
