"""Bytes and attributes from one file to another."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import TYPE_CHECKING, Final

from policytool.support.files.opening import regular_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_RANGE: Final = 64 * 2**20
"""Bytes the system copies in one call, after which Ctrl-C is heard."""

_BLOCK: Final = 2**20
_NO_COPY_RANGE: Final = {
    errno.ENOSYS,
    errno.EXDEV,
    errno.EINVAL,
    errno.EOPNOTSUPP,
    errno.EPERM,
    errno.EBADF,
    errno.ETXTBSY,
}
_NO_ATTRIBUTES: Final = {
    errno.EPERM,
    errno.EACCES,
    errno.EOPNOTSUPP,
    errno.ENOSYS,
    errno.EINVAL,
    errno.ENODATA,
    errno.ERANGE,
}


def copy_file(source: Path, draft: Path) -> None:
    """
    Copy the bytes of a file into an empty draft.

    :raises OSError: where reading or writing fails.
    """
    with regular_file(source) as one, opened(draft, os.O_WRONLY) as other:
        copy_bytes(one, other, os.fstat(one).st_size)


def copy_bytes(source: int, target: int, count: int, *, start: int = 0, to: int = 0) -> None:
    """
    Copy bytes between two open files, by the system alone where it can.

    :raises OSError: where reading or writing fails, and where the source ends early.
    """
    done = 0
    while done < count:
        copied = _copy_range(source, target, min(_RANGE, count - done), start + done, to + done)
        if not copied:
            break
        done += copied
    while done < count:
        block = os.pread(source, min(_BLOCK, count - done), start + done)
        if not block:
            raise OSError(errno.EIO, "the file ended while it was read")
        write_all(target, block, to + done)
        done += len(block)


def same_file(one: Path, other: Path) -> bool:
    """
    Return whether two names stand for one file, or for two with the same bytes.

    :raises OSError: where one cannot be read.
    """
    first, second = os.lstat(one), os.lstat(other)
    if os.path.samestat(first, second):
        return True
    if (
        not (stat.S_ISREG(first.st_mode) and stat.S_ISREG(second.st_mode))
        or first.st_size != second.st_size
    ):
        return False
    with regular_file(one) as left, regular_file(other) as right:
        return all(
            os.pread(left, _BLOCK, start) == os.pread(right, _BLOCK, start)
            for start in range(0, first.st_size, _BLOCK)
        )


def write_all(descriptor: int, data: bytes | memoryview, offset: int) -> None:
    """
    Write all of ``data`` at a place of a file.

    :raises OSError: where writing fails.
    """
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


def copy_attributes(like: Path | None, descriptor: int) -> None:
    """
    Give a file the mode, the owner where permitted, and the extended attributes where supported of
    ``like``; without it what a new file has.

    :raises OSError: where the disk is full or fails.
    """
    if like is None:
        os.fchmod(descriptor, 0o666 & ~_umask())
        return
    wanted = like.stat()
    mode = stat.S_IMODE(wanted.st_mode)
    if not _change_owner(descriptor, wanted):
        mode &= ~(
            stat.S_ISUID | stat.S_ISGID
        )  # these speak of an owner that the file does not have
    os.fchmod(descriptor, mode)
    if hasattr(os, "listxattr"):
        for name in _extended_attributes(like):
            with _where_supported():
                os.setxattr(descriptor, name, os.getxattr(like, name))


def sync_directory(directory: Path) -> None:
    """
    Bring the names in a directory to the disk.

    :raises OSError: where the disk fails.
    """
    with opened(directory, os.O_RDONLY) as descriptor:
        sync_names(descriptor)


def sync_names(directory: int) -> None:
    """
    Bring the names in an open directory to the disk, on file systems that can.

    :raises OSError: where the disk fails.
    """
    try:
        os.fsync(directory)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.EBADF}:
            raise


@contextlib.contextmanager
def opened(path: Path, flags: int) -> Iterator[int]:
    """
    Open a draft, or a directory, for the length of a block.

    :raises OSError: where it cannot be opened.
    """
    descriptor = os.open(path, flags | getattr(os, "O_CLOEXEC", 0))
    try:
        yield descriptor
    finally:
        with contextlib.suppress(
            *([OSError] if flags & os.O_ACCMODE == os.O_RDONLY else [])
        ):  # nothing that was read depends on it
            os.close(descriptor)


def _copy_range(source: int, target: int, count: int, start: int, to: int) -> int:
    """Return how many bytes the system copied; none where it cannot between these files."""
    if not hasattr(os, "copy_file_range"):
        return 0
    try:
        return os.copy_file_range(source, target, count, start, to)
    except OSError as error:
        if error.errno in _NO_COPY_RANGE:
            return 0
        raise


def _change_owner(descriptor: int, wanted: os.stat_result) -> bool:
    """
    Return whether the file has the owner and the group that are wanted, after trying to give it
    both, or the group alone.
    """
    for user, group in ((wanted.st_uid, wanted.st_gid), (-1, wanted.st_gid)):
        has = os.fstat(descriptor)
        if (has.st_uid, has.st_gid) == (wanted.st_uid, wanted.st_gid):
            return True
        with _where_supported():
            os.fchown(descriptor, user, group)
    has = os.fstat(descriptor)
    return (has.st_uid, has.st_gid) == (wanted.st_uid, wanted.st_gid)


def _extended_attributes(path: Path) -> list[str]:
    with _where_supported():
        return os.listxattr(path)
    return []


@contextlib.contextmanager
def _where_supported() -> Iterator[None]:
    """
    Pass over what the file system or the user's rights do not allow; a disk that fails is told.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ATTRIBUTES:
            raise


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
