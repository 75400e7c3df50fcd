"""
Rewriting of SavedModels: Keras' metadata changes in ``keras_metadata.pb``, ``saved_model.pb``, or
both; all other bytes and files are kept.
"""

from __future__ import annotations

import mmap
import os
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from policytool.formats.saved_model import GRAPH, KERAS
from policytool.formats.saved_model.read import ARCHITECTURE
from policytool.formats.writers import Changes, FileChange, TextChange, edit_texts, whole_text
from policytool.formats.writing import WriteError, difference_error, require_same
from policytool.support import limits
from policytool.support.files import atomic, opening
from policytool.support.files.atomic import Range, same_ranges
from policytool.support.grouping import group_pairs
from policytool.support.text import protobuf_splice

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from policytool.formats.edits import Counted, Edit
    from policytool.support.text.protobuf_splice import Span, Splice


_META_GRAPHS: Final = 2
_OBJECT_GRAPH: Final = 7
_OBJECTS: Final = 1
_USER_OBJECT: Final = 4
_USER_METADATA: Final = 3
"""
Fields of SavedModel, MetaGraphDef, SavedObjectGraph, SavedObject and SavedUserObject, in this
order.
"""

_NODES: Final = 1
_NODE_ID: Final = 2
_NODE_METADATA: Final = 5
"""Fields of Keras' SavedMetadata and SavedObject."""


def file_texts(path: Path, file: str) -> Mapping[str, str]:
    """
    Return the metadata in the file at ``path``, by part.

    :param file: the kind of file, :data:`GRAPH` or :data:`KERAS`, which is independent of its name
    :raises WriteError: if the file cannot be rewritten.
    """
    with _map_file(path) as data:
        return _texts(data, file)


@dataclass(frozen=True, kw_only=True, slots=True)
class MetadataChange(FileChange):
    """Edits of Keras' metadata in one file of a SavedModel; the checkpoint is unchanged."""

    file: str
    """The kind of file, as in :func:`file_texts`."""

    edits: Sequence[Edit]

    def write(self, source: Path, draft: Path) -> Counted:
        """
        Write the file with its edited metadata into an empty draft.

        :raises WriteError: if the file does not contain the values that the edits expect.
        :raises OSError: if reading or writing fails.
        """
        with _map_file(source) as data:
            changes = _splices(data, self.file, self.edits)
            size = len(data)
        with (
            opening.regular_file(source) as source_descriptor,
            atomic.open_descriptor(draft, os.O_WRONLY) as draft_descriptor,
        ):
            position = new_position = 0
            for splice in changes:
                atomic.copy_bytes(
                    source_descriptor,
                    draft_descriptor,
                    splice.start - position,
                    start=position,
                    to=new_position,
                )
                new_position += splice.start - position
                atomic.write_all(draft_descriptor, splice.new, new_position)
                new_position += len(splice.new)
                position = splice.end
            atomic.copy_bytes(
                source_descriptor,
                draft_descriptor,
                size - position,
                start=position,
                to=new_position,
            )
        return {}

    def compare(self, source: Path, draft: Path) -> None:
        """
        Check that a written file has the planned metadata and is otherwise identical to its source.

        :raises WriteError: if it differs.
        """
        with _map_file(source) as data:
            changes, expected, size = (
                _splices(data, self.file, self.edits),
                dict(_texts(data, self.file)),
                len(data),
            )
        expected.update(edit_texts(expected, self.edits))
        try:
            written_texts = file_texts(draft, self.file)
        except WriteError as error:
            raise difference_error(self.file) from error
        for part in expected.keys() | written_texts.keys():
            require_same(expected.get(part) == written_texts.get(part), part)
        with (
            opening.regular_file(source) as source_descriptor,
            opening.regular_file(draft) as draft_descriptor,
        ):
            growth = 0
            enclosing = [
                (0, 0, b""),
                *((splice.start, splice.end, splice.new) for splice in changes),
                (size, size, b""),
            ]
            for (_, start, _), (end, after, new) in pairwise(enclosing):
                require_same(
                    same_ranges(
                        Range(descriptor=source_descriptor, start=start, size=end - start),
                        Range(descriptor=draft_descriptor, start=start + growth, size=end - start),
                    ),
                    f"{self.file} between bytes {start} and {end}",
                )
                require_same(
                    os.pread(draft_descriptor, len(new), end + growth) == new,
                    f"{self.file} at byte {end}",
                )
                growth += len(new) - (after - end)
            require_same(
                os.fstat(draft_descriptor).st_size == size + growth, f"the size of {self.file}"
            )


@contextmanager
def _map_file(path: Path) -> Iterator[memoryview]:
    """
    Map a file into memory, because little is read of a graph of possibly hundreds of megabytes.
    """
    with opening.regular_file(path) as descriptor:
        size = os.fstat(descriptor).st_size
        if excess := limits.PROTO_BYTES.exceeded_message(size):
            raise WriteError("not-rewritable", f"{path.name} has {excess}")
        if not size:
            yield memoryview(b"")
            return
        with (
            mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) as mapped,
            memoryview(mapped) as data,
        ):
            yield data


def _texts(data: memoryview, file: str) -> Mapping[str, str]:
    """Return the metadata of each part as text."""
    texts_by_part = {}
    for part, chain in _places(data, file).items():
        try:
            texts_by_part[part] = bytes(data[chain[-1].start : chain[-1].end]).decode("utf-8")
        except UnicodeDecodeError as error:
            raise WriteError(
                "not-rewritable",
                f"the metadata {part} is not UTF-8 text (byte {error.start}) and cannot be edited",
            ) from error
    return texts_by_part


def _splices(data: memoryview, file: str, edits: Sequence[Edit]) -> list[Splice]:
    """Return the splices that replace the edited metadata in a file."""
    place_by_part = _places(data, file)
    new = edit_texts(_texts(data, file), edits)
    changes = protobuf_splice.splices(
        {place_by_part[part]: text.encode("utf-8", "surrogatepass") for part, text in new.items()}
    )
    if excess := limits.PROTO_BYTES.exceeded_message(
        len(data) + sum(len(splice.new) - (splice.end - splice.start) for splice in changes)
    ):
        raise WriteError("not-rewritable", f"{file} would have {excess}")
    return changes


def _places(data: memoryview, file: str) -> Mapping[str, tuple[Span, ...]]:
    """Return, for each part, the spans of its metadata and of the fields around it."""
    try:
        return dict(_spans_in_graph(data) if file == GRAPH else _spans_in_metadata(data))
    except protobuf_splice.WireError as error:
        raise WriteError(
            "not-rewritable", f"{file} is not a protobuf message that can be edited: {error}"
        ) from error


def _spans_in_graph(data: memoryview) -> Iterator[tuple[str, tuple[Span, ...]]]:
    """
    Yield, for each Keras object of the first graph, its part and the spans of its metadata and of
    the fields around it. Keras reads only the first graph.
    """
    graph = next(protobuf_splice.spans(data, _META_GRAPHS), None)
    objects = protobuf_splice.single_span(data, _OBJECT_GRAPH, graph) if graph is not None else None
    if graph is None or objects is None:
        return
    for index, node in enumerate(protobuf_splice.spans(data, _OBJECTS, objects)):
        user = protobuf_splice.single_span(data, _USER_OBJECT, node)
        metadata = (
            protobuf_splice.single_span(data, _USER_METADATA, user) if user is not None else None
        )
        if user is not None and metadata is not None and metadata.end > metadata.start:
            yield f"{GRAPH}#{index}", (graph, objects, node, user, metadata)


def _spans_in_metadata(data: memoryview) -> Iterator[tuple[str, tuple[Span, ...]]]:
    """
    Yield, for each object in ``keras_metadata.pb``, its part and the spans of its node and of its
    metadata.
    """
    numbers = set[int]()
    for node in protobuf_splice.spans(data, _NODES):
        number = 0
        for field in protobuf_splice.fields(data, node.start, node.end):
            if field.number == _NODE_ID and field.span is None:
                number = field.value
        if number in numbers:
            raise protobuf_splice.WireError(f"node {number} occurs twice")
        numbers.add(number)
        metadata = protobuf_splice.single_span(data, _NODE_METADATA, node)
        if metadata is not None:
            yield f"{KERAS}#{number}", (node, metadata)


_FILES: Final = (KERAS, GRAPH)


def texts(path: Path) -> Mapping[str, str]:
    """Return the metadata in both files, and the architecture that TF 1 exports beside them."""
    metadata = {
        part: text
        for file in _FILES
        if (path / file).is_file()
        for part, text in file_texts(path / file, file).items()
    }
    architecture = path / ARCHITECTURE
    return metadata | ({ARCHITECTURE: whole_text(architecture)} if architecture.is_file() else {})


def file_changes(path: Path, changes: Changes) -> Mapping[str, FileChange]:
    """
    Return the files that change.

    :raises WriteError: for casts, because the checkpoint cannot be changed.
    """
    if changes.casts:
        raise WriteError(
            "not-rewritable",
            f"{path.name} is a SavedModel, whose checkpoint cannot be changed, but the plan "
            "casts some of its tensors; run again with --preview",
        )
    edit_texts(texts(path), changes.edits)
    edits = group_pairs((edit.address.part.partition("#")[0], edit) for edit in changes.edits)
    return {
        file: TextChange(part=file, edits=edits[file])
        if file == ARCHITECTURE
        else MetadataChange(file=file, edits=edits[file])
        for file in (*_FILES, ARCHITECTURE)
        if file in edits
    }
