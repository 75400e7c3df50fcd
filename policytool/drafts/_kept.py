"""The original of a file that is being replaced, kept until the replacement is certain."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Final

from policytool.drafts import _names
from policytool.drafts._copying import copy_attributes, copy_bytes, opened

if TYPE_CHECKING:
    from pathlib import Path

_NO_LINKS: Final = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


class Kept:
    """
    A second name of the original: the backup, or a hidden one until the replacement is on the disk.

    The original's own name never disappears.
    """

    def __init__(self, target: Path, backup: Path | None, *, overwrite: bool) -> None:
        self._target = target
        self._backup = backup
        self._overwrite = overwrite
        self._original: os.stat_result | None = None
        self._kept: Path | None = None
        self._older: Path | None = None

    def keep(self) -> None:
        """
        Give the original its second name; nothing where there is no original.

        :raises FileExistsError: where the backup exists and may not be overwritten.
        """
        try:
            self._original = os.lstat(self._target)
        except FileNotFoundError:
            return
        if self._backup is None:
            self._link(_names.hidden(self._target))
            return
        if os.path.lexists(self._backup):
            if not self._overwrite:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(self._backup))
            self._older = _names.hidden(self._backup)
            self._backup.rename(self._older)
        self._link(self._backup)

    def restore(self) -> bool:
        """Return whether there was an original, after taking everything back."""
        if self._original is None:
            return False
        if self._kept is not None and os.path.lexists(self._kept):
            if os.path.lexists(self._target) and os.path.samestat(os.lstat(self._target), self._original):
                self._kept.unlink()
            else:
                self._kept.replace(self._target)
        if self._older is not None and self._backup is not None and os.path.lexists(self._older):
            self._older.replace(self._backup)
        return True

    def release(self) -> None:
        """Let go of what is no longer needed: the hidden name, and the backup that was overwritten."""
        if self._backup is None and self._kept is not None:
            _names.remove(self._kept)
        if self._older is not None:
            _names.remove(self._older)

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
            if self._backup is None:  # without links there is no way back, and a copy of everything would be too dear for it
                self._kept = None
                return
            self._copy(name)

    def _copy(self, name: Path) -> None:
        hidden = _names.hidden(name)
        try:
            with opened(self._target, os.O_RDONLY) as source, opened(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as copy:
                copy_bytes(source, copy, os.fstat(source).st_size)
                copy_attributes(self._target, copy)
                os.fsync(copy)
            hidden.rename(name)
        except BaseException:
            hidden.unlink(missing_ok=True)
            raise
