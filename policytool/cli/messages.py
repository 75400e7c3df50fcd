"""
How a message reaches stderr: ``error: [PATH: ]problem.[ Suggestion.]`` on one line, with nothing in
it that a terminal or a CI runner would execute: names and values come from strangers.

The progress of a run (:func:`track`, :func:`steps`) goes to stderr too.
"""

from __future__ import annotations

import re
import sys
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


_COMMAND: Final = "run: policytool "

_VERBOSE: Final = frozenset({"-v", "--verbose"})


def is_verbose(words: Iterable[str]) -> bool:
    """Return whether the arguments of a command line enable tracebacks."""
    return not _VERBOSE.isdisjoint(words)


def error(text: str, *, path: str = "", code: str = "") -> None:
    """Print an error on stderr; ``text`` may be a predicate of the path, as in "is truncated"."""
    message = (
        f"{path}: {_sentences(text.removeprefix('is '))}" if path else _capital(_sentences(text))
    )
    click.echo(escape(f"error: {message}{f' [{code}]' if code else ''}"), err=True)


def warning(text: str) -> None:
    """Print a warning on stderr."""
    click.echo(escape(f"warning: {_capital(_sentences(text))}"), err=True)


def note(text: str) -> None:
    """Print a note on stderr."""
    click.echo(escape(f"note: {_capital(_sentences(text))}"), err=True)


def notes(sentences: Iterable[str], *, verbose: bool | None) -> None:
    """Print notes, unless ``verbose`` is False, which is ``-q``."""
    for sentence in sentences if verbose is not False else ():
        note(sentence)


def warnings(sentences: Iterable[str], *, verbose: bool | None) -> None:
    """Print warnings, unless ``verbose`` is False, which is ``-q``."""
    for sentence in sentences if verbose is not False else ():
        warning(sentence)


def escape(text: str) -> str:
    """
    Return text on one line, without control characters, commands of a CI runner, and credentials in
    URLs.
    """
    from policytool.reports.layout import clean  # which --version and --help do not need
    from policytool.support.files.remote_path import redacted

    return clean(redacted(text))


_PARTS = re.compile(r"(\([^()]*\)|`[^`]*`|'[^']*'(?!\w)|\"[^\"]*\")")
"""Parts of a message in which a semicolon does not separate sentences."""


def _sentences(text: str) -> str:
    """Return a message with a sentence for each part between semicolons, with a full stop."""
    parts = [""]
    for position, piece in enumerate(_PARTS.split(text)):
        first, *others = [piece] if position % 2 else piece.split("; ")
        parts[-1] += first
        parts += others
    joined = ". ".join([parts[0], *(_capital(part) for part in parts[1:])])
    ends_in_command = _COMMAND in joined  # which a shell takes as it is
    return joined if ends_in_command or joined.endswith((".", "?", "!")) else f"{joined}."


def _capital(text: str) -> str:
    """Return text with a capital letter, unless its first word is a name."""
    word = re.match(r"[a-z]+(?=[ ,:])", text)
    return text if word is None or word[0] == "policytool" else text[0].upper() + text[1:]


Item = TypeVar("Item")
MANY: Final = 20
"""The minimum number of files for a progress bar; fewer are processed too fast to read it."""


def track(items: Iterable[Item], total: int, what: str, *, verbose: bool | None) -> Iterator[Item]:
    """
    Yield the items, with a bar on stderr if it is a terminal and there are many items, or any with
    ``verbose``; ``verbose`` is False for none.
    """
    minimum = 1 if verbose else MANY
    if verbose is False or total < minimum or not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console  # 30 ms, only where a bar is shown
    from rich.progress import track

    every = iter(items)
    # The first item comes before the bar has a thread: a copy of this process would not have the
    # thread (policytool.support.processes.crash_guard).
    first = list(islice(every, 1))
    yield from track(
        chain(first, every),
        description=what,
        total=total,
        console=Console(stderr=True),
        transient=True,
    )


def noting(*, verbose: bool | None) -> Callable[[str], None]:
    """Return a function that prints a note, unless ``verbose`` is False, which is ``-q``."""
    return note if verbose is not False else lambda _: None


def steps(*, verbose: bool | None) -> Callable[[str], None]:
    """
    Return a function that prints a step of a long job. On a terminal, a step replaces the previous
    one; elsewhere, each step is a line if ``verbose``. If ``verbose`` is False, it prints nothing.
    """
    if verbose is False or not (verbose or sys.stderr.isatty()):
        return lambda _: None
    end = "" if sys.stderr.isatty() else "\n"
    start = "\r\x1b[K" if sys.stderr.isatty() else ""

    def show(step: str) -> None:
        sys.stderr.write(f"{start}policytool: {escape(step)}{end}" if step else start)
        sys.stderr.flush()

    return show


def left_out(count: int, inputs: Iterable[object], *, weights: bool = False) -> str:
    """
    Return a sentence with the number of files that were skipped because they are not models, and
    the number of models of other libraries among them.

    :param inputs: the inputs of the run
    :param weights: whether files that contain only weights were skipped as well
    """
    from policytool.formats import other_models  # only if files were skipped
    from policytool.formats.discovery import Input

    files = "file that is not a model" if count == 1 else "files that are not models"
    only = "contains only weights" if count == 1 else "contain only weights"
    counts = other_models.counts_by_format(
        entry.path
        for entry in inputs
        if isinstance(entry, Input) and not entry.exact and isinstance(entry.path, Path)
    )
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    kinds = ", ".join(f"{number:,} {name}" for name, number in ordered)
    others = f" ({kinds})" if kinds else ""
    return f"skipped {count:,} {files}{f' or {only}' if weights else ''}{others}"
