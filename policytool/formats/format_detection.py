"""
Detection of a path's format, with an error that names other known file formats; access to the
document and the values.

A document includes the values that ``adapt`` computed, which other releases store in the config.

A file or a directory can contain two models, so that different readers load different models:
policytool recognises formats by content, and most releases by suffix. HDF5 searches for its
signature at 0, 512, 1024 and each further power of two. Zip readers search for the record at the
end of the file and ignore bytes before the archive. One file can therefore be both, and a reader
can load a model that another reader did not check.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from policytool.formats import FORMATS, checkpoint, hdf5, keras_archive, keras_metadata, orbax
from policytool.formats.base import EXPECTED, Probe, foreign_file
from policytool.formats.checkpoint import MAGIC
from policytool.formats.document import Observation, Values, ValuesError
from policytool.formats.hdf5 import superblocks
from policytool.formats.keras_archive import CONFIG, METADATA
from policytool.formats.saved_model import GRAPH, SPLIT_GRAPH, TEXT_GRAPH
from policytool.support import limits, steps
from policytool.support.errors import ModelFileError
from policytool.support.files import opening
from policytool.support.files.random_access import member_start, positioned_read
from policytool.support.files.remote_path import RemotePath

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policytool.formats.base import Format
    from policytool.formats.document import Array, Document, Tensor
    from policytool.support.files.random_access import PositionedRead
    from policytool.support.files.remote_path import AnyPath, Status


AMBIGUOUS: Final = "ambiguous-format"

_BINARY: Final = (hdf5.FORMAT, keras_archive.FORMAT, checkpoint.FORMAT, keras_metadata.FORMAT)
"""Formats whose files can contain other formats; the rest are text, read to the last byte."""

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
The number of bytes at the end in which readers search for the record, which a comment of at most
65,535 bytes follows (PKWARE APPNOTE 4.3.16).
"""

_REMOTE_REACH: Final = 2**12
"""The same number for a remote file, which is copied and read again before a library reads it."""


def observe_ambiguity(probe: Probe, file_format: Format) -> Iterator[Observation]:
    """
    Yield at most one observation: the reason why a model is ambiguous.

    :param file_format: the format in which the model was read
    """
    second_format = (
        _models_in_directory(probe)
        if probe.is_directory
        else _second_format_of_file(probe, file_format)
        if file_format in _BINARY
        else None
    )
    if second_format is not None:
        yield Observation(
            code=AMBIGUOUS,
            message=f"it is two models at once: {second_format}; programs differ in which one "
            "they load",
        )


def refuse_ambiguity(document: Document) -> None:
    """
    Reject a document that is one of two models in a file or directory; no option allows it.

    :raises ModelFileError: if the document is ambiguous.
    """
    for observation in document.observations:
        if observation.code == AMBIGUOUS:
            raise ModelFileError(
                document.path,
                AMBIGUOUS,
                f"is rejected because {observation.message}; check its origin",
            )


def _models_in_directory(probe: Probe) -> str | None:
    """Return the files that each make a directory a model, as part of a sentence; or None."""
    models = sorted(probe.names & {GRAPH, TEXT_GRAPH, SPLIT_GRAPH})
    if probe.names >= {CONFIG, METADATA}:
        models.append(CONFIG)
    if orbax.recognise(probe):
        models.append("Orbax checkpoints")
    if len(models) <= 1:
        return None
    return f"the directory contains {', '.join(models[:-1])} and {models[-1]}"


def _second_format_of_file(probe: Probe, file_format: Format) -> str | None:
    """Return the other format in which a file can be read, as part of a sentence; or None."""
    with opening.regular_stream(probe.path) as stream:
        size = stream.seek(0, os.SEEK_END)
        read = positioned_read(stream)
        ends = list(
            _directory_ends(
                read, size, _REMOTE_REACH if isinstance(probe.path, RemotePath) else _REACH
            )
        )
        blocks = superblocks(probe)
        if file_format is keras_archive.FORMAT:
            if second_format := _second_format_of_archive(probe, read, ends, blocks):
                return second_format
        elif ends:
            return f"a zip archive ends at byte {ends[0]}"
        elif file_format is not hdf5.FORMAT and blocks:
            return f"an HDF5 file starts at byte {blocks[0]}"
    if file_format is not checkpoint.FORMAT and probe.tail == MAGIC:
        return "it ends as the index of a TensorFlow checkpoint does"
    return None


def _second_format_of_archive(
    probe: Probe, read: PositionedRead, ends: list[int], blocks: tuple[int, ...]
) -> str | None:
    """
    Return the other format in which an archive can be read, as part of a sentence; or None.

    Bytes of a listed member are not a second file: a member can be an archive, and a stored HDF5
    member can start at an offset where HDF5 searches for its signature.
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
    ends_outside_members = [
        end for end in ends if not any(start <= end < stop for start, stop, _ in starts)
    ]
    if len(ends_outside_members) > 1:
        return f"zip archives end at bytes {ends_outside_members[0]} and {ends_outside_members[1]}"
    return None


def _directory_ends(read: PositionedRead, size: int, reach: int) -> Iterator[int]:
    """
    Yield the offsets of records that a zip reader can use as the last record: those that lead to a
    directory with at least one member.

    :param reach: the number of bytes at the end that are searched
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
    Return whether an archive's directory is at an offset that follows from the record: from the
    size of the directory, or from its stored offset.
    """
    _, length, offset, _ = _END.unpack(record)
    offsets = [end - length, offset]
    locator = read(_END64_LOCATOR.size, max(0, end - _END64_LOCATOR.size))
    if locator.startswith(_END64_LOCATOR_SIGNATURE):
        before = end - _END64_LOCATOR.size - _END64.size
        for place in (before, _END64_LOCATOR.unpack(locator)[1]):
            record64 = read(_END64.size, place) if 0 <= place < end else b""
            if len(record64) == _END64.size and record64.startswith(_END64_SIGNATURE):
                _, length64, offset64 = _END64.unpack(record64)
                offsets += [place - length64, offset64]
    return any(
        read(len(_ENTRY_SIGNATURE), place) == _ENTRY_SIGNATURE
        for place in offsets
        if 0 <= place < end
    )


_NAMES: Final = frozenset({"idf_weights", "summary"})
"""The names of the weights of a lookup layer, and of the statistics of a Discretization layer."""

_FIRST: Final = "0"
_NUMBERED: Final = re.compile(r"(?:^|/)discretization(?:_\d+)?/vars/0(?::0)?$")
"""The path of the only variable of a Discretization layer in an archive."""


def adapted_values(
    probe: Probe, file_format: Format, document: Document
) -> dict[Tensor, tuple[float, ...]]:
    """Return the readable values of the variables that ``adapt`` filled."""
    tensors = tuple(_adapted_tensors(document))
    if not tensors or file_format.open_values is None:
        return {}
    with ExitStack() as stack:
        values = file_format.open_values(probe, document, stack)
        read = {tensor: _numbers(values, tensor) for tensor in tensors}
    return {tensor: numbers for tensor, numbers in read.items() if numbers is not None}


def _adapted_tensors(document: Document) -> Iterator[Tensor]:
    """Yield the tensors of variables that ``adapt`` filled."""
    for tensor in document.tensors or ():
        last = tensor.path[-1].removesuffix(":0").rpartition("/")[2]
        if last in _NAMES or (last == _FIRST and _NUMBERED.search("/".join(tensor.path))):
            yield tensor
    for node in document.nodes.values():
        for name, number in node.children:
            child = document.nodes.get(number)
            if name in _NAMES and child is not None and child.variable is not None:
                yield child.variable


def _numbers(values: Values, tensor: Tensor) -> tuple[float, ...] | None:
    """Return the values of a tensor; None if they are missing or exceed a limit."""
    numbers: list[float] = []
    try:
        for block in values.blocks(tensor):
            numbers += block.astype("float64").tolist()
            if limits.JSON_BYTES.exceeded_message(block.itemsize * len(numbers)):
                return None
    except ValuesError:  # code that needs the values reports that they are missing
        return None
    return tuple(numbers)


def document(path: AnyPath, display_path: str) -> Document:
    """
    Return the document at ``path``.

    :raises ModelFileError: if the path does not exist, cannot be read, or is not a model.
    """
    with opening.without_collection(path), steps.budget(display_path):
        return _document(path, display_path)


def _document(path: AnyPath, display_path: str) -> Document:
    """Read a path. A remote file must not change meanwhile."""
    probe = Probe(path, display_path)
    if isinstance(path, RemotePath):
        opening.forget()
    with reading_failures(probe):
        file_format = detect_format(probe)
        # taken before reading, to detect a model that is replaced meanwhile
        before = _statuses(path, file_format) if isinstance(path, RemotePath) else {}
        read = file_format.read(probe)
        complete = replace(
            read,
            local_path=_local_path(path, display_path),
            adapted=adapted_values(probe, file_format, read),
            observations=(*read.observations, *observe_ambiguity(probe, file_format)),
        )
        if isinstance(path, RemotePath):
            opening.forget()
            # ranges were read at different times
            if before != _statuses(path, file_format):
                raise probe.failure(
                    "changed", "changed while policytool read it; run the command again"
                )
        return complete


def _local_path(path: AnyPath, display_path: str) -> str | None:
    """Return the path of a local file, unless a copy of it is read, which has another name."""
    is_own = isinstance(path, Path) and path.name == Path(display_path).name
    return display_path if is_own and path.name and "://" not in display_path else None


def detect_format(probe: Probe) -> Format:
    """
    Return the format of a path.

    :raises ModelFileError: if the path is not a model.
    :raises OSError: if the path cannot be read.
    """
    if file_format := format_of(probe):
        return file_format
    if probe.is_directory:
        raise probe.failure(
            "no-model",
            f"is a directory that does not contain a model; {EXPECTED}",
        )
    from policytool.formats import other_models  # only for files that are not read

    if probe.head and (description := other_models.describe(probe)) is not None:
        raise probe.failure("foreign", description)
    raise probe.failure(*foreign_file(probe.head))


@contextlib.contextmanager
def reading_failures(probe: Probe) -> Iterator[None]:
    """
    Convert each OSError raised while a path is read into an error message.

    :raises ModelFileError: instead of an OSError.
    """
    path, display_path = probe.path, probe.shown
    try:
        yield
    except FileNotFoundError as error:
        raise ModelFileError(display_path, "not-found", _missing(path)) from error
    except PermissionError as error:
        raise ModelFileError(
            display_path,
            "no-permission",
            "is not readable by the current user; check its permissions",
        ) from error
    except opening.NotRegularError as error:
        if error.filename == str(path):
            raise ModelFileError(
                display_path, "foreign", f"is {error.kind}, not a regular file; {EXPECTED}"
            ) from error
        name = os.path.relpath(error.filename, str(path if probe.is_directory else path.parent))
        raise ModelFileError(
            display_path,
            "not-regular",
            (f"contains {error.kind} instead of the file {name}; replace it with a regular file"),
        ) from error
    except IsADirectoryError as error:
        raise ModelFileError(
            display_path, "foreign", f"is a directory, but should be a file; {EXPECTED}"
        ) from error
    except OSError as error:
        raise ModelFileError(
            display_path, "unreadable", f"cannot be read: {error.strerror or error}"
        ) from error


def _statuses(path: RemotePath, file_format: Format) -> dict[RemotePath, Status]:
    """
    Return the statuses of the files of a remote model: of the file itself, or of the files in its
    directory that contain config or weights.
    """
    files = (
        [path]
        if file_format.owns is None
        else [
            path / name
            for name in sorted(opening.names(path))
            if file_format.owns(Path(name)) and opening.is_file(path / name)
        ]
    )
    return {file: opening.session().existing_status(file) for file in files}


def _missing(path: AnyPath) -> str:
    """
    Return the message for a path that does not exist. Its backup may exist, if replacing the path
    was interrupted.
    """
    if isinstance(path, RemotePath):
        return "does not exist; check the address"
    from policytool.support.files.atomic import ASIDE  # what writes, for this sentence alone

    backup = path.with_name(f"{path.name}{ASIDE}") if path.name else path
    if not os.path.lexists(path) and os.path.lexists(backup):
        return (
            f"does not exist, but its backup {backup.name} does, because replacing the "
            "original was interrupted; rename the backup to the original name and run the "
            "command again"
        )
    return "does not exist; check the path"


def format_of(probe: Probe) -> Format | None:
    """
    Return the format that recognises a path; None if no format does.

    :raises OSError: if the path cannot be read.
    """
    return next((candidate for candidate in FORMATS if candidate.recognise(probe)), None)


def is_model(path: AnyPath) -> bool:
    """Return whether a format recognises the path; False if the path cannot be read."""
    try:
        return format_of(Probe(path, str(path))) is not None
    except OSError:
        return False


@contextlib.contextmanager
def open_values(path: AnyPath, document: Document) -> Iterator[Values | None]:
    """
    Open the values of the document's variables; yield None if its format stores no values. The
    values are at ``path``, unless the document names another file with weights.

    :raises ModelFileError: if a file with values is truncated or has a damaged beginning.
    """
    if (weights := document.weights) is not None:
        with open_values(weights.path, weights.document) as values:
            yield None if values is None else _OriginalValues(values, weights.originals)
        return
    probe = Probe(path, document.path)
    # detect the format, because several formats have documents of the format "weights"
    detected = format_of(probe)
    opener = detected.open_values if detected is not None else None
    with opening.without_collection(path), contextlib.ExitStack() as stack:
        yield opener(probe, document, stack) if opener is not None else None


class _OriginalValues(Values):
    """The values of a separate file, for the names of variables in the model."""

    def __init__(self, values: Values, originals: Mapping[tuple[str, ...], Tensor]) -> None:
        self._values = values
        self._originals = originals

    def blocks(self, tensor: Tensor) -> Iterator[Array]:
        """Yield a tensor's values; see :class:`policytool.formats.document.Values`."""
        return self._values.blocks(self._originals[tensor.path])
