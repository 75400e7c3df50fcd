"""
Reading files at any offset, the places of members in zip archives, and equal ranges of bytes.
"""

from __future__ import annotations

import errno
import io
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, Final, TypeAlias

from policytool.support.files import opening

if TYPE_CHECKING:
    from pathlib import Path


PositionedRead: TypeAlias = Callable[[int, int], bytes]
"""Returns so many bytes of a file at an offset, fewer at its end."""

_LOCAL_HEADER: Final = struct.Struct("<4s22xHH")
"""A member's local file header up to its two variable lengths (PKWARE APPNOTE 4.3.7)."""

_LOCAL_SIGNATURE: Final = b"PK\x03\x04"


class SeekableStream(io.RawIOBase):
    """A read-only stream of known size; a subclass reads at ``_position``, and moves it."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """
        Move within the stream, or beyond its end.

        :raises OSError: for a position before its start.
        """
        if whence == os.SEEK_CUR:
            offset += self._position
        elif whence == os.SEEK_END:
            offset += self._size
        if offset < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self._position = offset
        return offset

    def tell(self) -> int:
        """Return the position."""
        return self._position


def positioned_read(stream: BinaryIO) -> PositionedRead:
    """Return what reads an open file at any offset, until the file is closed."""
    pread: PositionedRead | None = getattr(stream, "pread", None)  # of a remote file
    return partial(os.pread, stream.fileno()) if pread is None else pread


def member_start(read: PositionedRead, header: int) -> int | None:
    """
    Return the offset of a zip member's bytes, which only its local header gives; None if there is
    no local header at ``header``.
    """
    local_header = read(_LOCAL_HEADER.size, header)
    if len(local_header) < _LOCAL_HEADER.size or not local_header.startswith(_LOCAL_SIGNATURE):
        return None
    _, name_length, extra_length = _LOCAL_HEADER.unpack(local_header)
    return int(header + _LOCAL_HEADER.size + name_length + extra_length)


_COMPARED: Final = 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class Range:
    """Bytes in an open file."""

    descriptor: int
    start: int
    size: int


def equal(first: Range, second: Range) -> bool:
    """Return whether two ranges have the same bytes."""
    if first.size != second.size:
        return False
    for offset in range(0, first.size, _COMPARED):
        count = min(_COMPARED, first.size - offset)
        if os.pread(first.descriptor, count, first.start + offset) != os.pread(
            second.descriptor, count, second.start + offset
        ):
            return False
    return True


def same_bytes(path: Path, other_path: Path) -> bool:
    """
    Return whether two files have the same bytes.

    :raises OSError: if a file cannot be read.
    """
    with opening.regular_file(path) as first, opening.regular_file(other_path) as second:
        ranges = [
            Range(descriptor=descriptor, start=0, size=os.fstat(descriptor).st_size)
            for descriptor in (first, second)
        ]
        return equal(ranges[0], ranges[1])
