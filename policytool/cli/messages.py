"""
How a message reaches stderr: ``error: [PATH: ]problem.[ Suggestion.]`` on one line, with nothing in
it that a terminal or a CI runner would execute: names and values come from strangers.
"""

from __future__ import annotations

import re
from typing import Final

import click

_COMMAND: Final = "run: policytool "


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
    """Print on stderr what is neither an error nor a warning."""
    click.echo(escape(f"note: {_capital(_sentences(text))}"), err=True)


def escape(text: str) -> str:
    """
    Return text on one line, without control characters, commands of a CI runner, and credentials in
    URLs.
    """
    from policytool.reports.layout import clean  # which --version and --help do not need
    from policytool.support.files.remote_path import redacted

    return clean(redacted(text))


_PARTS = re.compile(r"(\([^()]*\)|`[^`]*`|'[^']*'(?!\w)|\"[^\"]*\")")
"""Pieces of a message in which a semicolon separates no sentences."""


def _sentences(text: str) -> str:
    """Return a message whose parts a semicolon separates as sentences, with a full stop."""
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
