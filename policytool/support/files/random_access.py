"""
Reading of files at any offset, and the offsets of members in zip archives.
"""

from __future__ import annotations

import errno
import io
import os
import struct
from collections.abc import Callable
from functools import partial
from typing import BinaryIO, Final, TypeAlias

PositionedRead: TypeAlias = Callable[[int, int], bytes]
"""Returns a number of bytes of a file at an offset, or fewer at its end."""

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
    """Return the function that reads an open file at any offset, until the file is closed."""
    pread: PositionedRead | None = getattr(stream, "pread", None)  # of a remote file
    return partial(os.pread, stream.fileno()) if pread is None else pread


def member_start(read: PositionedRead, header: int) -> int | None:
    """
    Return the offset of a zip member's bytes, from its local header; None if there is no local
    header at ``header``.
    """
    local_header = read(_LOCAL_HEADER.size, header)
    if len(local_header) < _LOCAL_HEADER.size or not local_header.startswith(_LOCAL_SIGNATURE):
        return None
    _, name_length, extra_length = _LOCAL_HEADER.unpack(local_header)
    return int(header + _LOCAL_HEADER.size + name_length + extra_length)
