"""The original of a file that is being replaced, kept until the replacement is certain."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING, Final

from policytool.support.files.atomic import _names
from policytool.support.files.atomic._copying import copy_attributes, copy_bytes, opened, same_file
from policytool.support.files.opening import regular_file

if TYPE_CHECKING:
    from pathlib import Path

_NO_LINKS: Final = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


class Kept:
    """
    A second name of the original: the backup, or a hidden one until the replacement is on the disk.

    The original's own name never disappears, nor does that of a backup that is overwritten, where
    the file system has links.
    """

    def __init__(self, target: Path, backup: Path | None, *, overwrite: bool) -> None:
        self._target = target
        self._backup = backup
        self._overwrite = overwrite
        self._original: os.stat_result | None = None
        self._kept: Path | None = None
        self._older: Path | None = None

    @property
    def had_original(self) -> bool:
        """Whether something is replaced."""
        return self._original is not None

    def keep(self) -> None:
        """
        Give the original its second name; nothing where there is no original, or where its backup
        is it already, as an interrupted replacement leaves it.

        :raises FileExistsError: where the backup exists and may not be overwritten.
        """
        try:
            self._original = os.lstat(self._target)
        except FileNotFoundError:
            return
        if self._backup is None:
            self._link(_names.hidden(self._target))
        elif not os.path.lexists(self._backup):
            self._link(self._backup)
        elif same_file(self._backup, self._target):
            self._link(_names.hidden(self._target))
        elif self._overwrite:
            self._link_over(self._backup)
        else:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(self._backup))

    def restored(self, placed: os.stat_result | None) -> bool:
        """
        Return whether the original, and a backup that was there before, have their names again,
        after trying to give them back.

        ``placed`` is the new file, if it was about to get the target's name: what someone else put
        there meanwhile stays.
        """
        try:
            self._restore(placed)
        except OSError:
            return False
        return self._original is None or self._stands() or not self._has_target(placed)

    def stands(self) -> str | None:
        """
        Return what is under the target's name after a replacement that could not be taken back;
        None where nothing is.
        """
        if not os.path.lexists(self._target):
            return None
        name = self._target.name
        if self._stands():
            return f"{name} is what it was"
        kept = (
            f", and its original is {self._backup.name}"
            if self._original is not None
            and self._backup is not None
            and os.path.lexists(self._backup)
            else ""
        )
        return f"{name} is the new file{kept}"

    def release(self) -> None:
        """
        Let go of what is no longer needed: the hidden name, and the backup that was overwritten.
        """
        if self._kept is not None and self._kept != self._backup:
            _names.remove(self._kept)
        if self._older is not None:
            _names.remove(self._older)

    def _stands(self) -> bool:
        return self._has_target(self._original)

    def _has_target(self, file: os.stat_result | None) -> bool:
        return (
            file is not None
            and os.path.lexists(self._target)
            and os.path.samestat(os.lstat(self._target), file)
        )

    def _restore(self, placed: os.stat_result | None) -> None:
        older = self._older if self._older is not None and os.path.lexists(self._older) else None
        if self._kept is not None and os.path.lexists(self._kept):
            if self._has_target(placed) or not os.path.lexists(self._target):
                self._give_back(self._kept)
                # on file systems without links the backup is a copy, and takes the original's place
                self._original = os.lstat(self._target)
            elif self._stands() and older is None:
                self._kept.unlink()
        if older is not None and self._backup is not None:
            if self._stands():
                older.replace(self._backup)
            # rename() leaves both names where they are one file's; and someone else's replacement
            # has a backup of its own
            _names.remove(older)

    def _give_back(self, kept: Path) -> None:
        """
        Give the original its own name again; the backup's goes, unless there was an older one,
        which has it next.
        """
        if self._older is not None:
            spare = _names.hidden(self._target)
            with contextlib.suppress(OSError):
                os.link(kept, spare, follow_symlinks=False)
                kept = spare
        kept.replace(self._target)

    def _link(self, name: Path) -> None:
        self._kept = name
        try:
            os.link(self._target, name, follow_symlinks=False)
        except FileExistsError:
            self._kept = None
            raise
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            if name != self._backup:
                # without links there is no way back, and a copy of everything would be too dear for
                # it
                self._kept = None
                return
            self._copy(name)

    def _link_over(self, backup: Path) -> None:
        """
        Give the original the name of an older backup, which keeps a hidden one; in one step, where
        there are links.
        """
        self._older = _names.hidden(backup)
        new = _names.hidden(backup)
        try:
            try:
                os.link(backup, self._older, follow_symlinks=False)
                os.link(self._target, new, follow_symlinks=False)
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                self._copy_over(backup, new)
            if not self._stands():
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(self._target))
            self._kept = backup
            new.replace(backup)
        except BaseException:
            _names.remove(new)
            raise

    def _copy_over(self, backup: Path, new: Path) -> None:
        """
        Do so where a file system has no links, or the older backup is a directory: both names are
        gone for a moment, and the target is there.
        """
        if self._older is not None:
            _names.remove(self._older)
            self._copy(new)
            backup.rename(self._older)

    def _copy(self, name: Path) -> None:
        hidden = _names.hidden(name)
        try:
            with (
                regular_file(self._target) as source,
                opened(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as copy,
            ):
                copy_bytes(source, copy, os.fstat(source).st_size)
                copy_attributes(self._target, copy)
                os.fsync(copy)
            hidden.rename(name)
        except BaseException:
            _names.remove(hidden)
            raise
