"""
What the checkpoint of a SavedModel stores for each object of its graph: shapes and dtypes, from the
index of the checkpoint and from its object graph. Values are not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from policytool.formats.checkpoint.bundle import VALUE, Bundle, attributes_of, open_bundle
from policytool.formats.document import Observation, Tensor
from policytool.formats.saved_model import CHECKPOINT, DAMAGE
from policytool.formats.saved_model.graph_bodies import text
from policytool.support.errors import BundleError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from policytool.formats.base import Probe
    from policytool.formats.checkpoint.bundle import Attribute

_DAMAGED: Final = frozenset(
    {
        "checkpoint-damaged",
        "checkpoint-incomplete",
        "checkpoint-v1",
        "empty",
        "foreign",
        "html-page",
        "lfs-pointer",
        "truncated",
    }
)
"""The codes of errors about checkpoints that no release can read."""

_TABLE: Final = ("-keys", "-values")
"""The ends of the keys of a lookup table (``MutableHashTable`` in lookup_ops.py)."""

_NAME: Final = "table"
"""The name of a lookup table in its key, which TF 2.9 does not store with the key."""


def restored_values(
    probe: Probe,
    objects: Any,  # message classes made at run time have no static type
    observations: list[Observation],
) -> Mapping[int, Tensor | None]:
    """
    Return the stored values of the objects in a graph by node, as TensorFlow restores them; empty
    if the checkpoint cannot be read. Add an observation for a damaged index or data file.
    """
    try:
        bundle = open_bundle(probe.path.joinpath(*CHECKPOINT))
        for error in bundle.lacking():
            raise error
        attributes = attributes_of(bundle, _children(objects), dict(_slots(objects)))
    except BundleError as error:
        observations.append(
            Observation(
                code=DAMAGE if error.code in _DAMAGED else error.code,
                message=error.message,
                where=CHECKPOINT[0],
            )
        )
        return {}
    return {
        node: _first_value(bundle, attributes.get(node, ()), node)
        for node, message in enumerate(objects.nodes)
        if message.HasField("variable") or attributes.get(node)
    }


def _first_value(bundle: Bundle, attributes: Sequence[Attribute], node: int) -> Tensor | None:
    """Return the first value of an object; None if it has none, or if a value is missing."""
    keys = [key for attribute in attributes for key in _keys(bundle, attribute)]
    if not keys or not all(key in bundle.entries for key in keys):
        return None
    first = bundle.entries[keys[0]]
    path = tuple(first.key.split("/"))
    return Tensor(path=path, shape=first.shape, dtype=first.dtype, node=node, key=first.key)


def _keys(bundle: Bundle, attribute: Attribute) -> tuple[str, ...]:
    """Return the keys of an attribute; a lookup table stores its keys and its values."""
    if attribute.name == VALUE or attribute.key in bundle.entries:
        return (attribute.key,)
    table = attribute.key if attribute.name else f"{attribute.key}{_NAME}"
    return tuple(f"{table}{end}" for end in _TABLE)


def _children(objects: Any) -> dict[int, list[tuple[str, int]]]:
    """Return the edges of each node to existing nodes."""
    count = len(objects.nodes)
    return {
        node: [
            (text(edge.local_name), edge.node_id)
            for edge in message.children
            if 0 <= edge.node_id < count
        ]
        for node, message in enumerate(objects.nodes)
    }


def _slots(objects: Any) -> Iterator[tuple[int, list[tuple[int, str, int]]]]:
    """Yield the slot variables of each optimizer."""
    for node, message in enumerate(objects.nodes):
        if message.slots:
            yield (
                node,
                [(slot.original_node, text(slot.name), slot.node) for slot in message.slots],
            )
