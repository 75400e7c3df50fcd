"""
A ``keras_metadata.pb`` without the rest of its SavedModel, as it is often published.

Each node has its first path in the object graph (``root.layer_with_weights-0``). The file has no
nodes for objects without metadata, such as lists of layers, and no variables. A rewrite edits the
metadata and keeps all other bytes.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from policytool.formats.base import Format, parse_json
from policytool.formats.document import Document, ObjectNode, Observation, Writer
from policytool.formats.saved_model import KERAS, KERAS_PREFIX
from policytool.support import limits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from policytool.formats.base import Probe
    from policytool.formats.writers import Changes, FileChange
    from policytool.support.text.protobuf_splice import Span

_NODES_TAG: Final = b"\n"
"""The first byte of the file: field 1 of Keras' SavedMetadata, delimited by its length."""

_ROOT: Final = b"\x1a\x04root"
"""The path of the model's own node, which is the first."""

_NEAR: Final = 64
"""The number of bytes with the first node's path and identifier, which precede its metadata."""

_UTF8_REPLACEMENT: Final = b"\xef\xbf\xbd"
_LAYER: Final = re.compile(r"layer(?:_with_weights)?-\d+")

_NODES: Final = 1
_ID: Final = 2
_TEXTS: Final = {3: "path", 4: "identifier", 5: "metadata"}
"""Fields of SavedMetadata and of its SavedObject (keras/protobuf/saved_metadata.proto)."""


def recognise(probe: Probe) -> bool:
    """
    Return whether a file begins like Keras' metadata: with a node that is a Keras object or the
    root.
    """
    if probe.is_directory or not probe.head.startswith(_NODES_TAG):
        return False
    head = probe.head[:_NEAR]
    return _ROOT in head or (KERAS_PREFIX.encode() in head and b"\x1a" in head)


def read(probe: Probe) -> Document:
    """Return the document of a ``keras_metadata.pb`` that is read without its SavedModel."""
    nodes = dict(_nodes(probe))
    root = next((number for number, node in nodes.items() if node["path"] == "root"), None)
    if root is None:
        raise probe.failure(
            "metadata-rootless",
            f"contains {len(nodes)} objects, but no model; expected a {KERAS} written by Keras",
        )
    observations: list[Observation] = []
    probe.check_limit(
        limits.JSON_BYTES,
        sum(len(node["metadata"]) for node in nodes.values()),
        "json-limit",
        "has JSON metadata of",
    )
    return Document(
        path=probe.shown,
        format="keras-metadata",
        parts={
            f"{KERAS}#{number}": parse_json(
                probe, node["metadata"], f"{KERAS}#{number}", observations
            )
            for number, node in nodes.items()
        },
        config_part=f"{KERAS}#{root}",
        nodes=_graph(nodes, root),
        writer=Writer(backend="tensorflow"),
        observations=tuple(observations),
    )


def _nodes(probe: Probe) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each object's number with its path, identifier and metadata."""
    from policytool.support.text import protobuf_splice  # only for files of this format

    data = probe.content(limits.PROTO_BYTES, "proto-limit", "has")
    try:
        for count, span in enumerate(protobuf_splice.spans(data, _NODES), 1):
            probe.check_limit(limits.OBJECT_NODES, count, "proto-limit", "has", counting=True)
            yield _node(data, span)
    except protobuf_splice.WireError as error:
        if _UTF8_REPLACEMENT in data[:4096]:
            raise probe.failure(
                "mangled",
                (
                    "was damaged by a text tool, which replaced bytes with U+FFFD; copy the "
                    "original in binary mode"
                ),
            ) from error
        raise probe.failure(
            "truncated", f"is not a complete {KERAS}: {error}; copy or download it again"
        ) from error


def _node(data: bytes, span: Span) -> tuple[int, dict[str, Any]]:
    """Return the number of an object, and its other fields by name."""
    from policytool.support.text import protobuf_splice  # only for files of this format

    number = 0
    node = dict.fromkeys(_TEXTS.values(), b"")
    for field in protobuf_splice.fields(data, span.start, span.end):
        if field.number == _ID and field.span is None:
            number = field.value
        elif field.number in _TEXTS and field.span is not None:
            node[_TEXTS[field.number]] = data[field.span.start : field.span.end]
    return number, {
        **node,
        "path": node["path"].decode("utf-8", "replace"),
        "identifier": node["identifier"].decode("utf-8", "replace"),
    }


def _graph(nodes: dict[int, dict[str, Any]], root: int) -> dict[int, ObjectNode]:
    """
    Return the objects with the edges that follow from their paths, and the missing objects between
    them as containers.

    Objects are numbered in the order in which models track them, so a model's layers keep their
    order. The model is node 0, as in a SavedModel.
    """
    numbers = {str(node["path"]): number for number, node in sorted(nodes.items(), reverse=True)}
    next_number = max(nodes) + 1
    edges: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for number, node in sorted(nodes.items()):
        path, inner = str(node["path"]), number
        while path != "root":
            path, _, label = path.rpartition(".")
            if not path:
                break
            outer = numbers.get(path)
            known = outer is not None
            if outer is None:
                outer, next_number = next_number, next_number + 1
                numbers[path] = outer
            edges[outer].append((label, inner))
            if known:
                break
            inner = outer
    identifiers = {number: str(node["identifier"]) for number, node in nodes.items()}
    zero = {root: 0, 0: root} if root else {}
    return {
        zero.get(number, number): ObjectNode(
            id=zero.get(number, number),
            identifier=identifiers.get(number, "trackable_list_wrapper"),
            children=tuple(
                (label, zero.get(child, child)) for label, child in _number_layers(edges[number])
            ),
            part=f"{KERAS}#{number}" if number in nodes else None,
        )
        for number in sorted({*nodes, *range(max(nodes) + 1, next_number)})
    }


def _number_layers(edges: list[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """
    Yield the edges. Each layer is labelled ``layer-N`` by its position, because Keras labels layers
    with weights ``layer_with_weights-N``, with other numbers.
    """
    position = 0
    for label, child in edges:
        if _LAYER.fullmatch(label):
            yield f"layer-{position}", child
            position += 1
        else:
            yield label, child


def file_changes(path: Path, changes: Changes) -> Mapping[str, FileChange]:
    """
    Return the change to the metadata file. Its name is empty because the model is this one file.
    """
    from policytool.formats.saved_model.rewrite import MetadataChange
    from policytool.formats.writers import refuse_casts

    refuse_casts(path, changes.casts)
    return {"": MetadataChange(file=KERAS, edits=changes.edits)}


FORMAT: Final = Format(
    package=__name__,
    reader=f"{__name__}:read",
    changes_finder=f"{__name__}:file_changes",
    document_format="keras-metadata",
    title="a keras_metadata.pb file",
    suffixes=(".pb",),
    recognise=recognise,
)
