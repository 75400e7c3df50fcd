"""
A small writer of checkpoints, for files that TensorFlow does not write: damaged, foreign, hostile,
or of any content that a property asks for.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, Any, Final

from policytool.formats.checkpoint.bundle import OBJECT_GRAPH_KEY, Bundle, _index, keys_of
from policytool.releases import dtypes
from policytool.support.text import protobuf_messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

MAGIC: Final = bytes.fromhex("57fb808b247547db")
ENUM: Final = {name: number for number, name in dtypes.OF_TENSORFLOW_ENUM.items()}


def varint(number: int) -> bytes:
    """Return a number in groups of seven bits."""
    groups = [number >> shift & 0x7F for shift in range(0, max(number.bit_length(), 1), 7)]
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])


def block(
    pairs: Iterable[tuple[bytes, bytes]], compression: int = 0, restart_every: int = 16
) -> bytes:
    """
    Return a block of a table with its trailer; keys share what they have in common with the one
    before, but for every some.
    """
    data, restarts, last = b"", [], b""
    for index, (key, value) in enumerate(pairs):
        shared = 0
        if index % restart_every == 0:
            restarts.append(len(data))
        else:
            shared = len(os.path.commonprefix([key, last]))  # noqa: RUF071  # byte by byte is what is wanted
        data += (
            varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        )
        last = key
    data += (
        b"".join(struct.pack("<I", place) for place in restarts or [0])
        + struct.pack("<I", max(len(restarts), 1))
        + bytes([compression])
    )
    return data + struct.pack("<I", _index.masked_checksum(_index.extend_checksum(0, data)))


def table(blocks: Sequence[Sequence[tuple[bytes, bytes]]], compression: int = 0) -> bytes:
    """Return a table of these blocks."""
    data, handles = b"", []
    for pairs in blocks:
        result = block(pairs, compression)
        handles.append(
            (pairs[-1][0] if pairs else b"", varint(len(data)) + varint(len(result) - 5))
        )
        data += result
    return finished(data, handles)


def finished(data: bytes, handles: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return blocks as a table: with an empty block, one that lists the blocks, and the footer."""
    meta, index = block([]), block(handles)
    footer = (
        varint(len(data))
        + varint(len(meta) - 5)
        + varint(len(data) + len(meta))
        + varint(len(index) - 5)
    )
    return data + meta + index + footer.ljust(40, b"\0") + MAGIC


def header(shards: int = 1, endianness: int = 0, min_consumer: int = 0) -> tuple[bytes, bytes]:
    """Return the first pair of an index."""
    message = protobuf_messages.parse("BundleHeader", b"")
    message.shards, message.endianness, message.version.producer, message.version.min_consumer = (
        shards,
        endianness,
        1,
        min_consumer,
    )
    return b"", message.SerializeToString()


def entry(
    dtype: str | int, shape: Sequence[int], data: bytes, offset: int = 0, **fields: Any
) -> Any:
    """Return an index's entry for a tensor; ``fields`` overrule what is derived."""
    message = protobuf_messages.parse("BundleEntry", b"")
    message.dtype = ENUM[dtype] if isinstance(dtype, str) else dtype
    message.shape.SetInParent()
    for size in shape:
        message.shape.dims.add(size=size)
    message.offset, message.size, message.checksum = (
        offset,
        len(data),
        _index.masked_checksum(_index.extend_checksum(0, data)),
    )
    for name, value in fields.items():
        setattr(message, name, value)
    return message


def write(
    prefix: Path, tensors: Mapping[str, tuple[str, Sequence[int], bytes]], per_block: int = 3
) -> None:
    """Write a checkpoint of tensors (dtype, shape, bytes) in one shard."""
    values, pairs = b"", [header()]
    for key, (dtype, shape, data) in sorted(tensors.items(), key=lambda item: item[0].encode()):
        message = entry(dtype, shape, data, len(values))
        if dtype == "string":
            message.checksum = strings_checksum(data, len(shape))
        pairs.append((key.encode(), message.SerializeToString()))
        values += data
    prefix.with_name(f"{prefix.name}.data-00000-of-00001").write_bytes(values)
    write_index(
        prefix, [pairs[start : start + per_block] for start in range(0, len(pairs), per_block)]
    )


def write_index(
    prefix: Path, blocks: Sequence[Sequence[tuple[bytes, bytes]]], compression: int = 0
) -> None:
    """Write an index alone."""
    prefix.with_name(f"{prefix.name}.index").write_bytes(table(blocks, compression))


def text(value: bytes) -> bytes:
    """Return one string as a tensor of it is stored."""
    length = struct.pack("<I", len(value))
    return (
        varint(len(value))
        + struct.pack("<I", _index.masked_checksum(_index.extend_checksum(0, length)))
        + value
    )


def strings_checksum(data: bytes, rank: int) -> int:
    """
    Return the checksum of a stored scalar string, which is of its length as a fixed number, that
    number's checksum and the text.
    """
    assert rank == 0
    start = next(index for index, byte in enumerate(data) if byte < 0x80) + 1
    length = len(data) - start - 4
    return _index.masked_checksum(
        _index.extend_checksum(_index.extend_checksum(0, struct.pack("<I", length)), data[start:])
    )


def keys_of_objects(directory: Path, bundle: Bundle) -> tuple[Sequence[Any], dict[int, str]]:
    """Return the objects of a SavedModel, and the keys of their values by their positions."""
    saved: Any = protobuf_messages.parse("SavedModel", (directory / "saved_model.pb").read_bytes())
    nodes = saved.meta_graphs[0].object_graph.nodes
    children = {
        index: [(edge.local_name.decode(), edge.node_id) for edge in node.children]
        for index, node in enumerate(nodes)
    }
    slots = {
        index: [(slot.original_node, slot.name.decode(), slot.node) for slot in node.slots]
        for index, node in enumerate(nodes)
    }
    return nodes, dict(keys_of(bundle, children, slots))


def object_graph(
    nodes: Sequence[tuple[Sequence[tuple[str, int]], Sequence[tuple[str, str]]]],
) -> tuple[str, tuple[str, Sequence[int], bytes]]:
    """
    Return the tensor of an object graph: for each node its edges, and the full names and keys of
    its values.
    """
    graph = protobuf_messages.parse("TrackableGraph", b"")
    for children, values in nodes:
        node = graph.nodes.add()
        for name, child in children:
            node.children.add(local_name=name.encode(), node_id=child)
        for full_name, key in values:
            node.attributes.add(
                name=b"VARIABLE_VALUE", full_name=full_name.encode(), checkpoint_key=key.encode()
            )
    return OBJECT_GRAPH_KEY, ("string", (), text(graph.SerializeToString()))
