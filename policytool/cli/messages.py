"""
How a sentence reaches stderr: on one line, with nothing in it that a terminal or a CI runner obeys,
whoever chose the names and values in it.
"""

from __future__ import annotations

import click


def say(sentence: str) -> None:
    """Print a sentence on stderr, after the tool's name."""
    click.echo(f"policytool: {escape(sentence)}", err=True)


def escape(text: str) -> str:
    """Return text on one line, without control characters and commands of a CI runner."""
    from policytool.reports.layout import clean  # which --version and --help do not need

    return clean(text)
