"""Members of zip archives as they are stored: local header, bytes, and whatever follows them."""

from __future__ import annotations

import copy
import os
import struct
import zipfile
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, Final

from policytool.formats.hdf5 import storage
from policytool.formats.writing import WriteError
from policytool.support.files import atomic, opening
from policytool.support.files.byte_ranges import Range
from policytool.support.files.random_access import member_start, positioned_read

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from policytool.formats.hdf5.storage import OpenHdf5

_EXTRA: Final = struct.Struct("<HH")
_ZIP64: Final = 1
_BLOCK: Final = 2**20


@contextmanager
def open_archive(path: Path) -> Iterator[tuple[BinaryIO, zipfile.ZipFile]]:
    """
    Open an archive for reading.

    :raises WriteError: where it is damaged.
    """
    with opening.regular_stream(path) as stream:
        try:
            with zipfile.ZipFile(stream) as archive:
                yield stream, archive
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
            raise WriteError(
                "write-failed", f"is a zip archive that cannot be read ({error})"
            ) from error


def member_regions(archive: zipfile.ZipFile, descriptor: int) -> dict[int, Range]:
    """
    Return the stored bytes of each member, up to where the next begins, by the place of its header.

    :raises WriteError: where two members lie in the same place.
    """
    starts = sorted(info.header_offset for info in archive.infolist())
    if len(set(starts)) != len(starts):
        raise WriteError(
            "not-rewritable", "is a zip archive with overlapping members, which Keras never writes"
        )
    ends = [*starts[1:], archive.start_dir]
    return {
        start: Range(descriptor=descriptor, start=start, size=end - start)
        for start, end in zip(starts, ends, strict=True)
    }


def copy_member(
    archive: zipfile.ZipFile, stream: BinaryIO, info: zipfile.ZipInfo, region: Range
) -> None:
    """
    Add a member of another archive as it is stored there.

    :raises OSError: where reading or writing fails.
    """
    stream.flush()
    start = archive.start_dir
    atomic.copy_bytes(region.descriptor, stream.fileno(), region.size, start=region.start, to=start)
    moved = copy.copy(info)
    moved.header_offset = start
    archive.filelist.append(moved)
    archive.NameToInfo[moved.filename] = moved
    archive.start_dir = start + region.size
    stream.seek(archive.start_dir)


def replacement_info(info: zipfile.ZipInfo) -> zipfile.ZipInfo:
    """
    Return the description for the replacement of a member, with the same name, times, attributes
    and compression.
    """
    member_info = zipfile.ZipInfo(info.filename, info.date_time)
    member_info.compress_type = info.compress_type
    member_info.comment = info.comment
    member_info.extra = plain_extra(info)
    member_info.create_system = info.create_system
    member_info.create_version = info.create_version
    member_info.internal_attr = info.internal_attr
    member_info.external_attr = info.external_attr
    return member_info


def plain_extra(info: zipfile.ZipInfo) -> bytes:
    """
    Return a member's extra fields but for the sizes of large ones, which depend on where it lies.
    """
    kept, rest = b"", info.extra
    while len(rest) >= _EXTRA.size:
        kind, length = _EXTRA.unpack_from(rest)
        field, rest = rest[: _EXTRA.size + length], rest[_EXTRA.size + length :]
        kept += b"" if kind == _ZIP64 else field
    return kept + rest


def add_file(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> None:
    """
    Add a file as the replacement of a member.

    :raises OSError: if reading or writing fails.
    """
    member_info = replacement_info(info)
    with opening.regular_stream(path) as source:
        member_info.file_size = os.fstat(source.fileno()).st_size
        with archive.open(member_info, "w") as member:
            while block := source.read(_BLOCK):
                member.write(block)


@contextmanager
def open_weights(
    archive: zipfile.ZipFile, path: Path, info: zipfile.ZipInfo, scratch: Path
) -> Iterator[OpenHdf5]:
    """
    Open a member as HDF5: in place if it is stored uncompressed, else inflated into an unnamed file
    beside ``scratch``.

    :raises WriteError: if HDF5 fails.
    """
    if info.compress_type == zipfile.ZIP_STORED:
        with storage.reading(path, start=_data_offset(path, info), size=info.file_size) as opened:
            yield opened
        return
    with atomic.Draft.beside(scratch) as inflated:
        with archive.open(info) as member, inflated.path.open("r+b") as stream:
            while block := member.read(_BLOCK):
                stream.write(block)
        with storage.reading(inflated.path) as opened:
            yield opened


def _data_offset(path: Path, info: zipfile.ZipInfo) -> int:
    with opening.regular_stream(path) as stream:
        start = member_start(positioned_read(stream), info.header_offset)
    if start is None:
        raise WriteError("write-failed", f"is a damaged zip archive: {info.filename} has no header")
    return start
