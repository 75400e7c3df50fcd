"""Which format a path is in; and what it is instead, where it is in none."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from policytool.formats import FORMATS, ambiguity
from policytool.formats.adapted_values import adapted_values
from policytool.formats.base import EXPECTED, Probe, foreign_file
from policytool.support import steps
from policytool.support.errors import ModelFileError
from policytool.support.files import opening
from policytool.support.files.remote_path import RemotePath

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.formats.base import Format
    from policytool.formats.document import Document
    from policytool.formats.stored_values import Values
    from policytool.support.files.remote_path import AnyPath


def document(path: AnyPath, display_path: str) -> Document:
    """
    Return the document at ``path``.

    :raises ModelFileError: if the path does not exist, cannot be read, or is not a model.
    """
    with opening.without_collection(path), steps.budget(display_path):
        return _document(path, display_path)


def _document(path: AnyPath, display_path: str) -> Document:
    probe = Probe(path, display_path)
    if isinstance(path, RemotePath):
        opening.forget()
    with reading_failures(probe):
        file_format = recognised(probe)
        # taken before reading, to detect a model that is replaced meanwhile
        before = tuple(_identities(probe, file_format)) if isinstance(path, RemotePath) else ()
        read = file_format.read(probe)
        complete = replace(
            read,
            adapted=adapted_values(probe, file_format, read),
            observations=(*read.observations, *ambiguity.observe_ambiguity(probe, file_format)),
        )
        _check_unchanged(probe, file_format, before)
        return complete


def recognised(probe: Probe) -> Format:
    """
    Return the format of a path.

    :raises ModelFileError: if the path is not a model.
    :raises OSError: if the path cannot be read.
    """
    if file_format := format_of(probe):
        return file_format
    if probe.is_directory:
        raise probe.failure(
            "no-model",
            f"is a directory that does not contain a model; {EXPECTED}",
        )
    raise probe.failure(*foreign_file(probe.head))


@contextlib.contextmanager
def reading_failures(probe: Probe) -> Iterator[None]:
    """
    Convert each OSError raised while a path is read into an error message.

    :raises ModelFileError: instead of an OSError.
    """
    path, display_path = probe.path, probe.shown
    try:
        yield
    except FileNotFoundError as error:
        raise ModelFileError(display_path, "not-found", _missing(path)) from error
    except PermissionError as error:
        raise ModelFileError(
            display_path,
            "no-permission",
            "is not readable by the current user; check its permissions",
        ) from error
    except opening.NotRegularError as error:
        if error.filename == str(path):
            raise ModelFileError(
                display_path, "foreign", f"is {error.kind}, not a regular file; {EXPECTED}"
            ) from error
        name = os.path.relpath(error.filename, str(path if probe.is_directory else path.parent))
        raise ModelFileError(
            display_path,
            "not-regular",
            (f"contains {error.kind} instead of the file {name}; replace it with a regular file"),
        ) from error
    except IsADirectoryError as error:
        raise ModelFileError(
            display_path, "foreign", f"is a directory, but should be a file; {EXPECTED}"
        ) from error
    except OSError as error:
        raise ModelFileError(
            display_path, "unreadable", f"cannot be read: {error.strerror or error}"
        ) from error


def _identities(
    probe: Probe, file_format: Format
) -> Iterator[opening.Identity | opening.RemoteIdentity]:
    """
    Yield the identities of the files of a remote model: the file itself, or the files in its
    directory that contain config or weights.
    """
    if file_format.owns is None:
        yield opening.identity(probe.path)
        return
    for name in sorted(probe.names):
        if file_format.owns(Path(name)) and opening.is_file(probe.path / name):
            yield opening.identity(probe.path / name)


def _check_unchanged(
    probe: Probe, file_format: Format, before: tuple[opening.Identity | opening.RemoteIdentity, ...]
) -> None:
    """
    Raise if a remote model was replaced while it was read: its ranges are read one after another,
    and an open file of another machine may change.
    """
    if not isinstance(probe.path, RemotePath):
        return
    opening.forget()
    if before != tuple(_identities(Probe(probe.path, probe.shown), file_format)):
        raise probe.failure("changed", "changed while policytool read it; run the command again")


def _missing(path: AnyPath) -> str:
    """
    Return what to do about a path that is not there; its backup may be, where a replacement was
    interrupted.
    """
    if isinstance(path, RemotePath):
        return "does not exist; check the address"
    from policytool.support.files.atomic import ASIDE  # what writes, for this sentence alone

    backup = path.with_name(f"{path.name}{ASIDE}") if path.name else path
    if not os.path.lexists(path) and os.path.lexists(backup):
        return (
            f"does not exist, but its backup {backup.name} does, because replacing the "
            "original was interrupted; rename the backup to the original name and run the "
            "command again"
        )
    return "does not exist; check the path"


def format_of(probe: Probe) -> Format | None:
    """
    Return the format that recognises a path; None where none does.

    :raises OSError: where it cannot be read.
    """
    return next((candidate for candidate in FORMATS if candidate.recognise(probe)), None)


def is_model(path: AnyPath) -> bool:
    """Return whether some format recognises the path; what cannot be read is none."""
    try:
        return format_of(Probe(path, str(path))) is not None
    except OSError:
        return False


@contextlib.contextmanager
def open_values(path: AnyPath, document: Document) -> Iterator[Values | None]:
    """
    Open the values of the document's variables; None where its format stores none.

    :raises ModelFileError: where a file with values is truncated or damaged where it begins.
    """
    probe = Probe(path, document.path)
    # the document's own format is "weights" for what is stored in several ways
    detected = format_of(probe)
    opener = detected.open_values if detected is not None else None
    with opening.without_collection(path), contextlib.ExitStack() as stack:
        yield opener(probe, document, stack) if opener is not None else None
