"""
Hidden and unused names, and the functions that move a complete file or directory to its target.

Also functions that copy the bytes and attributes of files, flush them, and compare bytes.
"""

from __future__ import annotations

import contextlib
import errno
import operator
import os
import re
import stat
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.support.files.opening import find_status, regular_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_COMPARED: Final = 2**20


class Range(Struct, frozen=True, kw_only=True):
    """A range of bytes in an open file."""

    descriptor: int
    start: int
    size: int


def same_ranges(first: Range, second: Range) -> bool:
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
    with regular_file(path) as first, regular_file(other_path) as second:
        ranges = [
            Range(descriptor=descriptor, start=0, size=os.fstat(descriptor).st_size)
            for descriptor in (first, second)
        ]
        return same_ranges(ranges[0], ranges[1])


NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL
"""The flags to create a file that must not exist."""

_RANGE: Final = 64 * 2**20
"""The number of bytes copied per system call; Ctrl-C takes effect between two calls."""

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
    copied_size, copied = 0, int(hasattr(os, "copy_file_range"))
    with contextlib.suppress(OSError):  # the second loop continues, and reports disk errors
        while copied and copied_size < count:
            size = min(_RANGE, count - copied_size)
            copied = os.copy_file_range(source, target, size, start + copied_size, to + copied_size)
            copied_size += copied
    while copied_size < count:
        block = os.pread(source, min(_BLOCK, count - copied_size), start + copied_size)
        if not block:
            raise OSError(errno.EIO, "the file ended while it was read")
        write_all(target, block, to + copied_size)
        copied_size += len(block)


def copy_data(source: int, target: int) -> None:
    """
    Copy the bytes of an open file into an empty file, which gets the same holes.

    :raises OSError: if reading or writing fails, or the source ends early.
    """
    size = os.fstat(source).st_size
    os.ftruncate(target, size)
    for start, end in _stored_ranges(source, size):
        copy_bytes(source, target, end - start, start=start, to=start)


def _stored_ranges(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """
    Yield the ranges that contain stored bytes of a file: one for the whole file if the system does
    not report them.
    """
    end = 0
    while end < size:
        start = end
        try:
            start = os.lseek(descriptor, start, os.SEEK_DATA)
            end = os.lseek(descriptor, start, os.SEEK_HOLE)
        except (AttributeError, OSError) as error:
            if getattr(error, "errno", None) == errno.ENXIO:  # only a hole is left
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
        mode &= ~(stat.S_ISUID | stat.S_ISGID)  # they would grant the rights of the wrong owner
    os.fchmod(descriptor, mode)
    with where_supported():
        for name in os.listxattr(like) if hasattr(os, "listxattr") else ():
            with where_supported():
                os.setxattr(descriptor, name, os.getxattr(like, name))


def sync(descriptor: int) -> None:
    """
    Flush a file, or the names in a directory, to the disk, if its file system supports it.

    :raises OSError: if the disk fails.
    """
    with where_supported():
        os.fsync(descriptor)


def sync_directory(directory: Path) -> None:
    """
    Flush the names in a directory to the disk.

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
        with contextlib.suppress(OSError):  # fsync() reports write errors
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


ASIDE: str = ".bak"
"""The suffix of the original while, or after, it is replaced."""

SUFFIX: Final = ".policytool-draft"
_HIDDEN: Final = re.compile(
    rf"\..*\.([0-9a-f]{{8}})-([0-9]{{1,9}})-[0-9a-f]+{re.escape(SUFFIX)}", re.DOTALL
)
_AT_FDCWD: Final = -100
_RENAME_NOREPLACE: Final = 1
"""The constants of Linux (rename(2)); other systems have no such call."""

_NAME_BYTES: Final = 180
"""The maximum bytes of a file's name in its hidden name; file systems allow 255 bytes in total."""


class NotTakenBackError(OSError):
    """The operating system failed, and undoing the changes failed too; each file is complete."""

    def __init__(self, error: OSError, target: Path, backup: Path | None) -> None:
        other = f" or missing, and {backup.name} the original" if backup is not None else ""
        state_words = (
            f"and the change could not be undone: {target.name} may be the new file{other}"
        )
        super().__init__(error.errno, f"{error.strerror}, {state_words}")


def place_file(
    new: Path, target: Path, backup: Path | None, check: Callable[[], None], *, overwrite: bool
) -> None:
    """
    Move a file to its target, after a last check.

    :raises FileExistsError: if the target, or the backup, exists and may not be replaced.
    :raises OSError: if the operating system fails.
    """
    placed, original = os.lstat(new), _Original(target, backup)
    with _rollback_on_failure(lambda: original.restore(placed), target, backup):
        if overwrite or backup is not None:
            original.keep(overwrite=overwrite)
            check()
            new.replace(target)
        else:
            check()
            rename_to_free(new, target)
    original.release()


def place_directory(
    new: Path, target: Path, backup: Path | None, check: Callable[[], None], *, overwrite: bool
) -> None:
    """
    Move a directory to its target, after a last check.

    A directory cannot be renamed over another one. The original is therefore renamed to its backup
    (without a backup, to ``NAME.bak``, which is then removed), and the new directory to the target.
    At any time, a complete copy has one of these two names.

    :raises FileExistsError: if the target, or the backup, exists and may not be replaced.
    :raises OSError: if the operating system fails.
    """
    check()
    placed, backup_path = os.lstat(new), backup or target.with_name(target.name + ASIDE)
    # without a backup, an existing file belongs to the user: not hidden, so that no run removes it
    older = hidden_path(backup_path) if backup else Path(f"{backup_path}.{os.urandom(4).hex()}")
    original = find_status(target)

    def restore() -> None:
        if is_at(target, placed):
            target.rename(new)
        if is_at(backup_path, original):
            backup_path.rename(target)
        if _exists(older) and not _exists(backup_path):
            older.rename(backup_path)

    with _rollback_on_failure(restore, target, backup_path if original else None):
        if original is not None:
            _refuse(target, unless=overwrite or backup is not None)
            _refuse(backup_path, unless=overwrite or not _exists(backup_path))
            if _exists(backup_path):
                backup_path.rename(older)
            target.rename(backup_path)
        new.rename(target)
    if original is not None and backup is None:
        with contextlib.suppress(OSError):
            backup_path.rename(new)  # a partly removed directory must not have a documented name
            older.rename(backup_path)
    remove(older if backup else new)


class _Original:
    """
    The original of a replaced file, and its older backup, with additional hidden names until the
    new file is on the disk.

    Their visible names never disappear. On a file system without links, both are copied, but
    without a backup nothing is kept.
    """

    def __init__(self, target: Path, backup: Path | None) -> None:
        self._target, self._kept, self._older = target, hidden_path(target), hidden_path(target)
        self._backup = backup or self._kept
        self._original: os.stat_result | None = None
        self._made: os.stat_result | None = None
        """The created backup; None if an interrupted replacement already created it."""

    def keep(self, *, overwrite: bool) -> None:
        """Give the original its hidden name, and the name of its backup."""
        target, backup, kept = self._target, self._backup, self._kept
        self._original = find_status(target)
        if self._original is None:
            return
        if backup == kept:
            link(target, kept)
            return
        link_or_copy(target, kept)
        if _exists(backup) and same_file(backup, kept):
            return
        self._made = os.lstat(kept)
        if _exists(backup):
            _refuse(backup, unless=overwrite)
            link_or_copy(backup, self._older)
            kept.replace(backup)
        else:
            rename_to_free(kept, backup)

    def restore(self, placed: os.stat_result) -> None:
        """
        Undo all changes, but keep a target that another process created.
        """
        target, backup, kept = self._target, self._backup, self._kept
        if self._original is None:
            if is_at(target, placed):
                target.unlink()
        elif is_at(target, placed) or not _exists(target):
            has_second = _exists(kept) or link(backup, kept)
            (kept if has_second else backup).replace(target)
            self._original = os.lstat(target)
        is_changed = is_at(backup, self._made) or not _exists(backup)
        if is_at(target, self._original) and is_changed:
            if _exists(self._older):
                self._older.replace(backup)
            else:
                backup.unlink(missing_ok=True)
        self.release()

    def release(self) -> None:
        """Remove the hidden names."""
        try:
            remove(self._kept)
        finally:
            remove(self._older)


@contextlib.contextmanager
def _rollback_on_failure(
    restore: Callable[[], None], target: Path, backup: Path | None
) -> Iterator[None]:
    """Flush new names to the disk; restore the old state on failure or interruption."""
    try:
        yield
        sync_directory(target.parent)
    except BaseException as error:
        try:
            restore()
        except OSError:
            if isinstance(error, OSError):
                raise NotTakenBackError(error, target, backup) from error
        raise


def _refuse(name: Path, *, unless: bool) -> None:
    if not unless:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(name))


def hidden_path(target: Path) -> Path:
    """Return an unused hidden name next to ``target``."""
    start = os.fsdecode(os.fsencode(target.name)[:_NAME_BYTES])
    return target.with_name(f".{start}.{_host()}-{os.getpid()}-{os.urandom(4).hex()}{SUFFIX}")


def remove_stale(directory: Path) -> None:
    """Remove the drafts of killed processes of this host in ``directory``."""
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for name in [entry.name for entry in entries]:
            match = _HIDDEN.fullmatch(name)
            if match and match[1] == _host() and not _is_running(int(match[2])):
                remove(directory / name)


def remove(path: Path) -> None:
    """Remove a file or a directory, as far as that is possible."""
    with contextlib.suppress(OSError):
        # do not check its kind: removing the file may work even if the check fails
        path.unlink(missing_ok=True)
        return
    import shutil  # takes 5 ms with socket, which only commands that write need

    with contextlib.suppress(OSError):  # of fstat(), which rmtree() does not ignore
        shutil.rmtree(path, ignore_errors=True)


def is_at(name: Path, file: os.stat_result | None) -> bool:
    """Return whether a path is this file or directory."""
    status = find_status(name) if file is not None else None
    return file is not None and status is not None and os.path.samestat(status, file)


def _exists(name: Path) -> bool:
    return find_status(name) is not None


def link(path: Path, new_path: Path) -> bool:
    """
    Create a hard link, and return whether the file system supports it.

    :raises FileExistsError: if the new path exists.
    """
    with where_supported():
        os.link(path, new_path, follow_symlinks=False)
        return True
    return False


def link_or_copy(path: Path, new_path: Path) -> None:
    """
    Create a hard link, or a copy if the file system has no links; rename a directory.

    :raises OSError: if the operating system fails.
    """
    if path.is_dir():
        path.rename(new_path)
    elif not link(path, new_path):
        with open_descriptor(new_path, NEW) as copy:
            copy_file(path, new_path)
            copy_attributes(path, copy)
            os.fsync(copy)


def rename_to_free(source: Path, name: Path) -> None:
    """
    Give a file an unused name; on a file system with links, it also keeps its old name.

    :raises FileExistsError: if the name exists.
    """
    if link(source, name) or rename_exclusively(source, name):
        return
    name.touch(0o600, exist_ok=False)  # the only way to reserve a name without replacing a file
    empty = os.lstat(name)
    try:
        source.replace(name)
    except BaseException:
        if is_at(name, empty):
            remove(name)
        raise


def rename_exclusively(source: Path, name: Path) -> bool:
    """
    Rename a file to an unused name, and return whether the system supports this in one step.

    :raises FileExistsError: if the name exists.
    """
    import ctypes  # only if a file system has no links

    names = os.fsencode(source), os.fsencode(name)
    with where_supported(), contextlib.suppress(AttributeError, TypeError):  # not Linux
        rename = ctypes.CDLL(None, use_errno=True).renameat2
        if rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_NOREPLACE) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(name))
        return True
    return False


def _host() -> str:
    import socket

    return f"{zlib.crc32(socket.gethostname().encode()):08x}"


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return error.errno == errno.EPERM  # it runs, and belongs to another user
    return True
