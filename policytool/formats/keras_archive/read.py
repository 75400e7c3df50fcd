"""
``.keras`` archives of Keras 2.12 to 3.x: a zip with ``config.json``, ``metadata.json`` and
``model.weights.h5``, or several shards of weights; also the code that they share with unpacked
directories.

Keras stores members uncompressed, so the weights are read in place, from a part of the archive.
A compressed member is decompressed into a temporary file of limited size.
"""

from __future__ import annotations

import io
import zlib
from collections import Counter
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from policytool.formats.base import Probe, parse_json
from policytool.formats.document import (
    NO_WEIGHTS,
    UNTYPED,
    Document,
    Layout,
    Observation,
    Tensor,
    Writer,
)
from policytool.formats.keras_archive import CONFIG, METADATA, NPZ_SUFFIX, WEIGHTS_SUFFIX
from policytool.releases import keras_objects
from policytool.releases.layer_classes import layer_facts
from policytool.support import limits, steps
from policytool.support.files import opening
from policytool.support.files.random_access import SeekableStream, member_start, positioned_read
from policytool.support.files.remote_path import RemotePath
from policytool.support.processes import crash_guard, interrupts

if TYPE_CHECKING:
    import zipfile
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import ExitStack

    from policytool.formats.document import Values
    from policytool.formats.hdf5.library import Contents
    from policytool.formats.keras_archive.npz import Arrays
    from policytool.support.files.random_access import PositionedRead
    from policytool.support.limits import Limit
    from policytool.support.text.jsontext import Json


def read_parts(
    probe: Probe, texts: dict[str, bytes], observations: list[Observation]
) -> dict[str, Json]:
    """Return the JSON of a model's members by their names."""
    if CONFIG not in texts:
        raise probe.failure(
            "no-config",
            f"has no {CONFIG}; expected a .keras model, which contains {CONFIG}, {METADATA} "
            "and model.weights.h5",
        )
    return {name: parse_json(probe, text, name, observations) for name, text in texts.items()}


def needs_layer_names(parts: Mapping[str, Json]) -> bool:
    """Return whether the config does not list the layers of the model."""
    config = parts[CONFIG]
    return (
        isinstance(config, dict) and not layer_facts(str(keras_objects.class_of(config))).is_model
    )


def document(
    probe: Probe,
    parts: Mapping[str, Json],
    weights: Sequence[Contents],
    observations: list[Observation],
    arrays: Sequence[tuple[str, Arrays]] = (),
) -> Document:
    """
    Return the document of one model.

    :param parts: its JSON parts by name
    :param weights: the contents of its HDF5 weights files
    :param arrays: its weights in NumPy's format, with the names of the files
    """
    metadata = parts.get(METADATA)
    version = metadata.get("keras_version") if isinstance(metadata, dict) else None
    tensors: list[Tensor] = []
    names: dict[str, str] = {}
    for contents in weights:
        tensors += contents.tensors
        names |= contents.names
        observations += contents.observations
        if contents.untyped:
            observations.append(
                Observation(
                    code=UNTYPED,
                    message=f"the dtype of {contents.untyped[0]} is missing in its weights",
                    where=contents.untyped[0],
                )
            )
    if arrays:
        from policytool.formats.keras_archive import npz  # NumPy costs 60 ms at start

        observations += npz.observations(arrays, read_by_keras=not weights)
        tensors += (
            ()
            if weights
            else [tensor for _, file_arrays in arrays for tensor in file_arrays.tensors]
        )
    if not weights and not arrays:
        observations.append(
            Observation(
                code=NO_WEIGHTS, message=f"it has no model{WEIGHTS_SUFFIX} with its weights"
            )
        )
    known = bool(weights) or not any(file_arrays.pickles for _, file_arrays in arrays)
    return Document(
        path=probe.shown,
        format="keras",
        parts=parts,
        config_part=CONFIG,
        layout=Layout.OBJECT_PATHS,
        tensors=tuple(tensors) if known else None,
        layer_names=names,
        writer=Writer(keras=version if isinstance(version, str) else None),
        observations=tuple(observations),
    )


BLOCK: Final = 2048
"""The bytes per read: HDF5 stores metadata in blocks of this size (``H5Pset_meta_block_size``)."""


class Window(SeekableStream):
    """
    A part of a file as a separate read-only file, for HDF5 inside an uncompressed zip member.

    h5py over ``zipfile``'s own file object reads from the member's start again at each backward
    seek.

    :param minimum: the minimum number of bytes per read
    """

    def __init__(
        self, read: PositionedRead, offset: int, size: int, *, minimum: int = BLOCK
    ) -> None:
        super().__init__(size)
        self._read = read
        self._offset = offset
        self._minimum = minimum
        self._block = b""
        self._block_start = 0

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        """
        Fill ``buffer`` from the window, never beyond its end.

        HDF5 reads metadata in many small pieces that lie close together, so one block is kept.
        """
        if self._position >= self._size:
            return 0
        start = self._position - self._block_start
        end = start + len(buffer)
        if start < 0 or end > len(self._block):
            self._block_start = self._position
            self._block = self._read(
                min(max(len(buffer), self._minimum), max(0, self._size - self._position)),
                self._offset + self._position,
            )
            start, end = 0, len(buffer)
        piece = self._block[start:end]
        buffer[: len(piece)] = piece
        self._position += len(piece)
        return len(piece)

    def pread(self, count: int, offset: int) -> bytes:
        """Return ``count`` bytes at an offset, or fewer at the end of the window."""
        return self._read(max(0, min(count, self._size - offset)), self._offset + offset)


_STORED: Final = 0
"""``zipfile.ZIP_STORED``: not compressed."""

_BOUNDED: Final = frozenset({_STORED, 8})
"""
The compression types, stored and deflated (``zipfile.ZIP_DEFLATED``), for which Python decompresses
only the requested number of bytes.
"""

_BZIP2: Final = 12
"""``zipfile.ZIP_BZIP2``."""

_BLOCK: Final = 2**20
_LITTLE: Final = 2**12
"""The minimum number of bytes that Python reads; LZMA expands them at most 7,000 times."""

_ENCRYPTED: Final = 0x1
_ASSETS: Final = "assets/"
_VOCABULARY: Final = "/vocabulary.txt"
_FOREIGN: Final = {
    "data.pkl": "a PyTorch archive",
    "[Content_Types].xml": "an Office document",
    "META-INF/MANIFEST.MF": "a Java archive",
}


def read(probe: Probe) -> Document:
    """Return the document of a ``.keras`` archive."""
    import zipfile  # 6 ms at start, only for this format

    observations: list[Observation] = []
    with (
        opening.regular_stream(probe.path) as stream,
        zip_failures(probe),
        zipfile.ZipFile(stream) as archive,
    ):
        members = _members(probe, archive, observations)
        parts = read_parts(
            probe,
            {
                name: b"".join(_inflate(archive, members[name]))
                for name in (CONFIG, METADATA)
                if name in members
            },
            observations,
        )
        vocabularies = _vocabularies(probe, archive, members)
        named = needs_layer_names(parts)
        weights = [
            _walk(probe, archive, info, stream, named=named)
            for info in _checked_weights(probe, weights_members(archive))
        ]
        arrays = [
            (info.filename, _arrays(probe, archive, info, stream))
            for info in _checked_weights(probe, npz_members(archive))
        ]
    return replace(document(probe, parts, weights, observations, arrays), vocabularies=vocabularies)


@contextmanager
def zip_failures(probe: Probe) -> Iterator[None]:
    """Convert exceptions of ``zipfile`` into messages; disk errors are reported as damage."""
    import zipfile

    try:
        yield
    except (zipfile.BadZipFile, zlib.error, lzma_error(), EOFError, UnicodeDecodeError) as error:
        raise probe.failure(
            "truncated",
            f"is a truncated or damaged zip archive ({error}); copy or download it again",
        ) from error
    except (NotImplementedError, RuntimeError) as error:
        raise probe.failure(
            "zip-unsupported", f"is a zip archive that cannot be read: {error}"
        ) from error


def _checked_weights(probe: Probe, infos: list[zipfile.ZipInfo]) -> list[zipfile.ZipInfo]:
    """
    Return the members with weights, after checking that no two share bytes: a few shared bytes
    could otherwise stand for any number of weights.
    """
    probe.check_limit(limits.WEIGHTS_SHARDS, len(infos), "zip-limit", "stores its weights in")
    for (start, size, name), (next_start, _, next_name) in pairwise(
        sorted((info.header_offset, info.compress_size, info.filename) for info in infos)
    ):
        if start + size > next_start:
            raise probe.failure(
                "zip-overlap",
                f"is a damaged zip archive: {name} and {next_name} overlap; copy or download "
                "it again",
            )
    return infos


def lzma_error() -> type[Exception]:
    """
    Return Python's exception for damaged LZMA members. Without the module ``lzma``, return an
    exception that is handled anyway.
    """
    try:
        from lzma import LZMAError
    except ImportError:  # an interpreter may be built without it
        return zlib.error
    return LZMAError


def _vocabularies(
    probe: Probe, archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo]
) -> dict[tuple[str, ...], str]:
    """
    Return the vocabularies that the archive stores outside its config, by the path of their layer.
    Members that are not UTF-8 text are skipped, because nothing reads them.
    """
    infos = [
        info
        for name, info in members.items()
        if name.startswith(_ASSETS) and name.endswith(_VOCABULARY)
    ]
    for info in infos:
        _check_size(probe, info, limits.JSON_BYTES)
    probe.check_limit(
        limits.JSON_BYTES, sum(info.file_size for info in infos), "zip-limit", "has vocabularies of"
    )
    vocabularies: dict[tuple[str, ...], str] = {}
    for info in infos:
        with suppress(UnicodeDecodeError):
            vocabularies[
                tuple(info.filename.removeprefix(_ASSETS).removesuffix(_VOCABULARY).split("/"))
            ] = b"".join(_inflate(archive, info)).decode()
    return vocabularies


def _members(
    probe: Probe, archive: zipfile.ZipFile, observations: list[Observation]
) -> dict[str, zipfile.ZipInfo]:
    """Return the members by name; of duplicate names, the last member, as Python reads them."""
    infos = archive.infolist()
    probe.check_limit(limits.ZIP_MEMBERS, len(infos), "zip-limit", "has")
    steps.spend(len(infos), walk="members of an archive")
    if any(info.header_offset < 0 for info in infos):
        raise probe.failure(
            "truncated",
            "is a damaged zip archive: a member starts before the beginning of the file; "
            "copy or download it again",
        )
    members = {info.filename: info for info in infos}
    if CONFIG not in members:
        known = next(
            (
                format_name
                for end, format_name in _FOREIGN.items()
                if any(name.endswith(end) for name in members)
            ),
            "a zip archive",
        )
        listed_names = ", ".join(list(members)[:4]) or "nothing"
        raise probe.failure(
            "no-config",
            f"is {known} without {CONFIG} (it contains {listed_names}); expected a .keras model",
        )
    observations += [
        Observation(
            code="duplicate-member",
            message=f"the archive contains {name} {count} times; Keras reads the last copy",
            where=name,
        )
        for name, count in Counter(info.filename for info in infos).items()
        if count > 1
    ]
    observations += [
        Observation(
            code="escaping-member",
            message=f"the member {name} points outside the archive and was not extracted",
            where=name,
        )
        for name in members
        if name.startswith(("/", "\\")) or ".." in name.replace("\\", "/").split("/")
    ]
    for info in (members[name] for name in (CONFIG, METADATA) if name in members):
        _check_size(probe, info, limits.JSON_BYTES)
    return members


def _check_size(probe: Probe, info: zipfile.ZipInfo, largest: Limit) -> None:
    """Check that a member does not exceed the limits for its size and its compression."""
    if info.flag_bits & _ENCRYPTED:
        raise probe.failure(
            "zip-encrypted",
            f"contains an encrypted {info.filename}, but Keras never encrypts files",
        )
    probe.check_limit(largest, info.file_size, "zip-limit", f"has a {info.filename} of")
    probe.check_limit(
        limits.ZIP_RATIO,
        -(-info.file_size // max(info.compress_size, 1)),
        "zip-limit",
        f"has a {info.filename} that would expand from {info.compress_size} to "
        f"{info.file_size} bytes:",
    )


def _inflate(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[bytes]:
    """
    Yield a member's bytes: at most the declared size, and at most a block at a time.
    """
    if info.compress_type == _BZIP2:
        yield from _inflate_bzip2(archive, info)
        return
    with archive.open(
        info
    ) as member:  # Python decompresses all LZMA bytes that it reads, so it must read few at a time
        while block := member.read(_BLOCK if info.compress_type in _BOUNDED else _LITTLE):
            yield block


def _inflate_bzip2(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[bytes]:
    """
    Yield the bytes of a member that is compressed with bzip2. It can expand one byte to a million
    bytes, which ``zipfile`` would all keep in memory.
    """
    from zipfile import BadZipFile

    try:
        import bz2
    except ImportError as error:  # an interpreter may be built without it
        raise NotImplementedError("Compression requires the (missing) bz2 module") from error
    packed = copy(info)
    packed.compress_type, packed.file_size = _STORED, info.compress_size
    packed.CRC = None  # type: ignore[assignment]  # the checksum of the compressed bytes is unknown
    unpacking, remaining, checksum = bz2.BZ2Decompressor(), info.file_size, 0
    with archive.open(packed) as stream:
        while remaining and not unpacking.eof:
            data = stream.read(_LITTLE) if unpacking.needs_input else b""
            if unpacking.needs_input and not data:
                break
            try:
                block = unpacking.decompress(data, min(remaining, _BLOCK))
            except OSError as error:
                raise BadZipFile(f"{info.filename} is not bzip2: {error}") from error
            remaining, checksum = remaining - len(block), zlib.crc32(block, checksum)
            yield block
    if remaining or checksum != info.CRC:
        raise BadZipFile(f"Bad CRC-32 for file {info.filename!r}")


def weights_members(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """
    Return the members that contain weights, by name. If a name occurs twice, Keras reads the last
    member.
    """
    members = {info.filename: info for info in archive.infolist()}
    return [
        members[name]
        for name in sorted(members)
        if name.endswith(WEIGHTS_SUFFIX) and "/" not in name
    ]


def npz_members(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """
    Return the members that contain weights in NumPy's format, including all members with the same
    name, because releases differ in the member that they read.
    """
    return [
        info
        for info in archive.infolist()
        if info.filename.endswith(NPZ_SUFFIX) and "/" not in info.filename
    ]


@contextmanager
def weights_source(
    probe: Probe, archive: zipfile.ZipFile, info: zipfile.ZipInfo, stream: BinaryIO
) -> Iterator[Window | Path]:
    """
    Yield a source of a member for HDF5: a window on the archive, or the path of a temporary file if
    the member is compressed.

    :raises ModelFileError: if the member exceeds a limit.
    """
    if info.compress_type == _STORED and not info.flag_bits & _ENCRYPTED:
        if info.file_size != info.compress_size:
            raise probe.failure(
                "truncated",
                f"is a damaged zip archive: {info.filename} has {info.compress_size} bytes "
                f"but declares {info.file_size}",
            )
        read = positioned_read(stream)
        start = member_start(read, info.header_offset)
        if start is None:
            raise probe.failure(
                "truncated",
                f"is a damaged zip archive: {info.filename} has no header; copy or download "
                "it again",
            )
        # for a remote file, unneeded bytes would cost requests
        yield Window(
            read,
            start,
            info.file_size,
            minimum=(0 if isinstance(probe.path, RemotePath) else BLOCK),
        )
        return
    import tempfile

    _check_size(probe, info, limits.INFLATED_BYTES)
    with tempfile.NamedTemporaryFile() as inflated:
        entry = interrupts.add_path(inflated.name)
        try:
            for block in _inflate(archive, info):
                inflated.write(block)
            inflated.flush()
            yield Path(inflated.name)
        finally:
            interrupts.remove(entry)


def _walk(
    probe: Probe,
    archive: zipfile.ZipFile,
    info: zipfile.ZipInfo,
    stream: BinaryIO,
    *,
    named: bool,
) -> Contents:
    """Return the contents of a weights member."""
    from policytool.formats.hdf5 import library as _hdf5  # h5py costs 80 ms at start

    with (
        weights_source(probe, archive, info, stream) as source,
        _hdf5.open_checked(probe, source, info.filename) as file,
    ):
        return _hdf5.walk(probe, file, attributes=named)


def _arrays(
    probe: Probe, archive: zipfile.ZipFile, info: zipfile.ZipInfo, stream: BinaryIO
) -> Arrays:
    """Return the arrays of a weights member in NumPy's format."""
    from policytool.formats.keras_archive import npz  # NumPy costs 60 ms at start

    with (
        weights_source(probe, archive, info, stream) as source,
        opening.regular_stream(source)
        if isinstance(source, Path)
        else io.BufferedReader(source) as file,
    ):
        return npz.read_arrays(probe, file, info.filename)


def open_values(probe: Probe, document: Document, stack: ExitStack) -> Values:
    """
    Open the values of an archive.

    :raises ModelFileError: if its weights are truncated or have a damaged beginning.
    """
    import zipfile

    from policytool.formats.hdf5 import library
    from policytool.formats.hdf5.datasets import KerasValues, UnreadValues, reason_not_to_read

    if reason := reason_not_to_read((probe.path,), document):
        return UnreadValues(reason)
    stack.enter_context(crash_guard.limited_memory())
    stream = opening.regular_stream(probe.path)
    stack.callback(library.close, stream)
    files = []
    with zip_failures(probe):
        archive = stack.enter_context(zipfile.ZipFile(stream))
        for info in weights_members(archive):
            files.append(
                library.open_file(
                    probe,
                    stack.enter_context(weights_source(probe, archive, info, stream)),
                    info.filename,
                )
            )
            stack.callback(library.close, files[-1])
    return KerasValues(files)
