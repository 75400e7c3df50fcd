"""
Whether a file or a directory is two models, of which one reader loads the one and another reader
the other.

policytool recognises formats by content, and loaders mostly by suffix. HDF5 looks for its signature
at 0, 512, 1024 and each further power of two; readers of zip look for the record at the end of the
file, whatever precedes the archive. So one file can be both, and what one reader checks says
nothing about what another loads.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, Final

from policytool.formats import checkpoint, hdf5, keras_archive, keras_metadata
from policytool.formats.checkpoint import MAGIC
from policytool.formats.document import Observation
from policytool.formats.hdf5 import superblocks
from policytool.formats.keras_archive.file_names import CONFIG, METADATA
from policytool.formats.saved_model.files import GRAPH, SPLIT_GRAPH, TEXT_GRAPH
from policytool.support.errors import ModelFileError
from policytool.support.files import opening
from policytool.support.files.random_access import member_start, positioned_read
from policytool.support.files.remote_path import RemotePath

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.formats.base import Format, Probe
    from policytool.formats.document import Document
    from policytool.support.files.random_access import PositionedRead

AMBIGUOUS: Final = "ambiguous-format"

_BINARY: Final = (hdf5.FORMAT, keras_archive.FORMAT, checkpoint.FORMAT, keras_metadata.FORMAT)
"""Formats whose files can hold those of another; the others are text, read to the last byte."""

_END: Final = struct.Struct("<4s8xIIH")
"""
A zip archive's last record: signature, size and place of the directory, length of the comment.
"""

_END_SIGNATURE: Final = b"PK\x05\x06"
_ENTRY_SIGNATURE: Final = b"PK\x01\x02"
_END64_LOCATOR: Final = struct.Struct("<4s4xQ4x")
_END64_LOCATOR_SIGNATURE: Final = b"PK\x06\x07"
_END64: Final = struct.Struct("<4s36xQQ")
_END64_SIGNATURE: Final = b"PK\x06\x06"
_REACH: Final = 2**16 - 1 + _END.size
"""
Readers look for the record in as many bytes at the end: behind it stands a comment of 65,535 bytes
at the most (PKWARE APPNOTE 4.3.16).
"""

_REMOTE_REACH: Final = 2**12
"""The same of a remote file, which is copied, and read again, before a library gets it."""


def observe_ambiguity(probe: Probe, file_format: Format) -> Iterator[Observation]:
    """
    Yield at most one observation: why a model that was read is ambiguous.

    :param file_format: the format in which the model was read
    """
    what = (
        _of_directory(probe)
        if probe.is_directory
        else _of_file(probe, file_format)
        if file_format in _BINARY
        else None
    )
    if what is not None:
        yield Observation(
            code=AMBIGUOUS,
            message=f"it is two models at once: {what}; programs differ in which one they load",
        )


def refuse_ambiguity(document: Document) -> None:
    """
    Make sure that a document is not one of two models in a file; no option allows that.

    :raises ModelFileError: where it is.
    """
    for observation in document.observations:
        if observation.code == AMBIGUOUS:
            raise ModelFileError(
                document.path,
                AMBIGUOUS,
                f"is rejected because {observation.message}; check its origin",
            )


def _of_directory(probe: Probe) -> str | None:
    """Return which files of a directory each make it a model, if there are several."""
    models = sorted(probe.names & {GRAPH, TEXT_GRAPH, SPLIT_GRAPH})
    if probe.names >= {CONFIG, METADATA}:
        models.append(CONFIG)
    if len(models) <= 1:
        return None
    return f"the directory contains {', '.join(models[:-1])} and {models[-1]}"


def _of_file(probe: Probe, file_format: Format) -> str | None:
    """Return the other format in which a file can be read, as part of a sentence; or None."""
    with opening.regular_stream(probe.path) as stream:
        size = stream.seek(0, os.SEEK_END)
        read = positioned_read(stream)
        reach = _REMOTE_REACH if isinstance(probe.path, RemotePath) else _REACH
        ends = list(_directory_ends(read, size, reach))
        blocks = superblocks(probe)
        if file_format is keras_archive.FORMAT:
            if what := _of_archive(probe, read, ends, blocks):
                return what
        elif ends:
            return f"a zip archive ends at byte {ends[0]}"
        elif file_format is not hdf5.FORMAT and blocks:
            return f"an HDF5 file starts at byte {blocks[0]}"
    if file_format is not checkpoint.FORMAT and probe.tail == MAGIC:
        return "it ends as the index of a TensorFlow checkpoint does"
    return None


def _of_archive(
    probe: Probe, read: PositionedRead, ends: list[int], blocks: tuple[int, ...]
) -> str | None:
    """
    Return what an archive is besides.

    Bytes of a member that the directory lists are no second file: a member can be an archive, and a
    stored one that is HDF5 can begin where HDF5 looks for a signature.
    """
    import zipfile  # as its reader does

    with opening.regular_stream(probe.path) as stream, zipfile.ZipFile(stream) as archive:
        infos, directory = archive.infolist(), archive.start_dir
    if infos and min(info.header_offset for info in infos) > 0:
        return "its first member is missing from the directory of the archive"
    if len(ends) <= 1 and not blocks:
        return None
    starts = [
        (
            start,
            min(start + info.compress_size, directory),
            info.compress_type == zipfile.ZIP_STORED,
        )
        for info in infos
        if (start := member_start(read, info.header_offset)) is not None
    ]
    members = {start for start, _, is_stored in starts if is_stored}
    for block in blocks:
        if block not in members:
            return f"an HDF5 file starts at byte {block}"
    outside = [end for end in ends if not any(start <= end < stop for start, stop, _ in starts)]
    if len(outside) > 1:
        return f"zip archives end at bytes {outside[0]} and {outside[1]}"
    return None


def _directory_ends(read: PositionedRead, size: int, reach: int) -> Iterator[int]:
    """
    Yield where records stand that a reader of zip archives takes for the last one: those that lead
    to a directory with at least one member.

    :param reach: how many bytes at the end are searched
    """
    first = max(0, size - reach)
    tail = read(size - first, first)
    place = tail.find(_END_SIGNATURE)
    while place >= 0:
        record = tail[place : place + _END.size]
        if len(record) == _END.size and _has_directory(read, first + place, record):
            yield first + place
        place = tail.find(_END_SIGNATURE, place + 1)


def _has_directory(read: PositionedRead, end: int, record: bytes) -> bool:
    """
    Return whether a directory stands before a record, where its size says, or where it says itself.
    """
    _, length, offset, _ = _END.unpack(record)
    places = [end - length, offset]
    locator = read(_END64_LOCATOR.size, max(0, end - _END64_LOCATOR.size))
    if locator.startswith(_END64_LOCATOR_SIGNATURE):
        before = end - _END64_LOCATOR.size - _END64.size
        for place in (before, _END64_LOCATOR.unpack(locator)[1]):
            record64 = read(_END64.size, place) if 0 <= place < end else b""
            if len(record64) == _END64.size and record64.startswith(_END64_SIGNATURE):
                _, length64, offset64 = _END64.unpack(record64)
                places += [place - length64, offset64]
    return any(
        read(len(_ENTRY_SIGNATURE), place) == _ENTRY_SIGNATURE
        for place in places
        if 0 <= place < end
    )
