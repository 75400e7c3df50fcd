"""
The layers of a SavedModel's object graph.

Each Keras object is a node with separate metadata. Configs repeat the layers of a model several
times, and only the graph has the children of a custom layer. Therefore the layers are nodes, which
are collected along the edges between objects.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from policytool.formats.document import Address
from policytool.model.tree.site import (
    BOOKKEEPING,
    CONTAINERS,
    LAYERS,
    MODEL_CLASSES,
    MODEL_IDENTIFIERS,
    Site,
    Unspelled,
    split_class,
    with_shared_places,
)
from policytool.releases import keras_objects
from policytool.releases.keras_objects import snake_case
from policytool.support import limits, steps
from policytool.support.errors import LimitError
from policytool.support.grouping import EachOnce, group_pairs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.formats.document import Document, ObjectNode
    from policytool.support.text.jsontext import Json

_LAYER: Final = re.compile(r"_tf_keras_(?!metric)\w+")
_LISTED: Final = re.compile(r"layer-(\d{1,9})")

_LAST: Final = frozenset({"layers", "_layers", "_self_tracked_trackables", "loss", "metrics"})
"""
Edges that usually lead to the targets of other edges, but may be an attribute in custom code. They
are followed last.
"""


@dataclass
class _Walk:
    """The state of a walk through an object graph."""

    document: Document
    sites: list[Site] = field(default_factory=list)
    index_of: dict[int, int] = field(default_factory=dict)
    also_at: defaultdict[int, dict[tuple[str, ...], None]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """The additional places of each layer, by its index, each once."""

    uses: int = 0
    """The number of references to layers, and to lists and dicts that lead to layers."""

    characters: int = 0
    """The total length of the attributes that lead through lists and dicts."""

    def count_use(self, attribute: str = "") -> None:
        """
        Count a layer, or a list or dict that is the value of the attribute.

        :raises LimitError: if the count exceeds a limit.
        """
        self.uses += 1
        self.characters += len(attribute)
        if excess := limits.LAYERS.exceeded_message(
            self.uses, counting=True
        ) or limits.PATH_CHARACTERS.exceeded_message(self.characters, counting=True):
            raise LimitError(f"its object graph contains {excess}")

    @cached_property
    def holders(self) -> frozenset[int]:
        """The lists and dicts that contain a layer, at any depth; the others can be skipped."""
        nodes = self.document.nodes
        steps.spend(sum(len(node.children) for node in nodes.values()), walk="edges of objects")
        above = group_pairs(
            (child, node.id)
            for node in nodes.values()
            if node.identifier in CONTAINERS
            for _, child in node.children
        )
        walk = EachOnce(
            holder
            for node in nodes.values()
            if node.identifier not in CONTAINERS and _is_layer(self.document, node)
            for holder in above.get(node.id, ())
        )
        for holder in walk:
            walk.add(above.get(holder, ()))
        return frozenset(walk.visited)


def sites(document: Document) -> tuple[Site, ...]:
    """
    Return each layer of the object graph once, the model itself first. If the root is a
    ``tf.Module``, return the layers in it.

    :raises LimitError: if the graph exceeds a limit.
    """
    walk = _Walk(document=document)
    root = document.nodes.get(0)
    if root is not None and _is_layer(document, root):
        _visit(walk, root, None, LAYERS, 0)
    elif root is not None:
        for label, node in _layer_edges(walk, root):
            _visit(walk, node, None, label, 1)
    return with_shared_places(walk.sites, walk.also_at, {})


def _visit(walk: _Walk, node: ObjectNode, parent: int | None, attribute: str, depth: int) -> None:
    """
    Add the layer of a node and all layers below it; a node that was already added gets another
    path.
    """
    walk.count_use()
    if excess := limits.LAYER_DEPTH.exceeded_message(depth, counting=True):
        raise LimitError(f"its object graph nests layers to a depth of {excess}")
    metadata = _metadata(walk.document, node)
    serialized = keras_objects.require(metadata)
    class_name, registered = split_class(serialized)
    config = serialized.config
    name = metadata.get("name")
    above = walk.sites[parent].names if parent is not None else ()
    names = (*above, name if isinstance(name, str) and name else snake_case(class_name))
    known = walk.index_of.get(node.id)
    if known is not None:
        if names != walk.sites[known].names:
            walk.also_at[known].setdefault(names)
        return
    walk.index_of[node.id] = len(walk.sites)
    index = len(walk.sites)
    in_config = isinstance(config, dict) and "dtype" in config
    stored_dtype: Json | Unspelled = (
        config["dtype"]
        if in_config and isinstance(config, dict)
        else metadata.get("dtype", Unspelled.ABSENT)
    )
    autocast = metadata.get("autocast")
    walk.sites.append(
        Site(
            names=names,
            class_name=class_name,
            registered_name=registered,
            attribute=attribute,
            parent=parent,
            spelled=stored_dtype,
            entry=Address(part=node.part or "", pointer=""),
            address=Address(
                part=node.part or "", pointer="/config/dtype" if in_config else "/dtype"
            ),
            autocast=autocast if isinstance(autocast, bool) else None,
            is_model=class_name in MODEL_CLASSES or node.identifier in MODEL_IDENTIFIERS,
            config=config if isinstance(config, dict) else None,
            node=node.id,
        )
    )
    for label, child in _layer_edges(walk, node):
        _visit(walk, child, index, label, depth + 1)


def _layer_edges(walk: _Walk, node: ObjectNode) -> Iterator[tuple[str, ObjectNode]]:
    """
    Yield the layers that an object contains: first those of a model in their order, then those in
    attributes, including lists and dicts.
    """
    document = walk.document
    listed: dict[int, int] = {
        int(match[1]): child
        for label, child in node.children
        if (match := _LISTED.fullmatch(label))
    }
    for position in sorted(listed):
        child = document.nodes.get(listed[position])
        if child is not None and _is_layer(document, child):
            yield LAYERS, child
    visited = {node.id, *listed.values()}
    pending = [
        (label, child)
        for label, child in reversed(node.children)
        if label not in BOOKKEEPING and child not in visited
    ]
    pending.sort(key=lambda edge: edge[0] not in _LAST)  # stable; the loop pops from the end
    while pending:
        label, number = pending.pop()
        child = document.nodes.get(number)
        if child is None or number in visited:
            continue
        visited.add(number)
        if _is_layer(document, child):
            yield label, child
        elif number in walk.holders:
            for inner, grandchild in reversed(child.children):
                attribute = f"{label}/{inner}"
                walk.count_use(attribute)
                pending.append((attribute, grandchild))


def _is_layer(document: Document, node: ObjectNode) -> bool:
    return (
        _LAYER.fullmatch(node.identifier) is not None
        and keras_objects.class_of(_metadata(document, node)) is not None
    )


def _metadata(document: Document, node: ObjectNode) -> dict[str, Json]:
    metadata = document.parts.get(node.part or "")
    return metadata if isinstance(metadata, dict) else {}
