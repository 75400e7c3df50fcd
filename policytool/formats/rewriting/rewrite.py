"""
One file rewritten: drafted, brought to the disk, compared with its source, and put in its place.
"""

from __future__ import annotations

import contextlib
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from policytool.formats import FORMATS
from policytool.formats.edits import WriteOptions
from policytool.formats.rewriting.base import Changes, WriteError, differs
from policytool.formats.rewriting.blocks import same_bytes
from policytool.formats.rewriting.companions import Companions
from policytool.formats.rewriting.replacement import (
    BACKUP,
    OutputPlace,
    Replacing,
    report_failures,
    view,
)
from policytool.support.errors import ModelFileError
from policytool.support.files import atomic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from policytool.formats.casting import Counts
    from policytool.formats.edits import Cast, Written
    from policytool.formats.format import Format
    from policytool.formats.rewriting.base import Counted, Rewriter
    from policytool.formats.rewriting.replacement import Verify

_DEFAULT_OPTIONS: Final = WriteOptions()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Job:
    """What to write where."""

    place: OutputPlace
    format: Format
    rewriter: Rewriter
    home: Path
    """
    The directory that the model was named in, which is not the source's where that is behind a
    link.
    """

    changes: Changes
    verify: Verify | None = None
    model: Path | None = None
    """The directory that the source is one file of, where that file alone is replaced."""


def rewriter_for(document_format: str, *, is_directory: bool) -> Rewriter | None:
    """Return the rewriter for a document's format; None for one that is only read."""
    found = _format_for(document_format, is_directory=is_directory)
    return found.rewriter if found is not None else None


def measure(
    source: Path, document_format: str, casts: Sequence[Cast], *, shown: str | None = None
) -> Counted:
    """
    Return what casts would do to the values of a file.

    :raises ModelFileError: where the file is not what the plan says, or cannot be read.
    """
    with report_failures(shown or str(source), source):
        return _rewriter(document_format, source)[1].measure(source, casts)


def write(
    source: Path,
    target: Path,
    changes: Changes,
    *,
    document_format: str,
    options: WriteOptions = _DEFAULT_OPTIONS,
) -> Written:
    """
    Write a changed copy of ``source`` to ``target``, or in the place of ``source``.

    The target is complete and compared with the source, or what it was before. Of a directory in
    which one file changes in place, that file alone is replaced, and its backup lies beside it.

    :raises ModelFileError: with a sentence, and one of the codes ``target-exists``, ``no-space``,
        ``not-writable``, ``write-failed``, ``write-differs``, ``source-changed`` and
        ``not-rewritable``.
    """
    found, rewriter = _rewriter(document_format, source)
    job = _Job(
        place=OutputPlace.of(
            source,
            target,
            overwrite=options.overwrite,
            in_place=options.in_place,
            directory=found.is_directory,
        ),
        format=found,
        rewriter=rewriter,
        home=source.parent.resolve(),
        changes=changes,
        verify=options.verify,
    )
    with report_failures(options.shown or str(source), source if options.in_place else target):
        return _write(job, backup=options.backup and options.in_place)


def make(
    source: Path,
    target: Path,
    fill: Callable[[Path], None],
    *,
    options: WriteOptions = _DEFAULT_OPTIONS,
) -> Written:
    """
    Give a directory that ``fill`` writes, and finds right, the place of ``target``, or of
    ``source``, as :func:`write` does.

    :raises ModelFileError: as :func:`write` does; what ``fill`` raises ends it too, and nothing was
        changed.
    """
    place = OutputPlace.of(
        source, target, overwrite=options.overwrite, in_place=options.in_place, directory=True
    )
    with report_failures(options.shown or str(source), source if options.in_place else target):
        replacing = Replacing(place, backup=options.backup and options.in_place)
        with atomic.DirectoryDraft.beside(place.target) as made:
            fill(made.create())
            replacing.note_written()
            replacing.publish(made)
        return replacing.result({})


def rewrite(directory: Path, changes: Changes, document_format: str) -> None:
    """
    Rewrite files of a directory that nobody else knows yet, such as a draft, each in its place.

    :raises ModelFileError: as :func:`write` does.
    """
    with report_failures(str(directory), directory):
        rewriter = _rewriter(document_format, directory)[1]
        for name in rewriter.members(directory, changes) if rewriter.members is not None else ():
            with atomic.Draft.beside(directory / name) as draft:
                rewriter.write(directory / name, draft.path, changes)
                rewriter.compare(directory / name, draft.path, changes)
                draft.publish(directory / name, like=directory / name, overwrite=True)


def _write(job: _Job, *, backup: bool) -> Written:
    if job.rewriter.members is None:
        return _write_file(job, backup=backup)
    names = job.rewriter.members(job.place.source, job.changes)
    if job.place.replace and len(names) == 1:
        return _write_file(_at(job, job.place.source / names[0]), backup=backup)
    return _write_directory(job, names, backup=backup)


def _at(job: _Job, member: Path) -> _Job:
    """
    Return the job of replacing one file of a directory; a link in it is followed, so that its
    target changes.
    """
    followed = job.place.followed or member.is_symlink()
    return replace(
        job,
        place=replace(job.place, source=member, target=member.resolve(), followed=followed),
        model=job.place.source,
    )


def _write_file(job: _Job, *, backup: bool) -> Written:
    replacing = Replacing(job.place, backup=backup)
    source, target = job.place.source, job.place.target
    with (
        Companions(job.home, target.parent, target) as companions,
        atomic.Draft.beside(target) as draft,
    ):
        if (
            job.rewriter.companions is not None
            and target.parent != job.home
            and not job.place.replace
        ):
            companions.copy(job.rewriter.companions(source))
        counts = job.rewriter.write(source, draft.path, job.changes)
        draft.flush()
        replacing.note_written()
        job.rewriter.compare(source, draft.path, job.changes)
        replacing.note_compared()
        with contextlib.ExitStack() as stack:
            if job.verify is not None:
                others = (
                    [found for found in job.model.iterdir() if found != source]
                    if job.model is not None
                    else []
                )
                folder = (job.model or target).name if job.format.is_directory else ""
                job.verify(
                    stack.enter_context(
                        view(target, {Path(target.name): draft}, folder=folder, others=others)
                    )
                )
            replacing.check_source()
            companions.publish()
            replacing.publish(draft)
            companions.keep()
    return replacing.result(counts)


def _write_directory(job: _Job, names: Sequence[str], *, backup: bool) -> Written:
    replacing = Replacing(job.place, backup=backup)
    source, target = job.place.source, job.place.target
    counts: dict[tuple[str, ...], Counts] = {}
    with atomic.DirectoryDraft.beside(target) as made:
        for name in _files(job, made):
            draft = made.member(name)
            if str(name) in names:
                counts |= job.rewriter.write(source / name, draft.path, job.changes)
            else:
                atomic.copy_file(source / name, draft.path)
            draft.flush()
        replacing.note_written()
        for name, draft in made.members.items():
            if str(name) in names:
                job.rewriter.compare(source / name, draft.path, job.changes)
            elif not same_bytes(source / name, draft.path):
                raise differs(str(name))
        replacing.note_compared()
        with contextlib.ExitStack() as stack:
            if job.verify is not None:
                job.verify(stack.enter_context(view(target, made.members, folder=target.name)))
            replacing.publish(made)
    return replacing.result(counts)


def _files(job: _Job, made: atomic.DirectoryDraft, below: Path = Path()) -> Iterator[Path]:
    """
    Yield the files below a directory, relative to it, but for backups of others.

    Links in it are kept as links, but for those that stand for the model's own files and folders,
    as a cache of downloads makes them: what they lead to is copied, so that the new model is whole.
    """
    folder = job.place.source / below
    names = sorted(entry.name for entry in folder.iterdir())
    for name in names:
        file, relative = folder / name, below / name
        if name.endswith(atomic.SUFFIX) or (
            name.endswith(BACKUP) and name.removesuffix(BACKUP) in names
        ):
            continue
        is_own = job.format.owns is not None and job.format.owns(relative)
        if file.is_symlink() and not is_own:
            made.links[relative] = str(file.readlink())
        elif stat.S_ISDIR(file.stat().st_mode):
            made.folders.append(relative)
            yield from _files(job, made, relative)
        elif stat.S_ISREG(file.stat().st_mode):
            yield relative
        else:
            raise WriteError("not-rewritable", f"{relative} is not a regular file")


def _rewriter(document_format: str, source: Path) -> tuple[Format, Rewriter]:
    found = _format_for(document_format, is_directory=source.is_dir())
    if found is None or not (rewriter := found.rewriter):
        raise ModelFileError(
            str(source), "not-rewritable", f"{document_format} files can only be read"
        )
    return found, rewriter


def _format_for(document_format: str, *, is_directory: bool) -> Format | None:
    return next(
        (
            found
            for found in FORMATS
            if (found.document_format, found.is_directory) == (document_format, is_directory)
        ),
        None,
    )
