"""
Files and directories that are written completely or not at all.

A draft is an unnamed file if the system supports it (``O_TMPFILE`` on Linux), so that a killed
process leaves no file behind. On other systems, and for libraries that need a name, the draft has a
hidden name. One link or rename moves it to the target; until then, and on failure, the target is
unchanged.

A hidden name contains the host and the process that created it, so that the next run can remove the
drafts of killed processes: :func:`remove_stale`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, Self

from policytool.support.files.atomic import _placing
from policytool.support.files.atomic._placing import (
    ASIDE,
    NEW,
    SUFFIX,
    NotTakenBackError,
    Range,
    copy_bytes,
    copy_data,
    copy_file,
    open_descriptor,
    remove_stale,
    same_bytes,
    same_file,
    same_ranges,
    write_all,
)
from policytool.support.processes import interrupts

if TYPE_CHECKING:
    from collections.abc import Callable

_DESCRIPTORS: Final = Path("/proc/self/fd")


class Publishable(contextlib.ExitStack):
    """
    A file or directory that is not complete yet; a context manager that removes it unless it is
    published.
    """

    def __init__(self, hidden: Path) -> None:
        super().__init__()
        self._hidden = self.path = hidden
        """``path`` opens the draft while this process has it open."""
        self.callback(interrupts.remove, interrupts.add_path(hidden))
        self.callback(_placing.remove, hidden)

    @classmethod
    def beside(cls, target: Path) -> Self:
        """
        Return a new draft in the directory of ``target``, which may be the path of another draft.

        :raises OSError: if no file can be created there.
        """
        if target.parent == _DESCRIPTORS:  # the link of an unnamed file shows its directory
            target = target.readlink().with_name("member")
        return cls(_placing.hidden_path(target))

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
        Flush the draft to the disk and move it to the target, with the mode, owner and extended
        attributes of ``like``, or of the file with the same name in that directory.

        With ``backup``, the target is replaced and its original gets that name; with ``overwrite``,
        the target, or an older backup, is replaced. ``check`` is called directly before; if it
        raises an exception, nothing is changed.

        :raises FileExistsError: if the target exists and neither is specified, or the backup exists
            and ``overwrite`` is not specified.
        :raises NotTakenBackError: if the operating system fails, and undoing the changes also
            fails.
        :raises OSError: if the operating system fails; the target is unchanged, and no new file is
            left.
        """
        new = self.finish(like)
        place = _placing.place_directory if new.is_dir() else _placing.place_file
        place(new, target, backup, check, overwrite=overwrite)

    @abstractmethod
    def flush(self) -> None:
        """Flush the content of the draft to the disk."""

    @abstractmethod
    def show(self, name: Path) -> None:
        """Give the draft a further name for other processes to read it by."""

    @abstractmethod
    def finish(self, like: Path | None) -> Path:
        """Complete the draft, flush it to the disk with its attributes, and return its name."""


class Draft(Publishable):
    """A file that is not complete yet."""

    def __init__(self, hidden: Path) -> None:
        super().__init__(hidden)
        self._descriptor = self._open()

    def flush(self) -> None:
        """
        Flush the draft to the disk.

        :raises OSError: if the disk fails.
        """
        os.fsync(self._descriptor)

    def finish(self, like: Path | None) -> Path:
        """
        Set the draft's attributes, flush it to the disk, and return its hidden name.

        :raises OSError: if the disk fails.
        """
        name = self.ensure_name()
        _placing.copy_attributes(like, self._descriptor)
        self.flush()
        return name

    def retract(self, name: Path) -> None:
        """
        Remove a name of the published draft, unless another file has the name now.

        :raises OSError: if the operating system fails.
        """
        if _placing.is_at(name, os.fstat(self._descriptor)):
            name.unlink()

    def show(self, name: Path) -> None:
        """
        Give the draft an additional name, by which other processes can read it.

        :raises OSError: if the name cannot be created.
        """
        hidden = self.ensure_name()
        if not _placing.link(hidden, name):
            name.symlink_to(hidden)

    def ensure_name(self) -> Path:
        """
        Return the draft's hidden name, for libraries that resolve links before they open a file.

        :raises OSError: if the draft has no name and none can be created.
        """
        unnamed, self.path = self.path, self._hidden
        if unnamed == self.path:
            return self.path
        with _placing.where_supported():
            # with a directory's descriptor, Python calls linkat(), which can follow this link
            os.link(unnamed, self._hidden, src_dir_fd=self._descriptor, follow_symlinks=True)
            return self.path
        with _placing.open_descriptor(self._hidden, _placing.NEW) as copy:
            _placing.copy_bytes(self._descriptor, copy, os.fstat(self._descriptor).st_size)
            os.dup2(copy, self._descriptor, inheritable=False)
        return self.path

    def _open(self) -> int:
        """Create the file, without a name if the system supports it, and return its descriptor."""
        if sys.platform == "linux" and _DESCRIPTORS.is_dir():
            with contextlib.suppress(OSError):  # if the disk fails, creating a named file fails too
                unnamed = _placing.open_descriptor(self._hidden.parent, os.O_TMPFILE | os.O_RDWR)
                descriptor = self.enter_context(unnamed)
                self.path = _DESCRIPTORS / str(descriptor)
                return descriptor
        try:
            return self.enter_context(_placing.open_descriptor(self._hidden, _placing.NEW))
        except BaseException:
            self.close()
            raise


class DirectoryDraft(Publishable):
    """
    An incomplete directory, whose members are drafts that get their names when it is published.

    Another process can fill the directory after :meth:`create`, which gives it a hidden name. The
    next run removes it if this process is killed.
    """

    def __init__(self, hidden: Path) -> None:
        super().__init__(hidden)
        self.members: dict[Path, Draft] = {}
        """The members by path in the directory; ``links`` maps such paths to targets."""
        self.links: dict[Path, str] = {}
        self.folders: list[Path] = []

    def create(self) -> Path:
        """Create the directory, and return its path."""
        self.path.mkdir(0o700, exist_ok=True)
        return self.path

    def member(self, name: Path) -> Draft:
        """
        Return a new member, as a draft; ``name`` is relative to the directory.

        :raises OSError: if no file can be created.
        """
        draft = self.enter_context(Draft.beside(self.path.with_name(name.name)))
        self.members[name] = draft
        return draft

    def flush(self) -> None:
        """
        Flush the members to the disk. Files of other processes are flushed when the directory is
        published.

        :raises OSError: if the disk fails.
        """
        for draft in self.members.values():
            draft.flush()

    def show(self, name: Path) -> None:
        """
        Give the directory an additional name, or create a directory of that name with its members.

        :raises OSError: if the name cannot be created.
        """
        if not self.members:
            name.symlink_to(self.path, target_is_directory=True)
        for member, draft in self.members.items():
            (name / member).parent.mkdir(parents=True, exist_ok=True)
            draft.show(name / member)

    def finish(self, like: Path | None) -> Path:
        """
        Give each member its name and its attributes, and flush them to the disk.

        :raises OSError: if the operating system fails.
        """
        path = self.create()
        for name in (*self.folders, *(name.parent for name in (*self.members, *self.links))):
            (path / name).mkdir(parents=True, exist_ok=True)
        for name, draft in self.members.items():
            draft.ensure_name().rename(path / name)
        for name, link_target in self.links.items():
            (path / name).symlink_to(link_target)
        for parent, _, names in os.walk(path, topdown=False, onerror=_raise):
            for new_path in (*(Path(parent, name) for name in names), Path(parent)):
                if not new_path.is_symlink():
                    with _placing.open_descriptor(new_path, os.O_RDONLY) as descriptor:
                        _placing.copy_attributes(
                            _attribute_source(new_path, path, like or path), descriptor
                        )
                        _placing.sync(descriptor)
        return path


def _raise(error: OSError) -> NoReturn:
    raise error


def _attribute_source(new_path: Path, directory: Path, like: Path) -> Path | None:
    """
    Return the path whose attributes a new path gets: the same path in ``like``, or one of the same
    kind; a new directory gets those of the directory of ``like`` if that is a file.
    """
    if like.is_file():
        return like.parent if new_path.is_dir() else like
    twin = like / new_path.relative_to(directory)
    if twin.exists() or new_path.is_dir():
        return twin if twin.exists() else like
    return next((file for file in sorted(like.iterdir()) if file.is_file()), None)


__all__ = [
    "ASIDE",
    "NEW",
    "SUFFIX",
    "DirectoryDraft",
    "Draft",
    "NotTakenBackError",
    "Publishable",
    "Range",
    "copy_bytes",
    "copy_data",
    "copy_file",
    "open_descriptor",
    "remove_stale",
    "same_bytes",
    "same_file",
    "same_ranges",
    "write_all",
]
