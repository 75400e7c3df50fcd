"""
TensorFlow's checkpoints (tensor bundles, "V2"), read without TensorFlow.

A bundle is ``PREFIX.index``, a sorted table from key to dtype, shape and place, and shards
``PREFIX.data-NNNNN-of-MMMMM`` that hold the values. ``model.save_weights``,
``tf.train.Checkpoint``, TF 1's ``Saver`` and the ``variables/`` of a SavedModel are all bundles.
Bundles of TF 2 also contain an object graph, which maps objects to their tensors and names.

    bundle = open_bundle(Path("variables/variables"))
    for key, entry in bundle.entries.items():
        for chunk in bundle.chunks(entry): # verified: the last chunk comes only after the checksum
            ...

Opening reads only the index; a shard is opened when one of its tensors is read.

Sources: tensorflow/core/util/tensor_bundle/{tensor_bundle,naming}.cc,
tensorflow/core/lib/io/{table,block,format}.cc.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from policytool.formats.base import failed_download
from policytool.formats.checkpoint import INDEX
from policytool.formats.checkpoint.bundle import _index, _values
from policytool.formats.checkpoint.bundle._index import STRING, Entry, Part, check_limit, is_table
from policytool.support import limits, steps
from policytool.support.errors import BundleError
from policytool.support.files import opening
from policytool.support.text import protobuf_messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from policytool.support.files.remote_path import AnyPath


_VERSION: Final = 1
"""``kTensorBundleVersion`` of the supported format, the only version that exists."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bundle:
    """A checkpoint, whose values are read on demand."""

    prefix: AnyPath
    """The path of the index without ``.index``."""

    entries: Mapping[str, Entry]
    """
    The tensors by key, in the order of the file, which is sorted by key. A partitioned variable is
    a single entry.
    """

    _shards: _values.Shards = field(repr=False)

    def chunks(self, entry: Entry) -> Iterator[bytes]:
        """
        Yield a tensor's stored bytes, the C order of its values, in chunks of at most 1 MiB.

        The parts of a partitioned variable are yielded as one tensor. The bytes of a string tensor
        include its lengths and checksum, so that equal strings have equal bytes; :meth:`strings`
        splits them. A partitioned tensor is verified when the iterator ends; any other tensor is
        verified before its last chunk is yielded.

        :raises BundleError: if the shard is missing or truncated, the checksum differs, or the
            dtype is not supported.
        :raises OSError: if a file cannot be read.
        """
        return _values.chunks(self._shards, entry)

    def strings(self, entry: Entry) -> tuple[bytes, ...]:
        """
        Return the elements of a tensor of strings, verified, in C order.

        :raises BundleError: as in :meth:`chunks`, and for a tensor of another dtype.
        :raises OSError: if a file cannot be read.
        """
        if entry.dtype != STRING or entry.slices:
            raise BundleError(
                "checkpoint-unsupported", f"{entry.key} is partitioned or is not a string tensor"
            )
        return _values.strings(self._shards, entry)

    def objects(self) -> ObjectGraph | None:
        """
        Return the object graph; None if the checkpoint has none, as in TF 1.

        :raises BundleError: if the object graph is invalid.
        :raises OSError: if a file cannot be read.
        """
        entry = self.entries.get(OBJECT_GRAPH_KEY)
        if entry is None:
            return None
        if entry.dtype != STRING or entry.shape:
            raise BundleError(
                "checkpoint-damaged",
                f"{self.prefix.name}{INDEX} is damaged: its object graph is not a string",
            )
        try:
            return parse_object_graph(self.strings(entry)[0])
        except ValueError as error:
            raise BundleError(
                "checkpoint-damaged",
                f"the object graph of {self.prefix.name} is damaged: it {error}",
            ) from error

    def lacking(self) -> Iterator[BundleError]:
        """
        Yield an error for each shard that is missing or too short for its tensors. Only the status
        of each shard is read, and no values.
        """
        ends: dict[int, Entry] = {}
        for entry in _stored_entries(self.entries.values()):
            last = ends.get(entry.shard)
            if last is None or entry.offset + entry.size > last.offset + last.size:
                ends[entry.shard] = entry
        for number, entry in sorted(ends.items()):
            try:
                with self._shards.open_shard(number) as shard:
                    shard.check(entry)
            except BundleError as error:
                yield error


def open_bundle(prefix: AnyPath) -> Bundle:
    """
    Return the checkpoint with this prefix, its path without ``.index``.

    Every block of the index is verified, and all shapes, sizes and offsets are checked for
    consistency. A shard is opened when it is read.

    :raises BundleError: if there is no readable checkpoint, with a code and a message.
    :raises OSError: if the index cannot be read.
    """
    path = prefix.with_name(prefix.name + INDEX)
    name = path.name
    pairs = _index.read_table(_content(path), name)
    try:
        header = _header(next(pairs, None), name)
        entries: dict[bytes, Entry] = {}
        slices: dict[bytes, Entry] = {}
        partitioned: dict[bytes, tuple[tuple[tuple[int, int], ...], ...]] = {}
        for key, value in pairs:
            entry, parts = _index.parse(key, value, name)
            if entry.shard >= header.shards:
                raise ValueError(
                    f"{entry.key} refers to data file {entry.shard}, but the number of data files "
                    f"is {header.shards}",
                )
            (slices if key.startswith(_index.MARK) else entries)[key] = entry
            if parts:
                partitioned[key] = parts
        for key, parts in partitioned.items():
            entries[key] = _index.assembled_entry(entries[key], key, parts, slices)
        _check_places(_stored_entries(entries.values()))
        entries_by_name = {key.decode("utf-8"): entry for key, entry in entries.items()}
    except ValueError as error:
        raise BundleError(
            "checkpoint-damaged", f"{name} is damaged: {error}; copy or download it again"
        ) from error
    return Bundle(
        prefix=prefix,
        entries=entries_by_name,
        _shards=_values.Shards(prefix=prefix, count=header.shards),
    )


def _content(path: AnyPath) -> bytes:
    """Return the bytes of an index, or raise an error with the reason why it cannot be read."""
    try:
        data = opening.read_bounded(path, limits.CHECKPOINT_INDEX_BYTES)
    except FileNotFoundError as error:
        raise BundleError("not-found", f"{path.name} does not exist; check the path") from error
    except (opening.NotRegularError, IsADirectoryError) as error:
        raise BundleError(
            "foreign", f"{path.name} is not a file; expected the index of a checkpoint"
        ) from error
    except opening.TooLargeError as error:
        raise BundleError("checkpoint-limit", f"{path.name} has {error.excess}") from error
    if problem := failed_download(data[:4096]):
        raise BundleError(problem[0], f"{path.name} {problem[1]}")
    return data


def _header(
    first: tuple[bytes, bytes] | None, name: str
) -> Any:  # message classes made at run time have no static type
    """
    Return the header of an index, after checking that this version of the format is supported.
    """
    if first is None or first[0]:
        raise ValueError("it has no header")
    header = protobuf_messages.parse("BundleHeader", first[1])
    if header.shards < 1 and not header.HasField("version"):
        raise BundleError(
            "checkpoint-v1",
            (
                f"{name} is a V1 checkpoint, the format used before TensorFlow 1.0; save it "
                "again with a newer tf.train.Saver"
            ),
        )
    if header.endianness:
        raise BundleError(
            "checkpoint-unsupported",
            f"{name} was written on a big-endian machine; save the checkpoint again on a "
            "little-endian machine",
        )
    if header.version.min_consumer > _VERSION or _VERSION in header.version.bad_consumers:
        raise BundleError(
            "checkpoint-unsupported",
            f"{name} requires reader version {header.version.min_consumer}, but "
            f"policytool supports only version {_VERSION}",
        )
    if header.shards < 1:
        raise ValueError(f"it declares {header.shards} data files")
    check_limit(limits.CHECKPOINT_SHARDS, header.shards, f"{name} declares")
    return header


def _stored_entries(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield the entries with stored bytes; for a partitioned variable, the entries of its parts."""
    for entry in entries:
        yield from (part.entry for part in entry.slices) if entry.slices else (entry,)


def _check_places(entries: Iterable[Entry]) -> None:
    """
    Raise an error if tensors share bytes, because a few bytes could represent any number of
    tensors. No release writes such files.
    """
    for before, after in pairwise(
        sorted(
            (entry.shard, entry.offset, entry.size, entry.key) for entry in entries if entry.size
        )
    ):
        if before[0] == after[0] and before[1] + before[2] > after[1]:
            raise ValueError(f"{before[3]} and {after[3]} overlap")


OBJECT_GRAPH_KEY: Final = "_CHECKPOINTABLE_OBJECT_GRAPH"
VALUE: Final = "VARIABLE_VALUE"
"""The name of the attribute with a variable's value."""


class Attribute(Struct, frozen=True, kw_only=True):
    """A saved tensor of an object."""

    name: str
    """
    :data:`VALUE` for a variable's value; other names are for lookup tables, Python state and so on.
    """

    full_name: str
    """The variable's name, such as ``dense/kernel``; empty if the object had no name."""

    key: str
    """The tensor's key in the checkpoint."""


class SlotVariable(Struct, frozen=True, kw_only=True):
    """An optimizer's variable for another variable, such as Adam's ``m``."""

    variable: int
    """The node of that other variable."""

    name: str
    node: int


class Trackable(Struct, frozen=True, kw_only=True):
    """One object of the graph."""

    children: tuple[tuple[str, int], ...] = ()
    """The names and nodes of the object's children, in the order of the file."""

    attributes: tuple[Attribute, ...] = ()
    slots: tuple[SlotVariable, ...] = ()


class ObjectGraph(Struct, frozen=True, kw_only=True):
    """All objects by number; 0 is the root."""

    nodes: tuple[Trackable, ...]


def parse_object_graph(data: bytes) -> ObjectGraph:
    """
    Return the object graph; edges to nodes that do not exist are left out.

    :raises ValueError: for data that is not an object graph.
    :raises BundleError: for an object graph that exceeds a limit.
    """
    check_limit(limits.CHECKPOINT_GRAPH_BYTES, len(data), "its object graph has")
    try:
        message = protobuf_messages.parse("TrackableGraph", data)
    except protobuf_messages.MessagesError as error:
        raise BundleError("checkpoint-limit", f"its object graph has {error}") from error
    count = len(message.nodes)
    check_limit(limits.OBJECT_NODES, count, "its object graph has")
    return ObjectGraph(nodes=tuple(_node(node, count) for node in message.nodes))


def _node(
    message: Any, count: int
) -> Trackable:  # message classes made at run time have no static type
    """Return a node of the object graph, without edges to nodes that do not exist."""
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


def attributes_of(
    bundle: Bundle,
    children: Mapping[int, Sequence[tuple[str, int]]],
    slots: Mapping[int, Sequence[tuple[int, str, int]]] | None = None,
) -> Mapping[int, tuple[Attribute, ...]]:
    """
    Return the saved tensors of each object in another object graph, such as a SavedModel's, whose
    root is 0.

    Node numbers differ between graphs. Both graphs are therefore traversed breadth first from their
    roots along the same edge names, and each object keeps the first partner. ``slots`` has the
    slot variables of each optimizer: the node of the variable, the name of the slot, and the node
    of the slot variable. Objects in only one of the graphs are left out. The result is empty if the
    checkpoint has no object graph (TF 1).

    :raises BundleError: if the checkpoint's object graph cannot be read.
    """
    graph = bundle.objects()
    if graph is None or not graph.nodes:
        return {}
    partners = _partners(graph, children)
    for node, kept in (slots or {}).items():
        _match_slots(graph, partners, node, kept)
    return {node: graph.nodes[partner].attributes for node, partner in partners.items()}


def keys_of(
    bundle: Bundle,
    children: Mapping[int, Sequence[tuple[str, int]]],
    slots: Mapping[int, Sequence[tuple[int, str, int]]] | None = None,
) -> Mapping[int, str]:
    """
    Return the key in the checkpoint of each variable in another object graph; the arguments are
    those of :func:`attributes_of`.

    :raises BundleError: if the checkpoint's object graph cannot be read.
    """
    return {
        node: attribute.key
        for node, attributes in attributes_of(bundle, children, slots).items()
        for attribute in attributes
        if attribute.name == VALUE and attribute.key in bundle.entries
    }


def _partners(
    graph: ObjectGraph, children: Mapping[int, Sequence[tuple[str, int]]]
) -> dict[int, int]:
    """Return the checkpoint's node for each node that is in both graphs."""
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
        for _, below, child in sorted(
            (*edges[partner][name], child)
            for name, child in dict(child_edges).items()
            if name in edges[partner]
        ):
            if child not in partners:
                partners[child] = below
                pending.append(child)
    return partners


def _edges(node: Trackable) -> dict[str, tuple[int, int]]:
    """Return the position and the node of each edge by name; the first edge of equal names."""
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
    """Add the nodes of an optimizer's slots to the partners, by weight and name of the slot."""
    if optimizer not in partners:
        return
    stored = {
        (slot.variable, slot.name): slot.node for slot in graph.nodes[partners[optimizer]].slots
    }
    for variable, name, node in kept:
        partner = stored.get((partners.get(variable, -1), name))
        if partner is not None:
            partners.setdefault(node, partner)


__all__ = [
    "OBJECT_GRAPH_KEY",
    "STRING",
    "VALUE",
    "Attribute",
    "Bundle",
    "BundleError",
    "Entry",
    "ObjectGraph",
    "Part",
    "SlotVariable",
    "Trackable",
    "attributes_of",
    "check_limit",
    "is_table",
    "keys_of",
    "open_bundle",
]
