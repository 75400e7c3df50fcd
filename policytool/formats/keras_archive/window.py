"""A part of a file as a file of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.support.files.random_access import SeekableStream

if TYPE_CHECKING:
    from policytool.support.files.random_access import PositionedRead

BLOCK: Final = 2048
"""Bytes read at once: HDF5 places metadata in blocks of this size (``H5Pset_meta_block_size``)."""


class Window(SeekableStream):
    """
    A part of a file as a read-only file of its own, for HDF5 inside an uncompressed zip member.

    h5py over ``zipfile``'s own file object reads from the member's start again at each backward
    seek.

    :param least: bytes that are read at once, at least
    """

    def __init__(self, read: PositionedRead, offset: int, size: int, *, least: int = BLOCK) -> None:
        super().__init__(size)
        self._read = read
        self._offset = offset
        self._least = least
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
            count = min(max(len(buffer), self._least), max(0, self._size - self._position))
            self._block = self._read(count, self._offset + self._position)
            start, end = 0, len(buffer)
        piece = self._block[start:end]
        buffer[: len(piece)] = piece
        self._position += len(piece)
        return len(piece)

    def pread(self, count: int, offset: int) -> bytes:
        """Return so many bytes at an offset, fewer at the window's end."""
        return self._read(max(0, min(count, self._size - offset)), self._offset + offset)
