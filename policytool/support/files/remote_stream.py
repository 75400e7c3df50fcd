"""
The bytes of a remote file. The ranges that were read are kept in memory, within a limit for all
files of a session.
"""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, Final

from policytool.support.files.random_access import SeekableStream
from policytool.support.files.range_windows import BEFORE, MOST_AHEAD, Gap, RangeWindows
from policytool.support.files.remote_requests import changed

if TYPE_CHECKING:
    from collections.abc import Callable

    from policytool.support.files.remote_path import RemotePath

_MOST_AT_ONCE: Final = 8 * 2**20
"""Bytes of one request for values."""


class RemoteStream(SeekableStream):
    """A remote file, read by ranges."""

    def __init__(self, source: Source) -> None:
        super().__init__(source.size)
        self._source = source

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        """Fill ``buffer``, as far as the file goes."""
        data = self.pread(len(buffer), self._position)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def pread(self, count: int, offset: int) -> bytes:
        """
        Return so many bytes at an offset, fewer at the end of the file.

        :raises ModelFileError: if the server does not deliver them.
        """
        return self._source.read(count, offset)


class Source:
    """The bytes of one file: the pieces in memory, and a function that requests the others."""

    def __init__(
        self,
        path: RemotePath,
        size: int,
        fetch: Callable[[int, int], bytes],
        on_keep: Callable[[Source, int, int], None],
    ) -> None:
        """
        :param fetch: returns the bytes from an offset up to another
        :param on_keep: called with this source and the start and size of each piece that it keeps
        """
        self.size = size
        self._path = path
        self._fetch = fetch
        self._on_keep = on_keep
        self._starts: list[int] = []
        self._pieces: dict[int, bytes] = {}
        self._windows = RangeWindows()

    def read(self, count: int, offset: int) -> bytes:
        """Return so many bytes at an offset, fewer at the end of the file."""
        end = min(offset + count, self.size)
        read = []
        while offset < end:
            start, piece = self._piece(offset, end)
            part = piece[offset - start : end - start]
            read.append(part)
            offset += len(part)
        return b"".join(read)

    def drop(self, start: int) -> None:
        """Forget a piece."""
        del self._pieces[start]
        self._starts.remove(start)

    def _piece(self, offset: int, end: int) -> tuple[int, bytes]:
        """Return a piece that holds the byte at ``offset``, and where it starts."""
        index = bisect.bisect_right(self._starts, offset)
        before = self._starts[index - 1] if index else 0
        width = len(self._pieces[before]) if index else 0
        if offset < before + width:
            self._windows.touch(offset, end)
            return before, self._pieces[before]
        next_start = self._starts[index] if index < len(self._starts) else self.size
        gap = Gap(start=before + width, stop=next_start, bytes_before=width)
        start, stop = self._windows.window(offset, min(end, offset + _MOST_AT_ONCE), gap)
        data = self._fetch(start, stop)
        if len(data) != stop - start:
            raise changed(self._path)
        if len(data) <= MOST_AHEAD + BEFORE:  # values are read once
            self._keep(start, data)
        return start, data

    def _keep(self, start: int, data: bytes) -> None:
        bisect.insort(self._starts, start)
        self._pieces[start] = data
        self._on_keep(self, start, len(data))
