"""
Rewrites ``.keras`` archives: unchanged members are copied as they are stored (local header, bytes,
and everything up to the next member), in their order, and only changed members are written.

It also determines which members of an archive or an unpacked directory change.
"""

from __future__ import annotations

import copy
import os
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from msgspec import Struct

from policytool.formats.hdf5 import rewrite, storage
from policytool.formats.hdf5.datasets import dataset_at
from policytool.formats.hdf5.rebuild import Rebuild, rebuild
from policytool.formats.hdf5.rewrite import measure
from policytool.formats.keras_archive import CONFIG, METADATA, TASK, WEIGHTS_SUFFIX
from policytool.formats.writers import Changes, FileChange, TextChange
from policytool.formats.writing import WriteError, difference_error, require_same
from policytool.support.files import atomic, opening
from policytool.support.files.atomic import Range, same_ranges
from policytool.support.files.random_access import member_start, positioned_read
from policytool.support.grouping import group_pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from policytool.formats.casting import Counts
    from policytool.formats.edits import Cast, Counted
    from policytool.formats.hdf5.storage import OpenHdf5

    Open = Callable[[str], AbstractContextManager[OpenHdf5]]
    """Opens a weights file by its name."""


_EXTRA: Final = struct.Struct("<HH")
_ZIP64: Final = 1
_DESCRIPTION: Final = (
    "compress_type",
    "comment",
    "create_system",
    "internal_attr",
    "external_attr",
)
"""The attributes of a member, except its name, its time and its extra fields."""

_BLOCK: Final = 2**20


@contextmanager
def open_archive(path: Path) -> Iterator[tuple[BinaryIO, zipfile.ZipFile]]:
    """
    Open an archive for reading.

    :raises WriteError: if the archive is damaged.
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
    Return the range of each member's stored bytes, up to the next member, by the offset of its
    header.

    :raises WriteError: if two members have the same offset.
    """
    starts = sorted(info.header_offset for info in archive.infolist())
    if len(set(starts)) != len(starts):
        raise WriteError(
            "not-rewritable", "is a zip archive with overlapping members, which Keras never writes"
        )
    return {
        start: Range(descriptor=descriptor, start=start, size=end - start)
        for start, end in zip(starts, [*starts[1:], archive.start_dir], strict=True)
    }


def copy_member(
    archive: zipfile.ZipFile, stream: BinaryIO, info: zipfile.ZipInfo, region: Range
) -> None:
    """
    Copy the stored bytes of a member from another archive.

    :raises OSError: if reading or writing fails.
    """
    stream.flush()
    start = archive.start_dir
    atomic.copy_bytes(region.descriptor, stream.fileno(), region.size, start=region.start, to=start)
    new_info = copy.copy(info)
    new_info.header_offset = start
    archive.filelist.append(new_info)
    archive.NameToInfo[new_info.filename] = new_info
    archive.start_dir = start + region.size
    stream.seek(archive.start_dir)


def replacement_info(info: zipfile.ZipInfo) -> zipfile.ZipInfo:
    """
    Return the description for the replacement of a member, with the same name, times, attributes
    and compression.
    """
    member_info = zipfile.ZipInfo(info.filename, info.date_time)
    member_info.extra = plain_extra(info)
    for name in (*_DESCRIPTION, "create_version"):
        setattr(member_info, name, getattr(info, name))
    return member_info


def plain_extra(info: zipfile.ZipInfo) -> bytes:
    """
    Return a member's extra fields without the sizes of large members, which depend on its offset.
    """
    plain_fields, remaining = b"", info.extra
    while len(remaining) >= _EXTRA.size:
        kind, length = _EXTRA.unpack_from(remaining)
        field, remaining = remaining[: _EXTRA.size + length], remaining[_EXTRA.size + length :]
        plain_fields += b"" if kind == _ZIP64 else field
    return plain_fields + remaining


def add_file(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> None:
    """
    Add a file as the replacement of a member.

    :raises OSError: if reading or writing fails.
    """
    member_info = replacement_info(info)
    with opening.regular_stream(path) as source:
        member_info.file_size = os.fstat(source.fileno()).st_size
        with archive.open(member_info, "w") as member:
            shutil.copyfileobj(source, member, _BLOCK)


_MODE: Final = 0o600 << 16
"""The permissions of a member that zipfile creates."""

_MARGIN: Final = 1.05
"""How many times as large as its values a file may be (``zipfile.ZipFile.open`` has the same)."""


@contextmanager
def new_member(
    archive: zipfile.ZipFile, stream: BinaryIO, info: zipfile.ZipInfo, value_bytes: int
) -> Iterator[int]:
    """
    Add the bytes that the block writes into the file of a new archive, from the yielded position
    on, as an uncompressed member. Large weights are thus written only once.

    :param value_bytes: the number of bytes of values, which decides if the header has room for
        sizes of 4 GiB and more
    :raises OSError: if reading or writing fails.
    """
    info.header_offset, info.external_attr, info.CRC = archive.start_dir, _MODE, 0
    is_large = value_bytes * _MARGIN > zipfile.ZIP64_LIMIT

    def write_header() -> int:
        """Write the header before the member, and return the end of the header."""
        stream.seek(info.header_offset)
        stream.write(info.FileHeader(zip64=is_large))
        stream.flush()
        return stream.tell()

    start = write_header()
    yield start
    stream.seek(start)
    while block := stream.read(_BLOCK):
        info.CRC = zlib.crc32(block, info.CRC)
    archive.start_dir = stream.tell()
    info.file_size = info.compress_size = archive.start_dir - start
    write_header()
    archive.filelist.append(info)
    archive.NameToInfo[info.filename] = info
    stream.seek(archive.start_dir)


@contextmanager
def open_weights(
    archive: zipfile.ZipFile, path: Path, info: zipfile.ZipInfo, scratch: Path
) -> Iterator[OpenHdf5]:
    """
    Open a member as HDF5: in place if it is stored uncompressed, otherwise decompressed into an
    unnamed file next to ``scratch``.

    :raises WriteError: if HDF5 fails.
    """
    if info.compress_type == zipfile.ZIP_STORED:
        with storage.reading(path, start=_data_offset(path, info), size=info.file_size) as opened:
            yield opened
        return
    with atomic.Draft.beside(scratch) as inflated:
        with archive.open(info) as member, inflated.path.open("r+b") as stream:
            shutil.copyfileobj(member, stream, _BLOCK)
        with storage.reading(inflated.path) as opened:
            yield opened


def _data_offset(path: Path, info: zipfile.ZipInfo) -> int:
    with opening.regular_stream(path) as stream:
        start = member_start(positioned_read(stream), info.header_offset)
    if start is None:
        raise WriteError("write-failed", f"is a damaged zip archive: {info.filename} has no header")
    return start


_TEXTS: Final = (CONFIG, METADATA, TASK)


def text_changes(names: Container[str], changes: Changes) -> dict[str, TextChange]:
    """
    Return the change to each edited text, by name.

    :raises WriteError: if the model lacks a text of that name.
    """
    edits = group_pairs((edit.address.part, edit) for edit in changes.edits)
    for part in sorted(edits):
        if part not in _TEXTS or part not in names:
            raise WriteError(
                "source-changed",
                f"has no {part}, which the plan changes; run again with --preview",
            )
    return {part: TextChange(part=part, edits=edits[part]) for part in sorted(edits)}


def member_rebuilds(names: Iterable[str], opening: Open, changes: Changes) -> Mapping[str, Rebuild]:
    """
    Return the changes to each rebuilt weights file, by name.

    :param names: the names of all files

    :raises WriteError: if no file contains a tensor to cast, or if several contain the optimizer's
        state.
    """
    if not changes.casts and changes.state is None:
        return {}
    casts: dict[str, dict[tuple[str, ...], Cast]] = {}
    holders: list[str] = []
    weights = sorted({name for name in names if name.endswith(WEIGHTS_SUFFIX) and "/" not in name})
    for name in weights:
        with opening(name) as opened:
            root = opened.root  # h5py's links do not keep their group open
            casts[name] = {
                cast.tensor: cast
                for cast in changes.casts
                if dataset_at(root, cast.tensor) is not None
            }
            if any(root.links.exists(group) for group in Rebuild(state=changes.state).new_groups):
                holders.append(name)
    placed = {tensor for file_casts in casts.values() for tensor in file_casts}
    for cast in changes.casts:
        if cast.tensor not in placed:
            raise WriteError(
                "source-changed",
                (
                    f"has no tensor {'/'.join(cast.tensor)}, which the plan casts; run --preview "
                    "again"
                ),
            )
    holder = _holder(weights, holders) if changes.state is not None else None
    return {
        name: Rebuild(casts=file_casts, state=changes.state if name == holder else None)
        for name, file_casts in casts.items()
        if file_casts or name == holder
    }


def _holder(names: Sequence[str], holders: Sequence[str]) -> str:
    """Return the file that contains, or will contain, the optimizer's state."""
    if len(holders) > 1:
        raise WriteError(
            "not-rewritable",
            f"the optimizer state is in several files ({', '.join(holders)}) and cannot "
            "be rearranged",
        )
    if not names:
        raise WriteError(
            "source-changed",
            ("has no weights, but the plan changes the optimizer state; run again with --preview"),
        )
    return holders[0] if holders else names[0]


class ArchiveChange(Struct, frozen=True, kw_only=True):
    """The changes to members of an archive."""

    changes: Changes

    def measure(self, source: Path) -> Counted:
        """Return the effects that casts would have on the values."""
        with open_archive(source) as (_, archive):
            old = _Source(source, archive, Path(tempfile.gettempdir()) / source.name)
            counts: dict[tuple[str, ...], Counts] = {}
            for name, changes in old.rebuilds(self.changes).items():
                with old.weights(name) as opened:
                    counts |= measure(opened, changes)
            return counts

    def write(self, source: Path, draft: Path) -> Counted:
        """Write the changed archive into an empty draft."""
        with (
            open_archive(source) as (stream, archive),
            draft.open("r+b") as new_stream,
            zipfile.ZipFile(new_stream, "w") as new_archive,
        ):
            old = _Source(source, archive, draft)
            new_texts, rebuilds = old.texts(self.changes), old.rebuilds(self.changes)
            _refuse_duplicates(archive, {*new_texts, *rebuilds})
            new_archive.comment = archive.comment
            regions = member_regions(archive, stream.fileno())
            counts: dict[tuple[str, ...], Counts] = {}
            by_index: dict[int, zipfile.ZipInfo] = {}
            for index, info in sorted(
                enumerate(archive.infolist()), key=lambda pair: pair[1].header_offset
            ):
                if info.filename in new_texts:
                    new_archive.writestr(replacement_info(info), new_texts[info.filename])
                elif info.filename in rebuilds:
                    counts |= _rebuild_member(old, info, new_archive, rebuilds[info.filename])
                else:
                    copy_member(new_archive, new_stream, info, regions[info.header_offset])
                by_index[index] = new_archive.filelist[-1]
            new_archive.filelist[:] = [by_index[index] for index in sorted(by_index)]
        return counts

    def compare(self, source: Path, draft: Path) -> None:
        """Compare a draft with its source."""
        with (
            open_archive(source) as (old_stream, old_archive),
            open_archive(draft) as (new_stream, new_archive),
        ):
            old, new = _Source(source, old_archive, draft), _Source(draft, new_archive, draft)
            new_texts, rebuilds = old.texts(self.changes), old.rebuilds(self.changes)
            old_infos, new_infos = old_archive.infolist(), new_archive.infolist()
            if [_description(info) for info in old_infos] != [
                _description(info) for info in new_infos
            ] or old_archive.comment != new_archive.comment:
                raise difference_error("the list of members")
            old_regions, new_regions = (
                member_regions(old_archive, old_stream.fileno()),
                member_regions(new_archive, new_stream.fileno()),
            )
            for old_info, new_info in zip(old_infos, new_infos, strict=True):
                name = old_info.filename
                if name in new_texts:
                    require_same(new_archive.read(new_info) == new_texts[name], name)
                elif name in rebuilds:
                    with old.weights(name) as first, new.weights(name) as second:
                        rewrite.compare(first, second, rebuilds[name])
                else:
                    require_same(
                        old_info.CRC == new_info.CRC
                        and same_ranges(
                            old_regions[old_info.header_offset],
                            new_regions[new_info.header_offset],
                        ),
                        name,
                    )


class _Source:
    """The weights files and texts of an archive."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, scratch: Path) -> None:
        self._path, self._archive, self.scratch = path, archive, scratch
        """Temporary files are created next to ``scratch``."""

    def texts(self, changes: Changes) -> Mapping[str, bytes]:
        """Return the new bytes of each JSON member that changes."""
        return {
            part: text.new_bytes(self._archive.read(part))
            for part, text in text_changes(self._archive.NameToInfo, changes).items()
        }

    def rebuilds(self, changes: Changes) -> Mapping[str, Rebuild]:
        """Return the changes to each rebuilt weights member."""
        return member_rebuilds(self._archive.namelist(), self.weights, changes)

    @contextmanager
    def weights(self, name: str) -> Iterator[OpenHdf5]:
        """Open a weights member."""
        with open_weights(
            self._archive, self._path, self._archive.NameToInfo[name], self.scratch
        ) as opened:
            yield opened


def _rebuild_member(
    old: _Source, info: zipfile.ZipInfo, new_archive: zipfile.ZipFile, changes: Rebuild
) -> Mapping[tuple[str, ...], Counts]:
    """Rebuild a weights member, using an unnamed temporary file."""
    with atomic.Draft.beside(old.scratch) as draft:
        with old.weights(info.filename) as opened, storage.creating(draft.path, opened) as target:
            counts = rebuild(opened, target, changes)
        add_file(new_archive, info, draft.path)
    return counts


def _refuse_duplicates(archive: zipfile.ZipFile, names: set[str]) -> None:
    for name, count in Counter(archive.namelist()).items():
        if count > 1 and name in names:
            raise WriteError(
                "not-rewritable",
                f"the archive contains {name} {count} times, but the plan changes it; "
                "remove all copies except the last",
            )


def _description(info: zipfile.ZipInfo) -> tuple[object, ...]:
    return (
        info.filename,
        info.date_time,
        plain_extra(info),
        *(getattr(info, name) for name in _DESCRIPTION),
    )


def file_changes(_path: Path, changes: Changes) -> Mapping[str, FileChange]:
    """Return the changes to the archive."""
    return {"": ArchiveChange(changes=changes)}
