"""Options that every command has, and how the terminal's abilities are found."""

from __future__ import annotations

import functools
import os
import re
import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from policytool.cli import completion, messages, settings
from policytool.cli.exit_codes import Exit
from policytool.cli.local_paths import LocalPath
from policytool.reports.layout import View, clean
from policytool.support import limits
from policytool.support.errors import UsageError
from policytool.support.files import opening

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from policytool.commands.inspect import Failure
    from policytool.formats.discovery import Input
    from policytool.support.limits import Limit

PIPE_WIDTH: Final = 120
"""What a report that goes to no terminal is laid out for, unless COLUMNS says otherwise."""


class Size(click.ParamType):  # type: ignore[type-arg]  # generic from Click 8.3 on alone
    """A number of bytes: ``8G``, ``512M``, ``100000``."""

    name = "size"
    _units: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}

    def convert(
        self, value: object, parameter: click.Parameter | None, context: click.Context | None
    ) -> int:
        """Return the bytes that a text says."""
        match = re.fullmatch(r"([0-9]{1,15})([KMGT]?)(?:i?B)?", str(value).strip(), re.IGNORECASE)
        if match is None or not int(match[1]):
            self.fail(
                (
                    f"{value!r} is not a size; expected a number followed by K, M, G or T, such "
                    "as 8G"
                ),
                parameter,
                context,
            )
        return int(match[1]) * self._units[match[2].upper()]


def common(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options of commands that read models, which mean the same in each."""
    return _with_options(function, (*_LOUDNESS, _DEBUG, _COLOR, _PROGRESS, *_SETTINGS))


def common_without_progress(function: Callable[..., int]) -> Callable[..., int]:
    """Add the same options, but for that of a bar that the command does not have."""
    return _with_options(function, (*_LOUDNESS, _DEBUG, _COLOR, *_SETTINGS))


def display(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options of commands that read no models."""
    return _with_options(function, (_DEBUG, _COLOR, *_SETTINGS))


def _with_options(
    function: Callable[..., int], added: Sequence[Callable[..., Any]]
) -> Callable[..., int]:
    @functools.wraps(function)
    def command(*, show_settings: bool, **arguments: Any) -> int:  # noqa: ANN401  # a command's own arguments
        if show_settings:
            settings.print_all(click.get_current_context())
            return Exit.CLEAN
        return function(**arguments)

    for option in reversed(added):
        command = option(command)
    return command


_LOUDNESS: Final = (
    click.option("-v", "--verbose", is_flag=True, help="Print more messages on stderr."),
    click.option("-q", "--quiet", is_flag=True, help="Print only errors on stderr."),
)
_DEBUG: Final = click.option(
    "--debug", is_flag=True, help="Show a traceback for unexpected errors."
)
_COLOR: Final = click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    envvar="POLICYTOOL_COLOR",
    help="When to use colors; NO_COLOR disables them.",
)
_PROGRESS: Final = click.option(
    "--progress",
    type=click.Choice(["auto", "on", "off"]),
    default="auto",
    show_default=True,
    envvar="POLICYTOOL_PROGRESS",
    help="When to show progress on stderr.",
)
_SETTINGS: Final = (
    click.option(
        "--config",
        type=LocalPath(),
        is_eager=True,
        expose_value=False,
        callback=settings.load,
        envvar="POLICYTOOL_CONFIG",
        help="Use this settings file instead of the nearest policytool.toml.",
    ),
    click.option("--show-settings", is_flag=True, help="Print the settings in effect and exit."),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    """What ``--limit`` says."""

    limit: Limit
    value: int

    def toml(self) -> str:
        """As a settings file has it."""
        return f'"{self.limit.name}={self.limit.amount(self.value, gap="")}"'


class BoundOption(click.ParamType):  # type: ignore[type-arg]  # generic from Click 8.3 on alone
    """``NAME=VALUE``: a limit, and the bytes or the number that it is to be."""

    name = "limit"

    def convert(
        self, value: object, parameter: click.Parameter | None, context: click.Context | None
    ) -> Bound:
        """Return what a text says."""
        if isinstance(value, Bound):
            return value
        name, equals, text = str(value).strip().partition("=")
        if not equals:
            self.fail(
                f"{value!r} does not have the form NAME=VALUE; `policytool limits` lists the names",
                parameter,
                context,
            )
        limit = limits.limit_from_name(name)
        if limit.unit == limits.BYTES:
            return Bound(limit=limit, value=limit.check(Size().convert(text, parameter, context)))
        if not re.fullmatch(r"[0-9]{1,18}", text):
            self.fail(f"{text!r} is not a number of {limit.unit}", parameter, context)
        return Bound(limit=limit, value=limit.check(int(text)))


def limit_option(function: Callable[..., int]) -> Callable[..., int]:
    """
    Add the option of commands that read models, and let its bounds count as long as the command
    runs.
    """

    @click.option(
        "--limit",
        type=BoundOption(),
        multiple=True,
        metavar="NAME=VALUE",
        envvar="POLICYTOOL_LIMIT",
        shell_complete=completion.limits,
        help="Raise a limit, such as json-bytes=1GiB; `policytool limits` lists all limits.",
    )
    @functools.wraps(function)
    def command(*, limit: tuple[Bound, ...], **arguments: Any) -> int:  # noqa: ANN401  # a command's own arguments
        with limits.override({one.limit.name: one.value for one in limit}):
            return function(**arguments)

    return command


def jobs(verb: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Return the option of commands that read or rewrite many files, each on its own."""
    return click.option(
        "--jobs",
        type=click.IntRange(min=1),
        metavar="N",
        envvar="POLICYTOOL_JOBS",
        callback=_bound_jobs,
        show_default="one per CPU if there are several files",
        help=f"Number of processes that {verb} files.",
    )


def _bound_jobs(
    _context: click.Context, _parameter: click.Parameter, value: int | None
) -> int | None:
    """
    Return how many processes there may be: as many as processors, if a file that nobody named says
    how many.
    """
    if value is None or settings.found_source("jobs") is None:
        return value
    from policytool.commands.batch import parallel

    return min(value, parallel.processors())


scheduler: Final = click.option(
    "--scheduler",
    metavar="ADDRESS",
    envvar="POLICYTOOL_SCHEDULER",
    help="Process the models on the workers of this Dask scheduler, such as tcp://10.0.0.5:8786, "
    "instead of --jobs processes.",
)


def format_option(names: Sequence[str]) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """
    Return the option that says which of a command's reports stdout carries; the first is the
    default.
    """
    return click.option(
        "--format",
        "format",
        type=click.Choice(names),
        default=names[0],
        show_default=True,
        envvar="POLICYTOOL_FORMAT",
        help="Output format.",
    )


def view(color: str, *, variables: bool = False, suppressed: bool = True) -> View:
    """Return how reports on stdout are to be shown."""
    return View(
        width=width(),
        colour=wants_colour(color, sys.stdout),
        unicode=can_draw(sys.stdout),
        variables=variables,
        suppressed=suppressed,
    )


def width() -> int:
    """Return the columns that stdout has."""
    return (
        shutil.get_terminal_size((PIPE_WIDTH, 24)).columns
        if sys.stdout.isatty() or os.environ.get("COLUMNS")
        else PIPE_WIDTH
    )


def wants_colour(color: str, stream: TextIO) -> bool:
    """
    Return whether to colour what goes to ``stream``; NO_COLOR (no-color.org) counts when it is not
    empty.
    """
    if color != "auto":
        return color == "always"
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def can_draw(stream: TextIO) -> bool:
    """Return whether the stream's encoding has box characters."""
    try:
        "─│├└…·→".encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def inputs(paths: tuple[str, ...], *, null: bool, remote: bool = False) -> list[Input]:
    """
    Return the inputs that the paths mean; without any, every model below the working directory.

    :param remote: whether the command reads URLs
    :raises UsageError: for what can be no path.
    """
    from policytool.formats import discovery  # the formats with it, which not every command reads

    every = list(expand_stdin(paths, null=null))
    return (
        list(discovery.inputs(every, remote=remote)) if every or not paths else []
    )  # an empty list on stdin means no file, not every file


def troubles(failures: Iterable[Failure], unwritten: Iterable[str] = ()) -> None:
    """
    Say on stderr what could not be read, with its details for ``--debug``, and which reports could
    not be written.
    """
    words = click.get_current_context().find_root().obj or ()
    for failure in failures:
        messages.error(failure.message, path=failure.path, code=failure.code)
        if "--debug" in words and failure.details:
            click.echo("\n".join(clean(line) for line in failure.details.splitlines()), err=True)
    for sentence in unwritten:
        messages.error(sentence)


def about_hdf5(*, verbose: bool, quiet: bool) -> None:
    """
    Say on stderr which published defects the HDF5 library has: with -v, and where this process has
    used one that a newer h5py would replace.
    """
    if quiet or not (verbose or "h5py" in sys.modules):
        return
    from policytool.formats.hdf5 import defects as _hdf5_defects

    version = _hdf5_defects.installed_version()
    if (verbose or _hdf5_defects.is_below_floor(version)) and (
        sentence := _hdf5_defects.warning(version)
    ):
        messages.warning(sentence)


def expand_stdin(paths: tuple[str, ...], *, null: bool) -> Iterator[str]:
    """Yield the paths, with ``-`` replaced by the list on stdin, whose items are never options."""
    for path in paths:
        if path == "-":
            text = _listed_text().decode("utf-8", "surrogateescape")
            # str.splitlines also splits at other characters, which names of files may contain.
            lines = (line.removesuffix("\r") for line in text.split("\n"))
            yield from filter(None, text.split("\0") if null else lines)
        else:
            yield path


def _listed_text() -> bytes:
    """
    Return the list of paths on stdin.

    :raises UsageError: for one that is too long, or does not end in time.
    """
    if sys.stdin is None:
        raise UsageError("stdin is closed, so - cannot read paths from it")
    try:
        return opening.read_stream(sys.stdin.buffer, limits.LIST_BYTES)
    except OSError as error:
        raise UsageError(
            f"cannot read the list of paths from stdin: {error.strerror or error}"
        ) from error
