"""Bytes and attributes from one file to another, and to the disk."""

from __future__ import annotations

import contextlib
import errno
import operator
import os
import stat
from typing import TYPE_CHECKING, Final

from policytool.support.files.byte_ranges import same_bytes
from policytool.support.files.opening import regular_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL
"""Opens a file that is not there yet."""

_RANGE: Final = 64 * 2**20
"""Bytes that the system copies in one call; Ctrl-C takes effect between two calls."""

_BLOCK: Final = 2**20
_UNSUPPORTED: Final = {
    *(errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM, errno.EACCES),
    *(errno.EBADF, errno.ENODATA, errno.ERANGE, errno.EMLINK, errno.EXDEV),
}
_owner_ids: Final = operator.attrgetter("st_uid", "st_gid")


def copy_file(source: Path, draft: Path) -> None:
    """
    Copy the bytes of a file into an empty draft.

    :raises OSError: if reading or writing fails.
    """
    with regular_file(source) as reader, open_descriptor(draft, os.O_WRONLY) as writer:
        copy_bytes(reader, writer, os.fstat(reader).st_size)


def copy_bytes(source: int, target: int, count: int, *, start: int = 0, to: int = 0) -> None:
    """
    Copy bytes between two open files, inside the kernel if possible.

    :raises OSError: if reading or writing fails, or the source ends early.
    """
    done, copied = 0, int(hasattr(os, "copy_file_range"))
    with contextlib.suppress(OSError):  # the second loop continues, and reports a disk that fails
        while copied and done < count:
            size = min(_RANGE, count - done)
            copied = os.copy_file_range(source, target, size, start + done, to + done)
            done += copied
    while done < count:
        block = os.pread(source, min(_BLOCK, count - done), start + done)
        if not block:
            raise OSError(errno.EIO, "the file ended while it was read")
        write_all(target, block, to + done)
        done += len(block)


def copy_data(source: int, target: int) -> None:
    """
    Copy the bytes of an open file into an empty one, which gets the same holes.

    :raises OSError: if reading or writing fails, or the source ends early.
    """
    size = os.fstat(source).st_size
    os.ftruncate(target, size)
    for start, end in _stored_ranges(source, size):
        copy_bytes(source, target, end - start, start=start, to=start)


def _stored_ranges(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield where bytes of a file are stored; a system that does not tell has all in one range."""
    end = 0
    while end < size:
        start = end
        try:
            start = os.lseek(descriptor, start, os.SEEK_DATA)
            end = os.lseek(descriptor, start, os.SEEK_HOLE)
        except (AttributeError, OSError) as error:
            if getattr(error, "errno", None) == errno.ENXIO:  # nothing but a hole is left
                return
            end = size
        yield start, min(end, size)


def write_all(descriptor: int, data: bytes | memoryview, offset: int) -> None:
    """
    Write all of ``data`` at an offset of a file.

    :raises OSError: if writing fails.
    """
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


def same_file(path: Path, other_path: Path) -> bool:
    """
    Return whether two paths name one file, or two regular files with the same bytes.

    :raises OSError: if a file cannot be read.
    """
    first, second = os.lstat(path), os.lstat(other_path)
    if os.path.samestat(first, second):
        return True
    kinds = {(stat.S_ISREG(status.st_mode), status.st_size) for status in (first, second)}
    if kinds != {(True, first.st_size)}:
        return False
    return same_bytes(path, other_path)


def copy_attributes(like: Path | None, descriptor: int) -> None:
    """
    Copy the mode of ``like`` to a file, the owner if permitted, and the extended attributes if
    supported; without ``like``, set the mode of a new file.

    :raises OSError: if the disk is full or fails.
    """
    if like is None:
        mask = os.umask(0o077)
        os.umask(mask)
        os.fchmod(descriptor, 0o666 & ~mask)
        return
    source_status = like.stat()
    mode = stat.S_IMODE(source_status.st_mode)
    if not _change_owner(descriptor, source_status):
        mode &= ~(stat.S_ISUID | stat.S_ISGID)  # they would lend the rights of the wrong owner
    os.fchmod(descriptor, mode)
    with where_supported():
        for name in os.listxattr(like) if hasattr(os, "listxattr") else ():
            with where_supported():
                os.setxattr(descriptor, name, os.getxattr(like, name))


def sync(descriptor: int) -> None:
    """
    Bring a file, or the names in a directory, to the disk, if its file system can do that.

    :raises OSError: if the disk fails.
    """
    with where_supported():
        os.fsync(descriptor)


def sync_directory(directory: Path) -> None:
    """
    Bring the names in a directory to the disk.

    :raises OSError: if the disk fails.
    """
    with open_descriptor(directory, os.O_RDONLY) as descriptor:
        sync(descriptor)


@contextlib.contextmanager
def open_descriptor(path: Path, flags: int) -> Iterator[int]:
    """
    Open a draft, or a directory, for the length of a block.

    :raises OSError: if it cannot be opened.
    """
    descriptor = os.open(path, flags, 0o600)
    try:
        yield descriptor
    finally:
        with contextlib.suppress(OSError):  # fsync() reports what was not written
            os.close(descriptor)


@contextlib.contextmanager
def where_supported() -> Iterator[None]:
    """Ignore what the file system, or the user's rights, do not allow; a failing disk raises."""
    try:
        yield
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise


def _change_owner(descriptor: int, source_status: os.stat_result) -> bool:
    """
    Try to set the owner and the group of a file, or only the group; return whether it has both.
    """
    for user in (source_status.st_uid, -1):
        if _owner_ids(os.fstat(descriptor)) != _owner_ids(source_status):
            with where_supported():
                os.fchown(descriptor, user, source_status.st_gid)
    return bool(_owner_ids(os.fstat(descriptor)) == _owner_ids(source_status))
