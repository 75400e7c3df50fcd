"""
The object graph in a checkpoint of TF 2: which object holds which under which name, and the keys of
their tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from policytool.support import limits
from policytool.support.errors import BundleError
from policytool.support.text import protobuf_messages

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def parse(data: bytes) -> ObjectGraph:
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
