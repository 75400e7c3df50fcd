"""One file rewritten: drafted, brought to the disk, compared with its source, and put in its place."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

from policytool import drafts
from policytool.errors import ModelFileError
from policytool.writers import architecture, hdf5, keras_directory, keras_metadata, keras_zip, savedmodel, tfjs, yaml_architecture
from policytool.writers._base import Changes, WriteError, Writer, differs
from policytool.writers._blocks import same_bytes
from policytool.writers._companions import Companions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from policytool.casting import Counts
    from policytool.plan import Cast
    from policytool.writers._base import Counted

Verify: TypeAlias = "Callable[[Path], None]"
"""Looks at a result before it has its place; raises where it is not right."""

WRITERS: Final[tuple[Writer, ...]] = (
    hdf5.WRITER,
    keras_zip.WRITER,
    savedmodel.WRITER,
    keras_directory.WRITER,
    architecture.WRITER,
    keras_metadata.WRITER,
    yaml_architecture.WRITER,
    tfjs.WRITER,
)
"""In the order of how often their formats are met."""

BACKUP: Final = ".bak"
_NO_SPACE: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NOT_WRITABLE: Final = {errno.EACCES, errno.EPERM, errno.EROFS}


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """A file that was written."""

    target: Path
    """Where it is: what a link led to, where one was followed."""

    backup: Path | None = None
    """Where the original is, if it was replaced and kept."""

    followed_link: bool = False
    write_seconds: float = 0.0
    """Until the new file was on the disk."""

    compare_seconds: float = 0.0
    counts: Mapping[tuple[str, ...], Counts] = field(default_factory=dict)
    """What the casts did to the values, by the tensor's path in the plan."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Job:
    """What to write where, links followed."""

    writer: Writer
    source: Path
    home: Path
    """The directory that the model was named in, which is not the source's where that is behind a link."""

    target: Path
    changes: Changes
    overwrite: bool
    replace: bool
    """Whether the target is the source."""

    backup: Path | None
    verify: Verify | None = None
    model: Path | None = None
    """The directory that the source is one file of, where that file alone is replaced."""


@dataclass(kw_only=True, slots=True)
class _Clock:
    """The time until the draft was on the disk, and that of the comparison."""

    start: float = field(default_factory=time.perf_counter)
    written: float = 0.0
    compared: float = 0.0


def writer_for(document_format: str, *, is_directory: bool) -> Writer | None:
    """Return the writer for a document's format; None where files of it are only read."""
    return next((writer for writer in WRITERS if (writer.format, writer.directory) == (document_format, is_directory)), None)


def measure(source: Path, document_format: str, casts: Sequence[Cast], *, shown: str | None = None) -> Counted:
    """
    Return what casts would do to the values of a file.

    :raises ModelFileError: where the file is not what the plan says, or cannot be read.
    """
    with _told(shown or str(source), source):
        return _writer(document_format, source).measure(source, casts)


def write(
    source: Path,
    target: Path,
    changes: Changes,
    *,
    document_format: str,
    overwrite: bool = False,
    in_place: bool = False,
    backup: bool = True,
    shown: str | None = None,
    verify: Verify | None = None,
) -> Written:
    """
    Write a changed copy of ``source`` to ``target``, or in the place of ``source``, whose original then stays as ``NAME.bak`` where ``backup`` asks for it.

    The target is complete and compared with the source, or what it was before. Of a directory in which one file changes in place, that file alone is
    replaced, and its backup lies beside it. ``verify`` gets a path by which any process of this user can read the result, before it has its place; what it
    raises ends the write, and nothing was changed.

    :raises ModelFileError: with a sentence, and one of the codes ``target-exists``, ``no-space``, ``not-writable``, ``write-failed``, ``write-differs``,
        ``source-changed`` and ``not-rewritable``.
    """
    place = source if in_place else target
    followed = place.is_symlink()
    job = _Job(
        writer=_writer(document_format, source),
        source=source.resolve(),
        home=source.parent.resolve(),
        target=place.resolve() if followed else place.parent.resolve() / place.name,
        changes=changes,
        overwrite=overwrite,
        replace=in_place,
        backup=None,
        verify=verify,
    )
    with _told(shown or str(source), place):
        return _written(job, followed=followed, backup=backup and in_place)


def make(
    source: Path, target: Path, fill: Callable[[Path], None], *, overwrite: bool = False, in_place: bool = False, backup: bool = True, shown: str | None = None
) -> Written:
    """
    Give a directory that ``fill`` writes, and finds right, the place of ``target``, or of ``source``, as :func:`write` does.

    :raises ModelFileError: as :func:`write` does; what ``fill`` raises ends it too, and nothing was changed.
    """
    place = source if in_place else target
    followed = place.is_symlink()
    job = _Job(
        writer=_writer("savedmodel", source),
        source=source.resolve(),
        home=source.parent.resolve(),
        target=place.resolve() if followed else place.parent.resolve() / place.name,
        changes=Changes(),
        overwrite=overwrite,
        replace=in_place,
        backup=None,
    )
    with _told(shown or str(source), place):
        kept = _free_backup(job) if backup and in_place else None
        _check_target(job)
        drafts.remove_stale(job.target.parent)
        before, clock = _state(job.source), _Clock()
        with drafts.MadeDirectory.beside(job.target) as made:
            fill(made.path)
            clock.written = clock.compared = time.perf_counter()
            _check_source(job, before)
            made.publish(job.target, like=job.source, overwrite=job.overwrite or (job.replace and kept is None), backup=kept)
        return _result(job, kept, clock, {}, followed=followed)


def rewrite(directory: Path, changes: Changes, document_format: str) -> None:
    """
    Rewrite files of a directory that nobody else knows yet, such as a draft, each in its place.

    :raises ModelFileError: as :func:`write` does.
    """
    with _told(str(directory), directory):
        writer = _writer(document_format, directory)
        for name in writer.members(directory, changes) if writer.members is not None else ():
            with drafts.Draft.beside(directory / name) as draft:
                writer.write(directory / name, draft.path, changes)
                writer.compare(directory / name, draft.path, changes)
                draft.publish(directory / name, like=directory / name, overwrite=True)


def _written(job: _Job, *, followed: bool, backup: bool) -> Written:
    if job.writer.members is None:
        return _write_file(job, followed=followed, backup=backup)
    names = job.writer.members(job.source, job.changes)
    if job.replace and len(names) == 1:
        member = job.source / names[0]
        return _write_file(_at(job, member), followed=followed or member.is_symlink(), backup=backup)
    return _write_directory(job, names, followed=followed, backup=backup)


def _at(job: _Job, member: Path) -> _Job:
    """Return the job of replacing one file of a directory; a link in it is followed, so that its target changes."""
    return replace(job, source=member, target=member.resolve(), model=job.source)


def _write_file(job: _Job, *, followed: bool, backup: bool) -> Written:
    kept = _free_backup(job) if backup else None
    _check_target(job)
    drafts.remove_stale(job.target.parent)
    before, clock = _state(job.source), _Clock()
    with Companions(job.home, job.target.parent) as companions, drafts.Draft.beside(job.target) as draft:
        if job.writer.companions is not None and job.target.parent != job.home and not job.replace:
            companions.copy(job.writer.companions(job.source))
        counts = job.writer.write(job.source, draft.path, job.changes)
        draft.flush()
        clock.written = time.perf_counter()
        job.writer.compare(job.source, draft.path, job.changes)
        clock.compared = time.perf_counter()
        with contextlib.ExitStack() as stack:
            if job.verify is not None:
                others = [found for found in job.model.iterdir() if found != job.source] if job.model is not None else []
                job.verify(stack.enter_context(_view(job, {Path(job.target.name): draft}, others)))
            _check_source(job, before)
            companions.publish()
            draft.publish(job.target, like=job.source, overwrite=job.overwrite or (job.replace and kept is None), backup=kept)
            companions.keep()
    return _result(job, kept, clock, counts, followed=followed)


def _write_directory(job: _Job, names: Sequence[str], *, followed: bool, backup: bool) -> Written:
    kept = _free_backup(job) if backup else None
    _check_target(job)
    drafts.remove_stale(job.target.parent)
    before, clock = _state(job.source), _Clock()
    counts: dict[tuple[str, ...], Counts] = {}
    with drafts.DirectoryDraft.beside(job.target) as made:
        for name in _files(job, made):
            draft = made.member(name)
            if str(name) in names:
                counts |= job.writer.write(job.source / name, draft.path, job.changes)
            else:
                drafts.copy_file(job.source / name, draft.path)
            draft.flush()
        clock.written = time.perf_counter()
        for name, draft in made.members.items():
            if str(name) in names:
                job.writer.compare(job.source / name, draft.path, job.changes)
            elif not same_bytes(job.source / name, draft.path):
                raise differs(str(name))
        clock.compared = time.perf_counter()
        with contextlib.ExitStack() as stack:
            if job.verify is not None:
                job.verify(stack.enter_context(_view(job, made.members)))
            _check_source(job, before)
            made.publish(job.target, like=job.source, overwrite=job.overwrite or (job.replace and kept is None), backup=kept)
    return _result(job, kept, clock, counts, followed=followed)


def _result(job: _Job, kept: Path | None, clock: _Clock, counts: Counted, *, followed: bool) -> Written:
    return Written(
        target=job.target,
        backup=kept,
        followed_link=followed,
        write_seconds=clock.written - clock.start,
        compare_seconds=clock.compared - clock.written,
        counts=counts,
    )


def _files(job: _Job, made: drafts.DirectoryDraft, below: Path = Path()) -> Iterator[Path]:
    """
    Yield the files below a directory, relative to it, but for backups of others.

    Links in it are kept as links, but for those that stand for the model's own files and folders, as a cache of downloads makes them: what they lead to is
    copied, so that the new model is whole.
    """
    folder = job.source / below
    names = sorted(entry.name for entry in folder.iterdir())
    for name in names:
        file, relative = folder / name, below / name
        if name.endswith(drafts.SUFFIX) or (name.endswith(BACKUP) and name.removesuffix(BACKUP) in names):
            continue
        is_own = job.writer.owns is not None and job.writer.owns(relative)
        if file.is_symlink() and not is_own:
            made.link(relative, str(file.readlink()))
        elif stat.S_ISDIR(file.stat().st_mode):
            made.folder(relative)
            yield from _files(job, made, relative)
        elif stat.S_ISREG(file.stat().st_mode):
            yield relative
        else:
            raise WriteError("not-rewritable", f"{relative} is no regular file")


@contextmanager
def _view(job: _Job, members: Mapping[Path, drafts.Draft], others: Sequence[Path] = ()) -> Iterator[Path]:
    """
    Yield a path by which other processes can read drafts under their names, in a hidden directory beside the target.

    It has to last until the drafts are published: a file without a name that has had one and lost it gets no other.
    """
    with drafts.MadeDirectory.beside(job.target) as made:
        model = made.path / (job.model or job.target).name if job.writer.directory else made.path
        model.mkdir(exist_ok=True)
        for name, draft in members.items():
            (model / name).parent.mkdir(parents=True, exist_ok=True)
            draft.show(model / name)
        for other in others:
            (model / other.name).symlink_to(other)
        yield model if job.writer.directory else model / job.target.name


def _writer(document_format: str, source: Path) -> Writer:
    writer = writer_for(document_format, is_directory=source.is_dir())
    if writer is None:
        raise ModelFileError(str(source), "not-rewritable", f"{document_format} files are only read")
    return writer


def _free_backup(job: _Job) -> Path:
    """Return where the original will be kept."""
    kept = job.target.with_name(job.target.name + BACKUP)
    if os.path.lexists(kept) and not job.overwrite:
        raise WriteError("target-exists", f"its backup {kept.name} exists already; remove it, or use --overwrite or --no-backup")
    return kept


def _check_target(job: _Job) -> None:
    kind = job.target.lstat().st_mode if os.path.lexists(job.target) else None
    if kind is not None and not stat.S_ISREG(kind) and not (stat.S_ISDIR(kind) and job.writer.directory):
        raise WriteError("target-exists", f"{job.target.name} is no file that could be replaced; name another output")
    if os.path.lexists(job.target) and not (job.overwrite or job.replace):
        raise WriteError("target-exists", f"would be written to {job.target.name}, which exists already; use --overwrite to replace it, or -o for another name")


def _state(source: Path) -> dict[str, tuple[int, int, int]]:
    """Return what tells whether the files of a model change."""
    files = [source] if not source.is_dir() else [Path(parent, name) for parent, _, names in os.walk(source) for name in names]
    found = {str(file): file.stat() for file in files if file.exists()}
    return {name: (status.st_ino, status.st_size, status.st_mtime_ns) for name, status in found.items()}


def _check_source(job: _Job, before: dict[str, tuple[int, int, int]]) -> None:
    if _state(job.source) != before:
        raise WriteError("source-changed", "was changed by someone else while it was read; nothing was written, try again")


@contextmanager
def _told(shown: str, place: Path) -> Iterator[None]:
    """Turn every failure into the one kind that is reported."""
    try:
        yield
    except WriteError as error:
        raise ModelFileError(shown, error.code, str(error)) from error
    except FileExistsError as error:
        raise ModelFileError(shown, "target-exists", f"{place.name} was made by someone else meanwhile; nothing was changed") from error
    except OSError as error:
        _raise(error, shown, place)


def _raise(error: OSError, shown: str, place: Path) -> NoReturn:
    reason = error.strerror or str(error)
    where = place.parent if str(place.parent) != "." else "the working directory"
    if error.errno in _NO_SPACE:
        raise ModelFileError(shown, "no-space", f"there is no room for the new file in {where} ({reason}); nothing was changed") from error
    if error.errno in _NOT_WRITABLE:
        raise ModelFileError(shown, "not-writable", f"no file can be made in {where} ({reason}); nothing was changed") from error
    raise ModelFileError(shown, "write-failed", f"writing failed ({reason}); nothing was changed") from error
