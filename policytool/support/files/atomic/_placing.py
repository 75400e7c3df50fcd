"""Hidden names and free ones, and how a complete file or directory gets its place."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from policytool.support.files.atomic import _copying
from policytool.support.files.opening import find_status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ASIDE: str = ".bak"
"""What a directory's name gets while, or after, another takes its place."""

SUFFIX: Final = ".policytool-draft"
_HIDDEN: Final = re.compile(
    rf"\..*\.([0-9a-f]{{8}})-([0-9]{{1,9}})-[0-9a-f]+{re.escape(SUFFIX)}", re.DOTALL
)
_AT_FDCWD: Final = -100
_RENAME_NOREPLACE: Final = 1
"""Both as Linux has them (rename(2)); other systems have no such call."""

_NAME_BYTES: Final = 180
"""Of a file's own name in a hidden one: file systems allow 255 bytes in all."""


class NotTakenBackError(OSError):
    """The system failed, and failed again to take back what was done; each file is whole."""

    def __init__(self, error: OSError, target: Path, backup: Path | None) -> None:
        other = f" or missing, and {backup.name} the original" if backup is not None else ""
        done = f"and the change could not be undone: {target.name} may be the new file{other}"
        super().__init__(error.errno, f"{error.strerror}, {done}")


def place_file(
    new: Path, target: Path, backup: Path | None, check: Callable[[], None], *, overwrite: bool
) -> None:
    """
    Give a file its place, after a last check.

    :raises FileExistsError: if the target, or the backup, exists and may not be replaced.
    :raises OSError: if the system fails.
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
    Give a directory its place, after a last check.

    It cannot be renamed over another. So the original is renamed to its backup (``NAME.bak`` if
    none is wanted, then removed), and the new one to its name: at every instant one complete copy
    has one of these two names.

    :raises FileExistsError: if the target, or the backup, exists and may not be replaced.
    :raises OSError: if the system fails.
    """
    check()
    placed, aside = os.lstat(new), backup or target.with_name(target.name + ASIDE)
    # without a backup, what has its name is someone's: not hidden, so that no run removes it
    older = hidden_path(aside) if backup else Path(f"{aside}.{os.urandom(4).hex()}")
    original = find_status(target)

    def restore() -> None:
        if is_at(target, placed):
            target.rename(new)
        if is_at(aside, original):
            aside.rename(target)
        if _exists(older) and not _exists(aside):
            older.rename(aside)

    with _rollback_on_failure(restore, target, aside if original else None):
        if original is not None:
            _refuse(target, unless=overwrite or backup is not None)
            _refuse(aside, unless=overwrite or not _exists(aside))
            if _exists(aside):
                aside.rename(older)
            target.rename(aside)
        new.rename(target)
    if original is not None and backup is None:
        with contextlib.suppress(OSError):
            aside.rename(new)  # no directory that is half removed has a documented name
            older.rename(aside)
    remove(older if backup else new)


class _Original:
    """
    The original of a file that is replaced, and its older backup, under second, hidden names until
    the new file is on the disk.

    Their own names never disappear. On a file system without links they are copied, but without a
    backup nothing is kept.
    """

    def __init__(self, target: Path, backup: Path | None) -> None:
        self._target, self._kept, self._older = target, hidden_path(target), hidden_path(target)
        self._backup = backup or self._kept
        self._original: os.stat_result | None = None
        self._made: os.stat_result | None = None
        """The backup, unless it was there before, as an interrupted replacement leaves it."""

    def keep(self, *, overwrite: bool) -> None:
        """Give the original its second name, and its backup's."""
        target, backup, kept = self._target, self._backup, self._kept
        self._original = find_status(target)
        if self._original is None:
            return
        if backup == kept:
            link(target, kept)
            return
        link_or_copy(target, kept)
        if _exists(backup) and _copying.same_file(backup, kept):
            return
        self._made = os.lstat(kept)
        if _exists(backup):
            _refuse(backup, unless=overwrite)
            link_or_copy(backup, self._older)
            kept.replace(backup)
        else:
            rename_to_free(kept, backup)

    def restore(self, placed: os.stat_result) -> None:
        """Undo everything; what someone else has put in the target's place meanwhile stays."""
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
    """Bring new names to the disk; if that, or giving them, fails or is interrupted, restore."""
    try:
        yield
        _copying.sync_directory(target.parent)
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
    """Return a hidden name beside ``target``, which nothing else has."""
    start = os.fsdecode(os.fsencode(target.name)[:_NAME_BYTES])
    return target.with_name(f".{start}.{_host()}-{os.getpid()}-{os.urandom(4).hex()}{SUFFIX}")


def remove_stale(directory: Path) -> None:
    """Remove the drafts in ``directory`` that processes of this host left when they were killed."""
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for name in [entry.name for entry in entries]:
            match = _HIDDEN.fullmatch(name)
            if match and match[1] == _host() and not _is_running(int(match[2])):
                remove(directory / name)


def remove(path: Path) -> None:
    """Remove a file or a directory, as far as that is possible."""
    with contextlib.suppress(OSError):
        # without asking for its kind: a system that cannot say it may remove the file anyway
        path.unlink(missing_ok=True)
        return
    import shutil  # takes 5 ms with socket, which only commands that write need

    with contextlib.suppress(OSError):  # of fstat(), which rmtree() does not ignore
        shutil.rmtree(path, ignore_errors=True)


def is_at(name: Path, file: os.stat_result | None) -> bool:
    """Return whether a name leads to this file or directory."""
    status = find_status(name) if file is not None else None
    return file is not None and status is not None and os.path.samestat(status, file)


def _exists(name: Path) -> bool:
    return find_status(name) is not None


def link(path: Path, new_path: Path) -> bool:
    """
    Create a hard link, and return whether the file system supports it.

    :raises FileExistsError: if the new path exists.
    """
    with _copying.where_supported():
        os.link(path, new_path, follow_symlinks=False)
        return True
    return False


def link_or_copy(path: Path, new_path: Path) -> None:
    """
    Create a hard link, or a copy if the file system has no links; rename a directory.

    :raises OSError: if the system fails.
    """
    if path.is_dir():
        path.rename(new_path)
    elif not link(path, new_path):
        with _copying.open_descriptor(new_path, _copying.NEW) as copy:
            _copying.copy_file(path, new_path)
            _copying.copy_attributes(path, copy)
            os.fsync(copy)


def rename_to_free(source: Path, name: Path) -> None:
    """
    Give a file a name that nothing has; if the file system has links, it keeps its old one too.

    :raises FileExistsError: if something has the name.
    """
    if link(source, name) or rename_exclusively(source, name):
        return
    name.touch(0o600, exist_ok=False)  # nothing else takes a name and replaces nobody's file
    empty = os.lstat(name)
    try:
        source.replace(name)
    except BaseException:
        if is_at(name, empty):
            remove(name)
        raise


def rename_exclusively(source: Path, name: Path) -> bool:
    """
    Rename a file to a name that nothing has, and return whether the system can do that in one step.

    :raises FileExistsError: if something has the name.
    """
    import ctypes  # only if a file system has no links

    names = os.fsencode(source), os.fsencode(name)
    with _copying.where_supported(), contextlib.suppress(AttributeError, TypeError):  # not Linux
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
        return error.errno == errno.EPERM  # it runs, and is another user's
    return True
