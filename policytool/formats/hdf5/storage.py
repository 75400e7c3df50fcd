"""
HDF5 on an open file or a part of it, so that unnamed drafts and members of archives can be read
and written.

Old texts are wiped from a draft before HDF5 opens it for writing. A text of variable length lies in
a global heap, which HDF5 neither clears nor protects by a checksum: an old config would stay
readable in the file.
"""

from __future__ import annotations

import mmap
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal

import h5py
from h5py import h5f, h5fd, h5g, h5p
from msgspec import Struct

from policytool.formats.hdf5 import SIGNATURE, attributes
from policytool.formats.writing import WriteError
from policytool.support.files.atomic import open_descriptor, write_all
from policytool.support.files.opening import regular_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


_CACHED: Final = 2048
"""HDF5 reads metadata in many small pieces that lie close together (``H5Pset_meta_block_size``)."""

_HDF5_ERRORS: Final = (
    RuntimeError,
    OSError,
    LookupError,
    ValueError,
    TypeError,
    OverflowError,
    SystemError,
)
"""
The exceptions of h5py, which depend on the failing function of libhdf5; SystemError if a callback
raised while a file was closed.
"""


class Storage:
    """
    The file object that h5py reads from and writes to.

    libhdf5 does not support exceptions in callbacks. A failed write is therefore stored in
    ``failure``, later writes are dropped, and the code that opened the file raises the error.
    """

    def __init__(self, descriptor: int, *, start: int = 0, size: int | None = None) -> None:
        self.descriptor = descriptor
        self.start = start
        self.failure: BaseException | None = None
        self._size = size
        self._position = 0
        self._block = b""
        self._block_start = 0

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the position, relative to the start or the end, as HDF5 needs it."""
        self._position = offset + (self._end() if whence == os.SEEK_END else 0)
        return self._position

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def read(self, count: int = -1) -> bytes:
        """Return bytes from the position on; h5py checks that this method exists."""
        block = os.pread(
            self.descriptor,
            count if count >= 0 else self._end() - self._position,
            self.start + self._position,
        )
        self._position += len(block)
        return block

    def readinto(self, buffer: memoryview) -> int:
        """Fill the buffer, with zeros beyond the end."""
        view, position = memoryview(buffer).cast("B"), self._position
        count = len(view)
        available = max(0, min(count, self._end() - position))
        view[available:] = bytes(count - available)
        view = view[:available]
        while view:
            read = self._read_cached(view, position) or os.preadv(
                self.descriptor, [view], self.start + position
            )
            if not read:
                view[:] = bytes(len(view))
                break
            view, position = view[read:], position + read
        self._position += count
        return count

    def write(self, data: bytes | memoryview) -> int:
        """Write all of the data; the code that opened the file reports a failure."""
        view = memoryview(data).cast("B")
        self._block = b""
        self._attempt(write_all, self.descriptor, view, self.start + self._position)
        self._position += len(view)
        return len(view)

    def truncate(self, size: int) -> int:
        """Cut or extend the file."""
        self._block = b""
        self._attempt(os.ftruncate, self.descriptor, self.start + size)
        return size

    def _attempt(self, change: Callable[..., object], *arguments: object) -> None:
        """Make a change unless an earlier one failed, and keep the exception for :meth:`check`."""
        if self.failure is None:
            try:
                change(*arguments)
            except BaseException as error:  # noqa: BLE001  # raised again when the file is closed
                self.failure = error

    def flush(self) -> None:
        """Do nothing, because writes are not buffered."""

    def check(self) -> None:
        """
        Raise the error of a failed write.

        :raises OSError: if a write failed.
        """
        if self.failure is not None:
            raise self.failure

    def _end(self) -> int:
        return os.fstat(self.descriptor).st_size - self.start if self._size is None else self._size

    def _read_cached(self, view: memoryview, position: int) -> int:
        """Return the number of bytes read from the cached block; 0 for large reads."""
        if len(view) >= _CACHED:
            return 0
        start = position - self._block_start
        if not 0 <= start < len(self._block):
            self._block = os.pread(self.descriptor, _CACHED, self.start + position)
            self._block_start, start = position, 0
        piece = self._block[start : start + len(view)]
        view[: len(piece)] = piece
        return len(piece)


class OpenHdf5(Struct, frozen=True, kw_only=True):
    """An open HDF5 file and its storage."""

    file: h5py.File
    storage: Storage

    @property
    def root(self) -> h5g.GroupID:
        """The root group."""
        return h5g.open(self.file.id, b"/")


@contextmanager
def reading(path: Path, *, start: int = 0, size: int | None = None) -> Iterator[OpenHdf5]:
    """
    Open a file, or a part of it, for reading.

    :raises WriteError: if HDF5 fails.
    :raises OSError: if the operating system fails.
    """
    with regular_file(path) as descriptor:
        storage = Storage(descriptor, start=start, size=size)
        with _failures(storage), h5py.File(storage, "r") as file:
            yield OpenHdf5(file=file, storage=storage)


@contextmanager
def drafting(path: Path, mode: Literal["r+", "w"], start: int = 0) -> Iterator[OpenHdf5]:
    """
    Open a draft to change it in place, or to create a file that starts at a position and ends with
    the draft. New parts use the oldest possible formats, which all releases read.

    :raises WriteError: if HDF5 fails.
    :raises OSError: if the operating system fails, for example because the disk is full.
    """
    with open_descriptor(path, os.O_RDWR) as descriptor:
        storage = Storage(descriptor, start=start)
        with _failures(storage), h5py.File(storage, mode, libver=("earliest", "latest")) as file:
            yield OpenHdf5(file=file, storage=storage)


@contextmanager
def creating(path: Path, like: OpenHdf5) -> Iterator[OpenHdf5]:
    """
    Create a file in an empty draft, with the creation properties, the user block and the format
    version of ``like``.

    :raises WriteError: if HDF5 fails.
    :raises OSError: if the operating system fails, for example because the disk is full.
    """
    with open_descriptor(path, os.O_RDWR) as descriptor:
        storage = Storage(descriptor)
        with _failures(storage):
            properties = like.file.id.get_create_plist()
            block = os.pread(
                like.storage.descriptor, properties.get_userblock(), like.storage.start
            )
            with h5py.File(_create(storage, properties, like)) as file:
                yield OpenHdf5(file=file, storage=storage)
            if block:
                write_all(descriptor, block, 0)


def _create(storage: Storage, properties: h5p.PropFCID, like: OpenHdf5) -> h5f.FileID:
    access = h5p.create(h5p.FILE_ACCESS)
    access.set_fclose_degree(h5f.CLOSE_STRONG)
    access.set_libver_bounds(
        _lowest_format_version(like, properties.get_userblock()), h5f.LIBVER_LATEST
    )
    access.set_fileobj_driver(h5fd.fileobj_driver, storage)
    return h5f.create(repr(storage).encode(), h5f.ACC_TRUNC, fcpl=properties, fapl=access)


def _lowest_format_version(like: OpenHdf5, offset: int) -> int:
    """
    Return the lowest format version to set, so that HDF5 writes a superblock of the same
    version as that of ``like``, which is at ``offset`` (HDF5 file format, section II.A).
    """
    head = os.pread(like.storage.descriptor, len(SIGNATURE) + 1, like.storage.start + offset)
    version = head[-1] if head.startswith(SIGNATURE) else 0
    return int(
        {0: h5f.LIBVER_EARLIEST, 1: h5f.LIBVER_EARLIEST, 2: h5f.LIBVER_V18}.get(
            version, h5f.LIBVER_V110
        )
    )


def _first_cause(error: BaseException) -> BaseException:
    """
    Return the exception of a callback, which Python wraps again for each function that it leaves.
    """
    while isinstance(error, SystemError) and error.__cause__ is not None:
        error = error.__cause__
    return error


@contextmanager
def _failures(storage: Storage) -> Iterator[None]:
    """Convert exceptions of h5py into the error of the operating system, or a WriteError."""
    try:
        yield
    except _HDF5_ERRORS as error:
        storage.check()
        if isinstance(error, OSError) and error.errno is not None:
            raise
        if (cause := _first_cause(error)) is not error:
            raise cause from None
        reason = str(error).strip("'\" ").splitlines() or [type(error).__name__]
        raise WriteError("write-failed", f"HDF5 failed: {reason[0]}") from error
    storage.check()


_SHORTEST: Final = 16
"""The minimum length of texts to wipe; shorter texts occur by chance and contain no config."""

_NEAR: Final = 4 * 2**20
"""
The number of bytes at the start and at the end of a file that are searched first, because Keras
writes attributes in them.
"""


def wipe(draft: Path, name: bytes, text: bytes) -> None:
    """
    Overwrite the text of an attribute of variable length with zeros.

    :raises OSError: if the draft cannot be written.
    """
    if len(text) < _SHORTEST:
        return
    with open_descriptor(draft, os.O_RDWR) as descriptor:
        for place in _places(descriptor, text):
            write_all(descriptor, bytes(len(text)), place)
            with reading(draft) as file:
                if attributes.stored_text(file.root, name) == b"":
                    return
            write_all(descriptor, text, place)  # the same bytes, but not those of the attribute


def _places(descriptor: int, text: bytes) -> Iterator[int]:
    """Yield the positions of the text, the likely ones first."""
    size = os.fstat(descriptor).st_size
    yielded: set[int] = set()
    with mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) as view:
        for start, end in (
            (0, _NEAR + len(text)),
            (max(0, size - _NEAR - len(text)), size),
            (0, size),
        ):
            place = view.find(text, start, end)
            while place >= 0:
                if place not in yielded:
                    yielded.add(place)
                    yield place
                place = view.find(text, place + 1, end)
