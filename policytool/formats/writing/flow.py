"""
One output, from its draft to its name: what is checked before, what is kept, and what others may
look at.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, TypeVar

from policytool.formats.edits import WriteOptions, Written
from policytool.formats.writing.companions import Companions
from policytool.formats.writing.failures import WriteError, already_exists, report_failures
from policytool.support.files import atomic, opening

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from policytool.formats.edits import Counted

DraftT = TypeVar("DraftT", atomic.Draft, atomic.DirectoryDraft)


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputPlace:
    """Where something new is written, links followed."""

    source: Path
    target: Path
    home: Path
    """
    The directory that the source was named in, which is not the source's where that is behind a
    link.
    """

    replaces: bool
    """Whether the target is the source."""

    followed: bool
    """Whether the target was named by a link."""

    directory: Path | None = None
    """The directory that the source is one file of, where that file alone is replaced."""

    @classmethod
    def of(cls, source: Path, target: Path, *, in_place: bool = False) -> Self:
        """Return the place of ``target``, or of ``source`` where that is replaced."""
        name = source if in_place else target
        followed = name.is_symlink()
        return cls(
            source=source.resolve(),
            target=name.resolve() if followed else name.parent.resolve() / name.name,
            home=source.parent.resolve(),
            replaces=in_place,
            followed=followed,
        )

    def member(self, name: str) -> Self:
        """
        Return the place of one file of the directory that is replaced; a link in it is followed, so
        that its target changes.
        """
        file = self.source / name
        return replace(
            self,
            source=file,
            target=file.resolve(),
            followed=self.followed or file.is_symlink(),
            directory=self.source,
        )

    @property
    def leaves_home(self) -> bool:
        """Whether the target is in another directory, without what is beside the source."""
        return not self.replaces and self.target.parent != self.home


@dataclass(frozen=True, kw_only=True, slots=True)
class Output(Generic[DraftT]):
    """What is written: how its draft is filled, and how it is read back."""

    draft: type[DraftT]
    """Whether it is a file or a directory."""

    fill: Callable[[DraftT], Counted]
    """Write into the empty draft; return what casts did to the values."""

    compare: Callable[[DraftT], None]
    """
    Read the draft back; raise :class:`~policytool.formats.writing.failures.WriteError` where it is
    not what it should be.
    """

    member: str = ""
    """The file of the source that alone is replaced; empty for a whole model."""

    companions: tuple[str, ...] = ()
    """Files beside the source that the output needs beside itself."""


AnyOutput: TypeAlias = Output[atomic.Draft] | Output[atomic.DirectoryDraft]


def write_output(
    source: Path,
    target: Path,
    options: WriteOptions,
    output: Callable[[OutputPlace], AnyOutput],
) -> Written:
    """
    Write an output to ``target``, or in the place of ``source``.

    It is complete, on the disk, compared and verified before it gets its name, or what was there
    stays; a directory is never replaced by a file.

    :param output: what is written to a place
    :raises ModelFileError: with a sentence, and one of the codes ``target-exists``, ``no-space``,
        ``not-writable``, ``write-failed``, ``write-differs``, ``source-changed`` and
        ``not-rewritable``; what ``fill``, ``compare`` or ``verify`` raises ends it too.
    """
    with report_failures(options.shown or str(source), source if options.in_place else target):
        place = OutputPlace.of(source, target, in_place=options.in_place)
        written = output(place)
        return _write(place.member(written.member) if written.member else place, written, options)


def _write(place: OutputPlace, output: Output[Any], options: WriteOptions) -> Written:
    backup = _free_backup(place, options) if options.backup and place.replaces else None
    is_directory = issubclass(output.draft, atomic.DirectoryDraft)
    _check_target(place, overwrite=options.overwrite, directory=is_directory)
    atomic.remove_stale(place.target.parent)
    before = _state(place.source)

    def check_source() -> None:
        if _state(place.source) != before:
            raise WriteError(
                "source-changed",
                (
                    "was changed by another process while policytool was reading it, so nothing "
                    "was written; run the command again"
                ),
            )

    times = [time.perf_counter()]
    with (
        Companions(place.home, place.target.parent, place.target) as companions,
        output.draft.beside(place.target) as draft,
    ):
        companions.copy(output.companions)
        counts = output.fill(draft)
        draft.flush()
        times.append(time.perf_counter())
        output.compare(draft)
        times.append(time.perf_counter())
        if options.verify is not None:
            with _view(place, draft) as path:
                options.verify(path)
        check_source()
        companions.publish()
        draft.publish(
            place.target,
            like=place.source if is_directory else _like(place.source),
            overwrite=options.overwrite or (place.replaces and backup is None),
            backup=backup,
            check=check_source,
        )
        companions.keep()
    return Written(
        target=place.target,
        backup=backup,
        followed_link=place.followed,
        write_seconds=times[1] - times[0],
        compare_seconds=times[2] - times[1],
        counts=counts,
    )


@contextmanager
def _view(place: OutputPlace, draft: atomic.Draft | atomic.DirectoryDraft) -> Iterator[Path]:
    """
    Yield a path by which other processes can read the draft under its name, in a hidden directory
    beside the target; one file of a directory is in a directory with the others.
    """
    others = list(place.directory.iterdir()) if place.directory is not None else []
    with atomic.DirectoryDraft.beside(place.target) as hidden:
        if place.directory is None:
            path = hidden.create() / place.target.name
            draft.show(path)
        else:
            path = hidden.create() / place.directory.name
            path.mkdir()
            draft.show(path / place.source.name)
        for other in others:
            if other != place.source:
                (path / other.name).symlink_to(other)
        yield path


def check_output(source: Path, target: Path, shown: str, *, overwrite: bool) -> None:
    """
    Make sure that a rewritten copy of ``source`` may be called ``target``, before it is made.

    :raises ModelFileError: if something of that name stays, or the directory cannot be read.
    """
    with report_failures(shown, target):
        _check_target(
            OutputPlace.of(source, target), overwrite=overwrite, directory=source.is_dir()
        )


def _free_backup(place: OutputPlace, options: WriteOptions) -> Path:
    """Return where the original will be kept."""
    kept = place.target.with_name(place.target.name + atomic.ASIDE)
    if (
        opening.find_status(kept) is not None
        and not options.overwrite
        and not atomic.same_file(kept, place.target)
    ):  # an interrupted run's is the original
        raise WriteError(
            "target-exists",
            f"its backup {kept.name} already exists; remove it, or use --no-backup",
        )
    return kept


def _check_target(place: OutputPlace, *, overwrite: bool, directory: bool) -> None:
    status = opening.find_status(place.target)
    if status is None:
        return
    if not stat.S_ISREG(status.st_mode) and not (stat.S_ISDIR(status.st_mode) and directory):
        raise WriteError(
            "target-exists", f"{place.target.name} is not a regular file; specify another output"
        )
    if not (overwrite or place.replaces):
        raise already_exists(place.target.name)


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


def _like(source: Path) -> Path:
    """
    Return the file whose mode and owner a new file gets: the source, or of a directory its first
    file.
    """
    if not source.is_dir():
        return source
    return next((file for file in sorted(source.iterdir()) if file.is_file()), source)
