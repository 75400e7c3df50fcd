"""
A file or directory that takes its place whole: what is checked before, what is kept, what others
may look at, and how each failure is told.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

from policytool.formats.edits import Written
from policytool.formats.rewriting.base import WriteError
from policytool.support.errors import ModelFileError
from policytool.support.files import atomic, opening

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from policytool.formats.rewriting.base import Counted

Verify: TypeAlias = "Callable[[Path], None]"
"""Looks at a result before it has its place; raises where it is not right."""

BACKUP: Final = ".bak"
_NO_SPACE: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NOT_WRITABLE: Final = {errno.EACCES, errno.EPERM, errno.EROFS}


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputPlace:
    """Where something new is written, links followed, and what may be replaced there."""

    source: Path
    target: Path
    overwrite: bool
    replace: bool
    """Whether the target is the source."""

    followed: bool
    """Whether the target was named by a link."""

    directory: bool
    """Whether it is a directory that is written, which alone replaces one."""

    @classmethod
    def of(
        cls, source: Path, target: Path, *, overwrite: bool, in_place: bool, directory: bool
    ) -> OutputPlace:
        """Return the place of ``target``, or of ``source`` where that is replaced."""
        asked = source if in_place else target
        followed = asked.is_symlink()
        return cls(
            source=source.resolve(),
            target=asked.resolve() if followed else asked.parent.resolve() / asked.name,
            overwrite=overwrite,
            replace=in_place,
            followed=followed,
            directory=directory,
        )


class Replacing:
    """
    One replacement in the making: what is kept, what the source was before, and how long each part
    took.
    """

    def __init__(self, place: OutputPlace, *, backup: bool) -> None:
        """
        Begin.

        :raises WriteError: where something stands at the target, or at the backup, that may not be
            replaced.
        """
        self._place = place
        self._kept = _free_backup(place) if backup else None
        _check_target(place)
        atomic.remove_stale(place.target.parent)
        self._before = _state(place.source)
        self._start = self._written = self._compared = time.perf_counter()

    def note_written(self) -> None:
        """Note that the draft is on the disk."""
        self._written = self._compared = time.perf_counter()

    def note_compared(self) -> None:
        """Note that the draft is what it should be."""
        self._compared = time.perf_counter()

    def check_source(self) -> None:
        """
        Make sure that the source is what it was at the beginning.

        :raises WriteError: where someone changed it.
        """
        if _state(self._place.source) != self._before:
            raise WriteError(
                "source-changed",
                (
                    "was changed by another process while policytool was reading it, so nothing "
                    "was written; run the command again"
                ),
            )

    def publish(self, draft: atomic.Publishable, *, like: Path | None = None) -> None:
        """
        Give the draft its place, with the attributes of the source, or of ``like``, where the
        source still is what it was.

        :raises WriteError: where it is not.
        :raises OSError: where the system fails.
        """
        place = self._place
        overwrite = place.overwrite or (place.replace and self._kept is None)
        draft.publish(
            place.target,
            like=like or place.source,
            overwrite=overwrite,
            backup=self._kept,
            check=self.check_source,
        )

    def result(self, counts: Counted) -> Written:
        """Return what was written."""
        return Written(
            target=self._place.target,
            backup=self._kept,
            followed_link=self._place.followed,
            write_seconds=self._written - self._start,
            compare_seconds=self._compared - self._written,
            counts=counts,
        )


@contextmanager
def view(
    target: Path,
    members: Mapping[Path, atomic.Draft],
    *,
    folder: str = "",
    others: Sequence[Path] = (),
) -> Iterator[Path]:
    """
    Yield a path by which other processes can read drafts under their names, in a hidden directory
    beside the target.

    A model that is a directory has the name ``folder`` there.
    """
    with atomic.DirectoryDraft.beside(target) as made:
        model = made.create() / folder
        model.mkdir(exist_ok=True)
        for name, draft in members.items():
            (model / name).parent.mkdir(parents=True, exist_ok=True)
            draft.show(model / name)
        for other in others:
            (model / other.name).symlink_to(other)
        yield model if folder else model / target.name


@contextmanager
def report_failures(shown: str, place: Path) -> Iterator[None]:
    """
    Turn every failure into the one kind that is reported.

    :raises ModelFileError: in place of each.
    """
    try:
        yield
    except WriteError as error:
        raise ModelFileError(shown, error.code, str(error)) from error
    except FileExistsError as error:
        raise ModelFileError(
            shown,
            "target-exists",
            f"{place.name} was created by another process; nothing was changed",
        ) from error
    except OSError as error:
        _raise(error, shown, place)


def _free_backup(place: OutputPlace) -> Path:
    """Return where the original will be kept."""
    kept = place.target.with_name(place.target.name + BACKUP)
    if (
        opening.find_status(kept) is not None
        and not place.overwrite
        and not atomic.same_file(kept, place.target)
    ):  # an interrupted run's is the original
        raise WriteError(
            "target-exists",
            (
                f"its backup {kept.name} already exists; remove it, or use --overwrite or "
                "--no-backup"
            ),
        )
    return kept


def check_output(source: Path, target: Path, shown: str, *, overwrite: bool) -> None:
    """
    Make sure that a rewritten copy of ``source`` may be called ``target``, before it is made.

    :raises ModelFileError: if something of that name stays, or the directory cannot be read.
    """
    with report_failures(shown, target):
        _check_target(
            OutputPlace.of(
                source, target, overwrite=overwrite, in_place=False, directory=source.is_dir()
            )
        )


def _check_target(place: OutputPlace) -> None:
    target = place.target
    found = opening.find_status(target)
    if found is None:
        return
    kind = found.st_mode
    if not stat.S_ISREG(kind) and not (stat.S_ISDIR(kind) and place.directory):
        raise WriteError(
            "target-exists", f"{target.name} is not a regular file; specify another output"
        )
    if not (place.overwrite or place.replace):
        raise already_exists(target.name)


def already_exists(name: str) -> WriteError:
    """Return the error for an output whose name something has that is not to be replaced."""
    return WriteError(
        "target-exists",
        f"would be written to {name}, which already exists; use --overwrite to replace it, or -o "
        "for another name",
    )


def _state(source: Path) -> dict[str, tuple[int, int, int]]:
    """Return what tells whether the files of a model change."""
    files = (
        [source]
        if not source.is_dir()
        else [Path(parent, name) for parent, _, names in os.walk(source) for name in names]
    )
    found = {str(file): file.stat() for file in files if file.exists()}
    return {
        name: (status.st_ino, status.st_size, status.st_mtime_ns) for name, status in found.items()
    }


def _raise(error: OSError, shown: str, place: Path) -> NoReturn:
    reason = error.strerror or str(error)
    if isinstance(error, atomic.NotTakenBackError):
        raise ModelFileError(shown, "write-failed", f"writing failed: {reason}") from error
    where = place.parent if str(place.parent) != "." else "the working directory"
    if error.errno in _NO_SPACE:
        raise ModelFileError(
            shown,
            "no-space",
            (f"not enough space for the new file in {where} ({reason}); nothing was changed"),
        ) from error
    if error.errno in _NOT_WRITABLE:
        raise ModelFileError(
            shown,
            "not-writable",
            f"cannot create a file in {where} ({reason}); nothing was changed",
        ) from error
    raise ModelFileError(
        shown, "write-failed", f"writing failed ({reason}); nothing was changed"
    ) from error
