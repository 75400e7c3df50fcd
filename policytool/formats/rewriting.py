"""
Rewriting of models: write the changed files of a model, and copy the others.

:data:`policytool.formats.FORMATS` provides the code of each format.
"""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from policytool.formats import FORMATS
from policytool.formats.edits import WriteOptions, Written
from policytool.formats.writers import Changes
from policytool.formats.writing import (
    Output,
    WriteError,
    report_failures,
    require_same,
    write_output,
)
from policytool.support.errors import ModelFileError
from policytool.support.files import atomic
from policytool.support.files.atomic import same_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from policytool.formats.base import Format
    from policytool.formats.casting import Counts
    from policytool.formats.edits import Cast, Counted
    from policytool.formats.writers import FileChange, FindChanges
    from policytool.formats.writing import AnyOutput, OutputPlace


_DEFAULT_OPTIONS: Final = WriteOptions()


def companions(document_format: str, path: Path) -> tuple[str, ...]:
    """
    Return the files that a model file names, which a copy of the file needs in its directory.

    :raises WriteError: if such a file is outside the model's directory.
    """
    entry = _format_for(document_format, is_directory=False)
    return entry.companions(path) if entry is not None else ()


def measure(
    source: Path, document_format: str, casts: Sequence[Cast], *, display_path: str | None = None
) -> Counted:
    """
    Return the effects that casts would have on the values of a file.

    :param display_path: the file's name in error messages
    :raises ModelFileError: if the file does not match the plan, or cannot be read.
    """
    with report_failures(display_path or str(source), source):
        file_changes = _rewriting(document_format, source)[1]
        counts: dict[tuple[str, ...], Counts] = {}
        for name, change in file_changes(source, Changes(casts=tuple(casts))).items():
            counts |= change.measure(source / name)
        return counts


def write(
    source: Path,
    target: Path,
    changes: Changes,
    *,
    document_format: str,
    options: WriteOptions = _DEFAULT_OPTIONS,
) -> Written:
    """
    Write a changed copy of ``source`` to ``target``, or in place of ``source``.

    On failure, the target is unchanged; otherwise it is complete and was compared with the source.
    If only one file of a directory changes in place, only that file is replaced, and its backup is
    next to it.

    :raises ModelFileError: as in :func:`policytool.formats.writing.write_output`.
    """
    entry, file_changes = _rewriting(document_format, source)

    def output(place: OutputPlace) -> AnyOutput:
        """Return the output for one changed file, or for a copy of the whole directory."""
        files = file_changes(place.source, changes)
        if entry.is_directory and not (place.replaces and len(files) == 1):
            return _directory_output(entry, place.source, files)
        ((name, change),) = files.items()
        file = place.source / name
        return Output(
            draft=atomic.Draft,
            fill=lambda draft: change.write(file, draft.path),
            compare=lambda draft: change.compare(file, draft.path),
            member=name,
            companions=entry.companions(place.source) if place.leaves_home else (),
        )

    return write_output(source, target, options, output)


def _directory_output(
    entry: Format, source: Path, files: Mapping[str, FileChange]
) -> Output[atomic.DirectoryDraft]:
    """Return the output that copies a directory with changed files."""

    def fill(directory: atomic.DirectoryDraft) -> Counted:
        """Copy the files of a directory into the draft, with the planned changes."""
        counts: dict[tuple[str, ...], Counts] = {}
        for name in _files(entry, source, directory):
            draft = directory.member(name)
            change = files.get(str(name))
            if change is not None:
                counts |= change.write(source / name, draft.path)
            else:
                atomic.copy_file(source / name, draft.path)
        return counts

    def compare(directory: atomic.DirectoryDraft) -> None:
        """Check that the draft differs from the source by the planned changes only."""
        for name, draft in directory.members.items():
            change = files.get(str(name))
            if change is not None:
                change.compare(source / name, draft.path)
            else:
                require_same(same_bytes(source / name, draft.path), str(name))

    return Output(draft=atomic.DirectoryDraft, fill=fill, compare=compare)


def _files(
    entry: Format, source: Path, directory: atomic.DirectoryDraft, below: Path = Path()
) -> Iterator[Path]:
    """
    Yield the files below a directory, relative to it, except backups of other files.

    Links are kept as links, except links in place of the model's own files and folders, as download
    caches create them. The targets of these links are copied, so that the new model is complete.
    """
    folder = source / below
    names = sorted(file.name for file in folder.iterdir())
    for name in names:
        file, relative = folder / name, below / name
        if name.endswith(atomic.SUFFIX) or (
            name.endswith(atomic.ASIDE) and name.removesuffix(atomic.ASIDE) in names
        ):
            continue
        is_own = entry.owns is not None and entry.owns(relative)
        if file.is_symlink() and not is_own:
            directory.links[relative] = str(file.readlink())
        elif stat.S_ISDIR(file.stat().st_mode):
            directory.folders.append(relative)
            yield from _files(entry, source, directory, relative)
        elif stat.S_ISREG(file.stat().st_mode):
            yield relative
        else:
            raise WriteError("not-rewritable", f"{relative} is not a regular file")


def _rewriting(document_format: str, source: Path) -> tuple[Format, FindChanges]:
    """Return the format of a model, and the function that finds the files to change."""
    entry = _format_for(document_format, is_directory=source.is_dir())
    if entry is None or not (file_changes := entry.file_changes):
        raise ModelFileError(
            str(source), "not-rewritable", f"{document_format} files can only be read"
        )
    return entry, file_changes


def _format_for(document_format: str, *, is_directory: bool) -> Format | None:
    return next(
        (
            entry
            for entry in FORMATS
            if (entry.document_format, entry.is_directory) == (document_format, is_directory)
        ),
        None,
    )


__all__ = [
    "Changes",
    "WriteError",
    "Written",
    "companions",
    "measure",
    "write",
]
