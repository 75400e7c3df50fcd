"""Functions for all commands: inputs, the properties of the terminal, and messages on stderr."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, Final, TextIO

import click

from policytool.cli import messages
from policytool.reports.layout import View, clean
from policytool.support import limits
from policytool.support.errors import UsageError
from policytool.support.files import opening

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from policytool.commands.inspect import Failure
    from policytool.formats.discovery import Input

PIPE_WIDTH: Final = 120
"""The width of reports that are not printed on a terminal, unless COLUMNS is set."""


def terminal_view(color: str, *, variables: bool = False, suppressed: bool = True) -> View:
    """Return the display options of reports on stdout."""
    return View(
        width=width(),
        colour=wants_colour(color, sys.stdout),
        unicode=can_draw(sys.stdout),
        variables=variables,
        suppressed=suppressed,
    )


def width() -> int:
    """Return the width of stdout in columns."""
    return (
        shutil.get_terminal_size((PIPE_WIDTH, 24)).columns
        if sys.stdout.isatty() or os.environ.get("COLUMNS")
        else PIPE_WIDTH
    )


def wants_colour(color: str, stream: TextIO) -> bool:
    """
    Return whether to colour text on ``stream``; NO_COLOR (no-color.org) applies if it is not empty.
    """
    if color != "auto":
        return color == "always"
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def can_draw(stream: TextIO) -> bool:
    """Return whether the encoding of the stream supports box characters."""
    try:
        "─│├└…·→".encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def expand_inputs(paths: tuple[str, ...], *, remote: bool = False) -> list[Input]:
    """
    Return the inputs for paths; without paths, all models below the working directory.

    :param remote: whether the command reads URLs
    :raises UsageError: if a text cannot be a path.
    """
    from policytool.formats import discovery  # the formats with it, which not every command reads

    every = list(expand_stdin(paths))
    return (
        list(discovery.inputs(every, remote=remote)) if every or not paths else []
    )  # an empty list on stdin means no file, not every file


def print_errors(failures: Iterable[Failure], unwritten: Iterable[str] = ()) -> None:
    """
    Print on stderr the files that could not be read, with details for ``-v``, and the reports that
    could not be written.
    """
    words = click.get_current_context().find_root().obj or ()
    for failure in failures:
        messages.error(failure.message, path=failure.path, code=failure.code)
        if messages.is_verbose(words) and failure.details:
            click.echo("\n".join(clean(line) for line in failure.details.splitlines()), err=True)
    for sentence in unwritten:
        messages.error(sentence)


def about_hdf5(*, verbose: bool | None) -> None:
    """
    Print on stderr the published defects of the HDF5 library, with -v, or if this process used a
    library that a newer h5py would replace.
    """
    if verbose is False or not (verbose or "h5py" in sys.modules):
        return
    from policytool.formats import hdf5 as _hdf5_defects

    version = _hdf5_defects.installed_version()
    if (verbose or _hdf5_defects.is_below_floor(version)) and (
        sentence := _hdf5_defects.defects_warning(version)
    ):
        messages.warning(sentence)


def expand_stdin(paths: tuple[str, ...]) -> Iterator[str]:
    """
    Yield the paths, with ``-`` replaced by the list on stdin, whose items are never options.

    NUL separates the items of a list that contains one, because no path does; otherwise, newlines.
    """
    for path in paths:
        if path == "-":
            text = _listed_text().decode("utf-8", "surrogateescape")
            # str.splitlines also splits at other characters, which names of files may contain.
            lines = (line.removesuffix("\r") for line in text.split("\n"))
            yield from filter(None, text.split("\0") if "\0" in text else lines)
        else:
            yield path


def _listed_text() -> bytes:
    """
    Return the list of paths on stdin.

    :raises UsageError: if the list is too long, or does not end in time.
    """
    if sys.stdin is None:
        raise UsageError("stdin is closed, so - cannot read paths from it")
    try:
        return opening.read_stream(sys.stdin.buffer, limits.LIST_BYTES)
    except OSError as error:
        raise UsageError(
            f"cannot read the list of paths from stdin: {error.strerror or error}"
        ) from error
