"""A directory that appears whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Self

from policytool.support.files.atomic import _names
from policytool.support.files.atomic._copying import copy_attributes, opened, sync_directory
from policytool.support.files.atomic._draft import Draft
from policytool.support.files.atomic._failing import NotTakenBackError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

ASIDE: str = ".bak"
"""What a directory's name gets while, or after, another takes its place."""


class DirectoryDraft:
    """
    A directory in the making: its members are drafts, which get their names when it is published.

    A directory cannot be renamed over another. So the original is renamed to its backup
    (``NAME.bak`` where none is wanted, then removed), and the new one to its name: at every instant
    one complete copy stands under one of these two names.
    """

    def __init__(self, target: Path) -> None:
        self._target = target
        self._stack = contextlib.ExitStack()
        self._members: dict[Path, Draft] = {}
        self._links: dict[Path, str] = {}
        self._folders: list[Path] = []

    @classmethod
    def beside(cls, target: Path) -> Self:
        """Return a new draft in the directory of ``target``."""
        return cls(target)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def members(self) -> Mapping[Path, Draft]:
        """The members so far, by their path in the directory."""
        return self._members

    def member(self, name: Path) -> Draft:
        """
        Return a new member, as a draft; ``name`` is relative to the directory.

        :raises OSError: where no file can be made.
        """
        draft = self._stack.enter_context(Draft.beside(self._target.with_name(name.name)))
        self._members[name] = draft
        return draft

    def folder(self, name: Path) -> None:
        """Add a directory, which may stay empty."""
        self._folders.append(name)

    def link(self, name: Path, to: str) -> None:
        """Add a symbolic link to the directory."""
        self._links[name] = to

    def publish(
        self,
        target: Path,
        *,
        like: Path,
        overwrite: bool = False,
        backup: Path | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """
        Give the directory its place, its files and directories with the attributes that those of
        ``like`` have.

        With ``backup`` the target is replaced and its original stays under that name; with
        ``overwrite`` the target, or an older backup, is replaced. ``check`` is called last before
        that; what it raises ends it, and nothing was changed.

        :raises FileExistsError: where the target exists and neither is given, or the backup exists
            and ``overwrite`` is not given.
        :raises OSError: where the system fails; the target then is what it was, and nothing new
            stays behind.
        """
        hidden = _names.hidden(target)
        try:
            self._build(hidden, like)
            check()
            place(hidden, target, overwrite=overwrite, backup=backup)
        finally:
            _names.remove(hidden)

    def _build(self, hidden: Path, like: Path) -> None:
        parents = {
            parent
            for name in (*self._members, *self._links, *self._folders)
            for parent in name.parents
        }
        directories = sorted({*parents, *self._folders, Path()})
        for directory in directories:
            (hidden / directory).mkdir(mode=0o700)
        for name, draft in self._members.items():
            draft.finish(like / name)
            draft.link(hidden / name)
        for name, to in self._links.items():
            (hidden / name).symlink_to(to)
        for directory in reversed(directories):
            with opened(hidden / directory, os.O_RDONLY) as descriptor:
                copy_attributes(like / directory, descriptor)
            sync_directory(hidden / directory)


class MadeDirectory:
    """
    A directory that another process fills, beside the place it is made for; a context manager that
    leaves nothing behind.

    It has a hidden name from the beginning, because the other process needs one; what is left of
    one whose process was killed is removed by the next run.
    """

    def __init__(self, target: Path) -> None:
        self.path = _names.hidden(target)
        """Where to write."""

    @classmethod
    def beside(cls, target: Path) -> Self:
        """Return a new, empty directory in that of ``target``."""
        made = cls(target)
        try:
            made.path.mkdir(mode=0o700)
        except BaseException:  # an interrupt is heard once it is made
            _names.remove(made.path)
            raise
        return made

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _names.remove(self.path)

    def publish(
        self,
        target: Path,
        *,
        like: Path,
        overwrite: bool = False,
        backup: Path | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """
        Bring everything in the directory to the disk and give it its place, with the attributes
        that what has the same name in ``like`` has.

        With ``backup`` the target is replaced and its original stays under that name; with
        ``overwrite`` the target, or an older backup, is replaced. ``check`` is called last before
        that; what it raises ends it, and nothing was changed.

        :raises FileExistsError: where the target exists and neither is given, or the backup exists
            and ``overwrite`` is not given.
        :raises OSError: where the system fails; the target then is what it was.
        """
        for parent, _, names in os.walk(self.path, topdown=False):
            for name in (*names, ""):
                made = Path(parent, name)
                twin = like / made.relative_to(self.path)
                with opened(made, os.O_RDONLY) as descriptor:
                    copy_attributes(
                        twin if twin.exists() else like if made.is_dir() else _any_file(like),
                        descriptor,
                    )
                    os.fsync(descriptor)
        check()
        place(self.path, target, overwrite=overwrite, backup=backup)


def _any_file(directory: Path) -> Path | None:
    """
    Return a file of a directory, whose attributes stand for those of files that it has no twin of;
    None where it has none.
    """
    return next((found for found in sorted(directory.iterdir()) if found.is_file()), None)


def place(hidden: Path, target: Path, *, overwrite: bool, backup: Path | None) -> None:
    """
    Give a directory that is complete its place.

    :raises FileExistsError: where the target exists and neither ``overwrite`` nor ``backup`` is
        given, or the backup exists and ``overwrite`` is not given.
    :raises OSError: where the system fails; the target then is what it was.
    """
    if not os.path.lexists(target):
        _move(hidden, target)
    elif overwrite or backup is not None:
        _exchange(hidden, target, backup, overwrite=overwrite)
    else:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))


def _move(hidden: Path, target: Path) -> None:
    hidden.rename(target)
    try:
        sync_directory(target.parent)
    except BaseException as error:
        try:
            target.rename(hidden)
        except OSError:
            if isinstance(error, OSError):
                raise NotTakenBackError(error, f"{target.name} is the new directory") from error
        raise


def _exchange(hidden: Path, target: Path, backup: Path | None, *, overwrite: bool) -> None:
    aside = backup or target.with_name(target.name + ASIDE)
    # without a backup, what has its name is not ours: a name that the next run does not remove, if
    # this one is killed
    older = (
        _names.hidden(aside)
        if backup is not None
        else aside.with_name(f"{aside.name}.{os.urandom(4).hex()}")
    )
    original = os.lstat(target)
    try:
        if os.path.lexists(aside):
            if not overwrite:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(aside))
            aside.rename(older)
        target.rename(aside)
        _move(hidden, target)
    except BaseException as error:
        left = _put_back(target, aside, older, original)
        if left is not None and isinstance(error, OSError):
            raise NotTakenBackError(error, left) from error
        raise
    if backup is None:
        replaced = _names.hidden(aside)
        with contextlib.suppress(OSError):
            aside.rename(replaced)  # so that no half removed directory ever has a documented name
            if os.path.lexists(older):
                older.rename(
                    aside
                )  # whoever made it: no backup was asked for that it would make room for
        _names.remove(replaced)
    else:
        _names.remove(older)


def _put_back(target: Path, aside: Path, older: Path, original: os.stat_result) -> str | None:
    """
    Give the original, and an older backup, their names again; return what stands now where that
    fails.
    """
    with contextlib.suppress(OSError):
        if os.path.lexists(aside) and not os.path.lexists(target):
            aside.rename(target)
        if os.path.lexists(older) and not os.path.lexists(aside):
            older.rename(aside)
    if not os.path.lexists(target):
        return f"the original of {target.name} is {aside.name}, whole; rename it back"
    if not os.path.samestat(os.lstat(target), original):
        return f"{target.name} is the new directory, and its original is {aside.name}"
    return (
        f"{target.name} is what it was, and its older backup is {older.name}"
        if os.path.lexists(older)
        else None
    )
