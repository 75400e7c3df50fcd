"""
TensorFlow's checkpoints (tensor bundles, "V2"), read without TensorFlow.

A bundle is ``PREFIX.index``, a sorted table from key to dtype, shape and place, and shards
``PREFIX.data-NNNNN-of-MMMMM`` that hold the values. ``model.save_weights``,
``tf.train.Checkpoint``, TF 1's ``Saver`` and the ``variables/`` of a SavedModel are all bundles.
Those of TF 2 hold an object graph too: which object has which tensor, under which names.

    bundle = open_bundle(Path("variables/variables"))
    for key, entry in bundle.entries.items():
        for chunk in bundle.chunks(entry): # verified: the last chunk comes only after the checksum
            ...

Opening reads the index alone; a shard is opened when one of its tensors is read.

Sources: tensorflow/core/util/tensor_bundle/{tensor_bundle,naming}.cc,
tensorflow/core/lib/io/{table,block,format}.cc.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

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
"""``kTensorBundleVersion``: of the format that is read here, and the only one there has been."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bundle:
    """A checkpoint; nothing of its values is read until someone asks."""

    prefix: AnyPath
    """Its path without ``.index``."""

    entries: Mapping[str, Entry]
    """
    Its tensors by key, in the file's order, which is that of the keys; a partitioned variable once.
    """

    _shards: _values.Shards = field(repr=False)

    def chunks(self, entry: Entry) -> Iterator[bytes]:
        """
        Yield a tensor's stored bytes, the C order of its values, in chunks of at most 1 MiB.

        The parts of a partitioned variable come as one tensor. A tensor of strings comes as it is
        stored, lengths and checksum included: equal strings are equal bytes, and :meth:`strings`
        takes them apart. A tensor that is not partitioned is verified before its last chunk is
        yielded; a partitioned one is verified when the iterator ends.

        :raises BundleError: where the shard is missing or truncated, the checksum differs, or the
            dtype is no plain one.
        :raises OSError: where a file cannot be read.
        """
        return _values.chunks(self._shards, entry)

    def strings(self, entry: Entry) -> tuple[bytes, ...]:
        """
        Return the elements of a tensor of strings, verified, in C order.

        :raises BundleError: as :meth:`chunks` does, and for a tensor of anything else.
        :raises OSError: where a file cannot be read.
        """
        if entry.dtype != STRING or entry.slices:
            raise BundleError(
                "checkpoint-unsupported", f"{entry.key} is partitioned or is not a string tensor"
            )
        return _values.strings(self._shards, entry)

    def objects(self) -> ObjectGraph | None:
        """
        Return the object graph; None where the checkpoint has none, which is so of TF 1's.

        :raises BundleError: where it cannot be read.
        :raises OSError: where a file cannot be read.
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
        Yield, for each shard that is missing or shorter than its tensors need, why; that costs one
        look at each, and reads no values.
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
    """Yield the entries that have bytes of their own: of a partitioned variable its parts."""
    for entry in entries:
        yield from (part.entry for part in entry.slices) if entry.slices else (entry,)


def _check_places(entries: Iterable[Entry]) -> None:
    """
    Raise where tensors share bytes, which no writer lets them do: a few bytes could then pass for
    any number of tensors.
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


def keys_of(
    bundle: Bundle,
    children: Mapping[int, Sequence[tuple[str, int]]],
    slots: Mapping[int, Sequence[tuple[int, str, int]]] | None = None,
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
    for node, kept in (slots or {}).items():
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
    "check_limit",
    "is_table",
    "keys_of",
    "open_bundle",
]
