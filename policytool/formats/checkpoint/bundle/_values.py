"""
Reading of tensors from a checkpoint's shards, in pieces of limited size and with verified
checksums.
"""

from __future__ import annotations

import math
import os
from contextlib import ExitStack, contextmanager
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.formats.base import failed_download
from policytool.formats.checkpoint.bundle import _index
from policytool.formats.checkpoint.bundle._index import check_limit
from policytool.support import limits
from policytool.support.errors import BundleError
from policytool.support.files import opening
from policytool.support.files.random_access import positioned_read
from policytool.support.text.protobuf_splice import read_varint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.formats.checkpoint.bundle._index import Entry
    from policytool.support.files.random_access import PositionedRead
    from policytool.support.files.remote_path import AnyPath

CHUNK: Final = 2**20
"""The maximum number of bytes per read."""

_UINT32_BYTES: Final = 4
_UINT32_END: Final = 2**32


class Shards(Struct, frozen=True, kw_only=True):
    """
    The files with a checkpoint's values. Their names are derived from the prefix, never read from
    the index.
    """

    prefix: AnyPath
    count: int

    def path(self, number: int) -> AnyPath:
        """Return the path of a shard (``DataFilename`` in naming.cc)."""
        return self.prefix.with_name(f"{self.prefix.name}.data-{number:05d}-of-{self.count:05d}")

    @contextmanager
    def open_shard(self, number: int) -> Iterator[_Shard]:
        """
        Open a shard for reading.

        :raises BundleError: if the shard is missing, is not a file, or is a link to a path outside
            the directory.
        """
        path = self.path(number)
        if opening.links_beside(path):
            raise BundleError(
                "escaping-link",
                f"{path.name} is a link to a file outside its directory and was not "
                "followed; replace the link with the file",
            )
        try:
            stream = opening.regular_stream(path)
        except FileNotFoundError as error:
            raise BundleError(
                "checkpoint-incomplete",
                f"{path.name} is missing, but the index lists values in it; copy it to the "
                "same directory",
            ) from error
        except (opening.NotRegularError, IsADirectoryError) as error:
            raise BundleError(
                "checkpoint-incomplete",
                f"{path.name} is not a regular file; expected a data file of the checkpoint",
            ) from error
        with stream:
            size = stream.seek(0, os.SEEK_END)
            yield _Shard(name=path.name, read=positioned_read(stream), size=size)


class _Shard(Struct, frozen=True, kw_only=True):
    """An open shard."""

    name: str
    read: PositionedRead
    size: int

    def check(self, entry: Entry) -> None:
        """Raise an error if an entry exceeds the end of the shard."""
        if entry.offset + entry.size > self.size:
            if problem := failed_download(self.read(4096, 0)):
                raise BundleError(problem[0], f"{self.name} {problem[1]}")
            raise BundleError(
                "truncated",
                f"{self.name} is truncated: {entry.key} ends at byte "
                f"{entry.offset + entry.size}, but the file has only {self.size} bytes; "
                "copy or download it again",
            )


class _Stream:
    """A sequential reader of a tensor's stored bytes, which computes their checksum."""

    def __init__(self, shard: _Shard, entry: Entry) -> None:
        shard.check(entry)
        self._shard = shard
        self._entry = entry
        self._position = entry.offset
        self._checksum = 0

    def read(self, size: int) -> bytes:
        """Return the next ``size`` bytes."""
        data = b""
        while len(data) < size:  # one read ends at 2 GiB on Linux
            piece = self._shard.read(size - len(data), self._position)
            if not piece:
                raise BundleError(
                    "truncated",
                    f"{self._shard.name} was truncated while {self._entry.key} was read",
                )
            data += piece
            self._position += len(piece)
        self._checksum = _index.extend_checksum(self._checksum, data)
        return data

    def pieces(self, size: int) -> Iterator[bytes]:
        """Yield the next ``size`` bytes in pieces."""
        for remaining in range(size, 0, -CHUNK):
            yield self.read(min(remaining, CHUNK))

    def finish(self, checksum: int | None = None) -> None:
        """
        Raise an error if the checksum of the read bytes, or ``checksum`` if specified, differs from
        the entry's checksum.
        """
        if (
            _index.masked_checksum(self._checksum if checksum is None else checksum)
            != self._entry.checksum
        ):
            raise BundleError(
                "checkpoint-damaged",
                f"the values of {self._entry.key} in {self._shard.name} do not match their "
                "checksum; copy or download the file again",
            )


def chunks(shards: Shards, entry: Entry) -> Iterator[bytes]:
    """Yield a tensor's bytes; see :meth:`Bundle.chunks`."""
    if entry.dtype in {"variant", "resource", _index.UNKNOWN}:
        raise BundleError(
            "checkpoint-unsupported",
            f"{entry.key} has values of dtype {entry.dtype}, but only numbers and strings "
            "can be read",
        )
    if entry.slices:
        yield from _assemble(shards, entry)
    elif entry.dtype == _index.STRING:
        data = _verified_strings(shards, entry)[0]
        for start in range(0, len(data), CHUNK):
            yield data[start : start + CHUNK]
    else:
        with shards.open_shard(entry.shard) as shard:
            stream = _Stream(shard, entry)
            yield from _hold_back_last(stream, stream.pieces(entry.size))


def strings(shards: Shards, entry: Entry) -> tuple[bytes, ...]:
    """Return the elements of a string tensor; see :meth:`Bundle.strings`."""
    data, lengths, position = _verified_strings(shards, entry)
    ends = accumulate(lengths, initial=position)
    return tuple(data[start:end] for start, end in pairwise(ends))


def _hold_back_last(stream: _Stream, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the pieces; verify the checksum before the last piece."""
    last = b""
    for piece in pieces:
        if last:
            yield last
        last = piece
    stream.finish()
    if last:
        yield last


def _assemble(shards: Shards, entry: Entry) -> Iterator[bytes]:
    """
    Yield a partitioned variable's bytes in the order of the complete variable: for each index
    before the partitioned axis, a contiguous run of each part.
    """
    if entry.dtype == _index.STRING:
        raise BundleError(
            "checkpoint-unsupported",
            f"{entry.key} is a partitioned string tensor; only numeric tensors can be joined",
        )
    rows = math.prod(entry.shape[: _index.partitioned_axis(entry.shape, entry.slices)])
    with ExitStack() as stack:
        open_shards = {
            number: stack.enter_context(shards.open_shard(number))
            for number in {part.entry.shard for part in entry.slices}
        }
        streams = [_Stream(open_shards[part.entry.shard], part.entry) for part in entry.slices]
        runs = [part.entry.size // rows if rows else 0 for part in entry.slices]
        at_once = max(1, CHUNK // max(1, sum(runs)))
        for first in range(0, rows, at_once):
            count = min(at_once, rows - first)
            if count == 1:
                for stream, run in zip(streams, runs, strict=True):
                    yield from stream.pieces(run)
            else:
                blocks = [
                    (stream.read(run * count), run)
                    for stream, run in zip(streams, runs, strict=True)
                ]
                yield b"".join(
                    block[row * run : (row + 1) * run]
                    for row in range(count)
                    for block, run in blocks
                )
        for stream in streams:
            stream.finish()


def _verified_strings(shards: Shards, entry: Entry) -> tuple[bytes, list[int], int]:
    """
    Return a string tensor's stored bytes, the lengths of its elements, and the offset of the first.

    The file stores the lengths as varints, a checksum of the lengths as fixed-width integers, and
    the text. The entry's checksum covers the fixed-width integers, the first checksum and the text
    (``WriteStringTensor`` in tensor_bundle.cc).
    """
    count = math.prod(entry.shape)
    check_limit(limits.CHECKPOINT_STRING_BYTES, entry.size, f"{entry.key} has strings of")
    if count > entry.size:
        raise BundleError(
            "checkpoint-damaged",
            f"{entry.key} cannot contain {count} strings in {entry.size} bytes; copy or "
            "download it again",
        )
    with shards.open_shard(entry.shard) as shard:
        stream = _Stream(shard, entry)
        data = stream.read(entry.size)
    lengths, position = _lengths(entry, data, count)
    start = position + (_UINT32_BYTES if count else 0)
    checksum = 0
    for length in lengths:
        checksum = _index.extend_checksum(
            checksum,
            length.to_bytes(_UINT32_BYTES if length < _UINT32_END else 2 * _UINT32_BYTES, "little"),
        )
    stream.finish(_index.extend_checksum(checksum, data[position:]))
    if sum(lengths) != len(data) - start:
        raise BundleError(
            "checkpoint-damaged",
            f"the strings of {entry.key} do not match the declared size; copy or download the "
            "file again",
        )
    return data, lengths, start


def _lengths(entry: Entry, data: bytes, count: int) -> tuple[list[int], int]:
    """Return the lengths of the elements of a string tensor, and the position after them."""
    lengths, position = [], 0
    try:
        for _ in range(count):
            length, position = read_varint(data, position, len(data))
            lengths.append(length)
    except ValueError as error:
        raise BundleError(
            "checkpoint-damaged",
            f"the string lengths of {entry.key} are damaged; copy or download the file again",
        ) from error
    return lengths, position
