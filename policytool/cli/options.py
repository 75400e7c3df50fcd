"""
Functions of all commands: inputs, the properties of the terminal, messages on stderr, and reports.

``--format`` selects the report on stdout, and with ``FORMAT=FILE`` additional reports. Each is
written to a file, completely or not at all, or to a directory whose index is written last. Problems
with a FILE are reported before any model is read or rewritten. Files are written before stdout, so
that a pipe that closes early does not affect them. Their layout is that of a pipe, in UTF-8 and
without colour.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TextIO, TypeVar

import click

from policytool.cli import messages, settings
from policytool.cli.declared_options import STDOUT_IS_RESERVED, FormatType
from policytool.commands.inspect import is_passed_over
from policytool.formats import discovery, format_detection
from policytool.formats.discovery import Input, display_path
from policytool.reports.layout import View, clean
from policytool.reports.page import INDEX
from policytool.reports.reporter import BinaryReporter
from policytool.support import limits
from policytool.support.errors import ModelFileError, ReportError, UsageError
from policytool.support.files import opening
from policytool.support.processes import interrupts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from policytool.cli.arguments import ReportArguments
    from policytool.cli.declared_options import ReportFile
    from policytool.commands.inspect import Failure
    from policytool.support.files.remote_path import AnyPath

PIPE_WIDTH: Final = 120
"""The width of reports that are not printed on a terminal, unless COLUMNS is set."""


def terminal_view(*, variables: bool = False, suppressed: bool = True) -> View:
    """Return the display options of reports on stdout."""
    return View(
        width=width(),
        colour=wants_colour(sys.stdout),
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


def wants_colour(stream: TextIO) -> bool:
    """
    Return whether to colour text on ``stream``.

    NO_COLOR (no-color.org) and FORCE_COLOR (force-color.org) apply if they are not empty, and
    NO_COLOR applies first, as in Python itself.
    """
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (
        stream.isatty() and os.environ.get("TERM") != "dumb"
    )


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


Value_contra = TypeVar("Value_contra", contravariant=True)

_PAGE: Final = re.compile(r"[/\\](?:index|\d{4,}-[^/\\]*)\.html\Z")
_OWN: Final = re.compile(
    rb'\{"(?:version": \d+, "tool": \{"name": "policytool"|\$schema": "\S+/sarif-)'
)
"""
The start of a JSON report of policytool. Parsing the report of an earlier run, which is replaced,
would need much more memory than writing the new one.
"""

_OWN_LENGTH: Final = 100


class Renders(Protocol[Value_contra]):
    """A reporter for the results of any command."""

    @property
    def name(self) -> str:
        """The FORMAT of the reporter."""

    @property
    def render(self) -> Callable[[Value_contra, View], str | bytes]:
        """The function that returns the text, or the bytes of a format that is not text."""

    @property
    def pieces(self) -> Callable[[Value_contra, View], Iterable[str | bytes]] | None:
        """The function that returns the report in pieces; None if the report has no pieces."""

    @property
    def render_directory(self) -> Callable[[Value_contra, View], Mapping[str, str]] | None:
        """The function that returns the texts of a directory; None if there is only one file."""


def attributes(
    reporters: Sequence[Renders[Any]], on_stdout: Sequence[str] = ()
) -> dict[str, dict[str, Any]]:
    """
    Return the Click attributes of ``--format`` for a command with these reporters.

    :param on_stdout: additional formats, which only stdout supports
    """
    formats = [reporter.name for reporter in reporters]
    directories = [reporter.name for reporter in reporters if reporter.render_directory]
    names = [*formats, *on_stdout]
    text = (
        f"Print the report as {', '.join(names[:-1])} or {names[-1]}. FORMAT=FILE also writes a "
        "report to FILE, and can be repeated."
    )
    if directories:
        text += " html=DIR/ writes an index and a page for each model."
    return {
        "format": {
            "type": FormatType(formats, directories, names),
            "callback": _without_duplicates,
            "help": text,
        }
    }


def check(
    files: Iterable[ReportFile], inputs: Iterable[Input], others: Iterable[AnyPath] = ()
) -> None:
    """
    Check, before any other work, that each report can be written to its path.

    :raises UsageError: if a report would replace an input, one of ``others``, a model, or the file
        that stdout is redirected to.
    :raises ReportError: if its directory does not exist, or its path is a directory.
    """
    file = settings.file_in_effect()
    needed = [
        *named_files(inputs),
        *(path for path in others if isinstance(path, Path)),
        *([file] if file is not None else []),
    ]
    for report in files:
        if report.is_directory:
            _check_directory(f"--format {report}", report.path, needed)
        else:
            check_place(f"--format {report}", report.path, needed)


def named_files(inputs: Iterable[Input]) -> list[Path]:
    """Return the local files and directories that a user named."""
    return [path for source in inputs if source.exact and isinstance(path := source.path, Path)]


def _check_directory(option: str, path: Path, needed: Sequence[Path]) -> None:
    """
    Check that files can be written to a directory that exists or can be created.

    :raises UsageError: if it is a model or part of a model, or if a page would replace a needed
        file.
    :raises ReportError: if it is a file, or if its parent directory does not exist.
    """
    real = os.path.realpath(path)
    needed_paths = [os.path.realpath(other) for other in needed]
    if _is_model(path) or real in needed_paths:
        raise UsageError(f"{option} would write into a model; specify another directory")
    if any(os.path.dirname(place) == real and _PAGE.search(place) for place in needed_paths):  # noqa: PTH120  # of texts
        raise UsageError(
            f"{option} would replace a file that this command reads or writes; specify another "
            "directory"
        )
    if os.path.lexists(path) and not os.path.isdir(path):  # noqa: PTH112  # which raises nothing
        raise ReportError(f"{option} is not a directory; specify another one")
    if os.path.isdir(path):  # noqa: PTH112
        check_place(option, path / INDEX, ())
    elif not os.path.isdir(path.parent):  # noqa: PTH112
        raise ReportError(f"{option}: no such directory; create {display_path(path.parent)} first")


def check_place(option: str, path: Path, needed: Iterable[Path]) -> None:
    """
    Check that a text can be written to a file.

    :raises UsageError: if it would replace a needed file, a model, or the file to which stdout is
        redirected.
    :raises ReportError: if its directory does not exist, or if the path is a directory.
    """
    if os.path.realpath(path) in {os.path.realpath(other) for other in needed}:
        raise UsageError(
            f"{option} would replace a file that this command reads or writes; specify another file"
        )
    if _is_stdout(path):
        raise UsageError(f"{option}: {STDOUT_IS_RESERVED}")
    if _is_model(path):
        raise UsageError(f"{option} would replace a model or part of a model; specify another file")
    if os.path.isdir(path):  # noqa: PTH112  # which raises nothing
        raise ReportError(f"{option} is a directory; specify a file in it")
    if not os.path.isdir(path.parent):  # noqa: PTH112
        raise ReportError(f"{option}: no such directory; create {display_path(path.parent)} first")


def check_binary(
    files: Iterable[ReportFile], reporters: Sequence[Renders[Any]], on_stdout: str | None
) -> None:
    """
    Check that binary reports can be written, and that stdout is not a terminal for them.

    :param on_stdout: the format of stdout; None if stdout has no report
    :raises UsageError: if a binary report would be printed to a terminal.
    :raises MissingPackageError: if a required package is not installed.
    """
    names = {on_stdout, *(report.format for report in files)}
    for reporter in reporters:
        if isinstance(reporter, BinaryReporter) and reporter.name in names:
            if reporter.name == on_stdout and sys.stdout.isatty():
                raise UsageError(
                    f"--format {on_stdout} is binary and cannot be printed to a terminal; use "
                    f"--format {on_stdout}=FILE"
                )
            reporter.check()


def write_reports(
    files: Iterable[ReportFile],
    reporters: Sequence[Renders[Value_contra]],
    report_data: Value_contra,
    *,
    variables: bool = False,
    suppressed: bool = True,
) -> list[str]:
    """
    Write each report completely or not at all, and return an error message for each report that
    could not be written.
    """
    view = View(width=PIPE_WIDTH, variables=variables, suppressed=suppressed)
    failed = []
    for report in files:
        option = f"--format {report}"
        reporter = _reporter(reporters, report.format)
        if report.is_directory and reporter.render_directory is not None:
            failed += _write_directory(
                option, report.path, reporter.render_directory(report_data, view)
            )
        else:
            failed += _write_pieces(option, report.path, _pieces(reporter, report_data, view))
    return failed


def _write_directory(option: str, path: Path, texts: Mapping[str, str]) -> list[str]:
    """
    Write the files of a directory, and return a sentence for the first failure.

    A link in the directory is replaced, because the user did not choose the names.
    """
    if _is_model(path):  # a migration may have made it one
        return [f"{option} was not written because it would write into a model"]
    for name, text in texts.items():
        try:
            path.mkdir(exist_ok=True)
            if (path / name).is_symlink():
                (path / name).unlink()
        except OSError as error:
            return [clean(f"{option}: {name} could not be written: {error.strerror or error}")]
        if failed := write_text(f"{option}: {name}", path / name, text):
            return failed
    return []


def publish(
    terminal: ReportArguments,
    reporters: Sequence[Renders[Value_contra]],
    report_data: Value_contra,
    failures: Iterable[Failure] = (),
    *,
    variables: bool = False,
) -> list[str]:
    """
    Write the reports in files, print the one on stdout, and then print the failures. Return an
    error message, which is printed too, for each report that could not be written.
    """
    unwritten = write_reports(terminal.report_files, reporters, report_data, variables=variables)
    view = terminal_view(variables=variables)
    print_report(reporters, terminal.stdout_format, report_data, view)
    print_errors(failures, unwritten)
    return unwritten


def print_report(
    reporters: Sequence[Renders[Value_contra]],
    name: str,
    report_data: Value_contra,
    view: View,
) -> None:
    """Print the report in the named format; a termination signal is deferred until it ends."""
    with interrupts.defer_interrupts():
        for piece in _pieces(_reporter(reporters, name), report_data, view):
            click.echo(piece, nl=False, color=True)  # flushes each piece


def _pieces(
    reporter: Renders[Value_contra], report_data: Value_contra, view: View
) -> Iterable[str | bytes]:
    """Return a report in pieces; in one piece if its reporter creates it as a whole."""
    if reporter.pieces is not None:
        return reporter.pieces(report_data, view)
    return (reporter.render(report_data, view),)


def _reporter(reporters: Sequence[Renders[Value_contra]], name: str) -> Renders[Value_contra]:
    return next(reporter for reporter in reporters if reporter.name == name)


def write_text(option: str, path: Path, text: str) -> list[str]:
    """Write a text completely or not at all, and return a sentence if that failed."""
    return _write_pieces(option, path, (text,))


def _write_pieces(option: str, path: Path, pieces: Iterable[str | bytes]) -> list[str]:
    """Write all pieces or none, and return a sentence if that failed."""

    def refuse_model() -> None:
        if _is_model(path):  # a migration, or someone else, may have made it one
            raise ReportError(f"{option} was not written because it would replace a model")

    try:
        _write(path, map(_encoded, pieces), refuse_model)
    except ReportError as error:
        return [clean(str(error))]
    except OSError as error:
        return [clean(f"{option} could not be written: {error.strerror or error}")]
    return []


def _without_duplicates(
    _context: click.Context, _parameter: click.Parameter, reports: tuple[str | ReportFile, ...]
) -> tuple[str | ReportFile, ...]:
    """
    Return the reports.

    :raises click.BadParameter: if two reports are for stdout, or for the same file.
    """
    printed = [report for report in reports if isinstance(report, str)]
    if len(printed) > 1:
        raise click.BadParameter(
            f"{printed[0]} and {printed[1]} would both go to stdout; write one of them to a file, "
            f"such as {printed[1]}=FILE."
        )
    files = [report for report in reports if not isinstance(report, str)]
    seen = set[str]()
    for report in files:
        place = os.path.realpath(report.path)
        if place in seen:
            raise click.BadParameter(
                f"{str(report.path)!r} is specified twice; write each report to a separate file."
            )
        seen.add(place)
    directories = {os.path.realpath(report.path) for report in files if report.is_directory}
    for report in files:
        if os.path.dirname(os.path.realpath(report.path)) in directories:  # noqa: PTH120  # of a text
            raise click.BadParameter(
                f"{str(report.path)!r} is in the directory of another report; specify another path."
            )
    return reports


def _is_stdout(path: Path) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(sys.stdout.fileno()))
    except (OSError, ValueError):  # the file does not exist yet, or stdout is not a file
        return False


def _is_model(path: Path) -> bool:
    """Return whether a report at this path would replace or damage a model."""
    real = Path(os.path.realpath(path))
    if discovery.containing_model(real) != real:
        return True
    if not os.path.isfile(real):  # noqa: PTH113  # which raises nothing
        return os.path.isdir(real) and format_detection.is_model(real)  # noqa: PTH112
    if _is_own_report(real):
        return False
    try:
        from policytool.formats.tfjs import is_shard  # only where a report may replace one

        if is_shard(real):
            return True
        format_detection.document(real, display_path(real))
    except ModelFileError as error:
        return not is_passed_over(Input(path=real, exact=False), error)
    return True


def _encoded(piece: str | bytes) -> bytes:
    return piece if isinstance(piece, bytes) else piece.encode("utf-8", "backslashreplace")


def _is_own_report(path: Path) -> bool:
    try:
        return _OWN.match(opening.read_head(path, _OWN_LENGTH)) is not None
    except OSError:  # others say so
        return False


def _write(path: Path, pieces: Iterable[bytes], check: Callable[[], None]) -> None:
    """
    Replace the content of a file atomically, after a last check. Links are kept, and files that are
    not regular (a pipe, ``/dev/null``) are written directly.

    :raises OSError: if the system fails; the file is then unchanged.
    """
    if path.exists() and not path.is_file():  # by this name, because that of a pipe leads nowhere
        opening.write_stream(path, pieces)
        return
    target = Path(os.path.realpath(path))
    # hashlib, random and socket, only where a file is written
    from policytool.support.files.atomic import Draft, remove_stale

    remove_stale(target.parent)
    with Draft.beside(target) as draft:
        with draft.path.open("wb") as file:
            file.writelines(pieces)
        like = target if target.exists() else None
        draft.publish(target, like=like, overwrite=True, check=check)
