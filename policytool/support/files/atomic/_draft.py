"""One file that appears whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from policytool.support.files.atomic import _names
from policytool.support.files.atomic._copying import copy_attributes, copy_bytes, opened, sync_names
from policytool.support.files.atomic._failing import NotTakenBackError
from policytool.support.files.atomic._kept import Kept

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

_MODE: Final = 0o600
"""Nobody else reads a draft; the published file gets the mode of the original."""

_NO_UNNAMED: Final = {errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL}
_NO_LINKS: Final = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
_DESCRIPTORS: Final = Path("/proc/self/fd")


class Draft:
    """
    A file in the making, beside the place it is made for; a context manager that leaves nothing
    behind.
    """

    def __init__(self, hidden: Path) -> None:
        self._hidden = hidden
        self._named = False
        self._copied: os.stat_result | None = None
        self._descriptor = self._open()

    @classmethod
    def beside(cls, target: Path) -> Self:
        """
        Return a new draft in the directory of ``target``, which may be the path of another draft.

        :raises OSError: where no file can be made there.
        """
        if (
            target.parent == _DESCRIPTORS
        ):  # what an unnamed file's link leads to still names its directory
            target = target.readlink().with_name("member")
        return cls(_names.hidden(target))

    @property
    def path(self) -> Path:
        """A path by which the draft can be opened while this process holds it."""
        return self._hidden if self._named else _DESCRIPTORS / str(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._named:
                # as far as that is possible: it may have its place already, and the next run
                # removes what stays
                _names.remove(self._hidden)
        finally:
            if self._descriptor >= 0:
                descriptor, self._descriptor = self._descriptor, -1
                with contextlib.suppress(OSError):  # what was published is on the disk
                    os.close(descriptor)

    def flush(self) -> None:
        """
        Bring the draft to the disk.

        :raises OSError: where the disk fails.
        """
        os.fsync(self._descriptor)

    def finish(self, like: Path | None) -> None:
        """
        Give the draft the mode, owner and extended attributes of ``like``, and bring it to the
        disk.

        :raises OSError: where the disk fails.
        """
        copy_attributes(like, self._descriptor)
        self.flush()

    def publish(
        self,
        target: Path,
        *,
        like: Path | None = None,
        overwrite: bool = False,
        backup: Path | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """
        Give the draft its place, with the mode, owner and extended attributes of ``like``.

        With ``backup`` the target is replaced and its original stays under that name; with
        ``overwrite`` the target, or an older backup, is replaced. ``check`` is called last before
        that; what it raises ends it, and nothing was changed.

        :raises FileExistsError: where the target exists and neither is given, or the backup exists
            and ``overwrite`` is not given.
        :raises NotTakenBackError: where the system fails, and so does taking back what was done.
        :raises OSError: where the system fails; the target then is what it was, and nothing new
            stays behind.
        """
        self.finish(like)
        with opened(target.parent, os.O_RDONLY) as directory:
            if overwrite or backup is not None:
                self._replace(target, directory, Kept(target, backup, overwrite=overwrite), check)
            else:
                check()
                self._place(target, directory)

    def retract(self, name: Path) -> None:
        """
        Take back a name that the draft was published under; one that is another file's by now
        stays.

        :raises OSError: where the system fails.
        """
        with contextlib.suppress(FileNotFoundError):
            found = os.lstat(name)
            if os.path.samestat(found, self._copied or os.fstat(self._descriptor)):
                name.unlink()

    def show(self, name: Path) -> None:
        """
        Give the draft a further name for other processes to read it by, until it is published.

        :raises OSError: where none can be made.
        """
        if self._named:
            name.symlink_to(self._hidden)
        else:
            self.link(name)

    @contextlib.contextmanager
    def named(self) -> Iterator[Path]:
        """
        Yield a path of the draft that leads to a name, for libraries that resolve links before they
        open a file; publish it before the end.

        :raises OSError: where none can be made.
        """
        if self._named:
            yield self._hidden
            return
        name = _names.hidden(self._hidden)
        try:
            self.link(name)
            yield name
        finally:
            _names.remove(name)

    def link(self, name: Path) -> None:
        """
        Give the draft a name that nothing has.

        :raises FileExistsError: where something has it.
        """
        try:
            # With a directory's descriptor Python calls linkat(), which alone follows the link in
            # /proc to the file itself.
            how = (
                {"follow_symlinks": False}
                if self._named
                else {"src_dir_fd": self._descriptor, "follow_symlinks": True}
            )
            os.link(self.path, name, **how)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            self._take(name)

    def _open(self) -> int:
        if sys.platform == "linux" and _DESCRIPTORS.is_dir():
            try:
                return os.open(self._hidden.parent, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, _MODE)
            except OSError as error:
                if error.errno not in _NO_UNNAMED:
                    raise
        self._named = True
        try:
            return os.open(
                self._hidden,
                os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0),
                _MODE,
            )
        except BaseException:
            self._hidden.unlink(missing_ok=True)
            raise

    def _place(self, target: Path, directory: int) -> None:
        """
        Give the draft a name that nothing has, and take it back where the directory cannot be
        brought to the disk.
        """
        linked = False
        try:
            self.link(target)
            linked = True
            sync_names(directory)
        except BaseException as error:
            try:
                self.retract(target)
            except OSError:
                if linked and isinstance(error, OSError):
                    raise NotTakenBackError(error, f"{target.name} is the new file") from error
            raise

    def _replace(self, target: Path, directory: int, kept: Kept, check: Callable[[], None]) -> None:
        """
        Give the draft the name of what is there, in one step, which is taken back where the
        directory cannot be brought to the disk.
        """
        new = self._hidden
        placed = None
        try:
            kept.keep()
            if not self._named:
                self.link(new)
            placed = os.lstat(new)
            check()
            new.replace(target)
            sync_names(directory)
        except BaseException as error:
            _names.remove(new)
            left = self._left(target, kept, placed)
            if left is not None and isinstance(error, OSError):
                raise NotTakenBackError(error, left) from error
            raise
        kept.release()

    def _left(self, target: Path, kept: Kept, placed: os.stat_result | None) -> str | None:
        """Put back what a failed replacement changed; return what stands now where that fails."""
        if not kept.restored(placed):
            return kept.stands()
        if not kept.had_original:
            try:
                self.retract(target)
            except OSError:
                return kept.stands()
        return None

    def _take(self, name: Path) -> None:
        """
        Give the draft a name on a file system without links: it becomes that of a whole file, in
        one step where the system can.
        """
        whole = self._hidden
        try:
            if not self._named:
                self._copy_to(whole)
            if whole != name and not _names.rename_to_free(whole, name):
                _replace_empty(whole, name)
        except BaseException:
            _names.remove(whole)
            raise

    def _copy_to(self, hidden: Path) -> None:
        with opened(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as descriptor:
            copy_bytes(self._descriptor, descriptor, os.fstat(self._descriptor).st_size)
            copy_attributes(self.path, descriptor)
            os.fsync(descriptor)
            self._copied = os.fstat(descriptor)


def _replace_empty(whole: Path, name: Path) -> None:
    """
    Take a name for an empty file first, which is the only way not to replace someone else's where a
    name cannot be asked to be free.
    """
    descriptor = -1
    try:
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
        whole.replace(name)
    except BaseException:
        with contextlib.suppress(OSError):
            if descriptor >= 0 and os.path.samestat(os.lstat(name), os.fstat(descriptor)):
                name.unlink()
        raise
    finally:
        if descriptor >= 0:
            os.close(descriptor)
