"""``policytool explain``."""

from __future__ import annotations

import codecs
import sys
from typing import TYPE_CHECKING

import click

from policytool.cli import messages, options
from policytool.cli.arguments import ReferenceArguments
from policytool.cli.command import declare_command
from policytool.cli.declared_options import Positional
from policytool.cli.exit_codes import Exit
from policytool.commands.arguments.reading import ExplainArguments
from policytool.reports.explanations import EXPLANATION_REPORTERS, PAGE
from policytool.support import project
from policytool.support.errors import UsageError
from policytool.support.limits import MESSAGE_BYTES
from policytool.troubleshooting.matching import explain_text

if TYPE_CHECKING:
    from typing import BinaryIO


@declare_command(
    "explain",
    ExplainArguments,
    ReferenceArguments,
    positional=[
        Positional(
            "text",
            "A message or a whole traceback, or - to read it from stdin.",
            nargs=-1,
            required=True,
            metavar="TEXT...|-",
        )
    ],
    changes={
        "format": {"type": click.Choice([reporter.name for reporter in EXPLANATION_REPORTERS])}
    },
)
def command(
    _arguments: ExplainArguments, terminal: ReferenceArguments, *, text: tuple[str, ...]
) -> int:
    """
    Find the cause of an error message of Keras or TensorFlow, and how to fix it.

    TEXT is a message or a whole traceback, or - to read it from stdin. Shows at most 3 entries, the
    most likely first.
    """
    explanation = explain_text(_read_stdin() if text == ("-",) else " ".join(text))
    (reporter,) = (
        candidate for candidate in EXPLANATION_REPORTERS if candidate.name == terminal.format
    )
    click.echo(
        reporter.render(explanation, options.view(terminal.color)),
        nl=False,
        color=terminal.color != "never",
    )
    if not explanation.matches:
        messages.error(f"no known error message matches; see {project.page(PAGE)} for the list")
        return Exit.NO_MODEL
    return Exit.CLEAN


def _read_stdin() -> str:
    """
    Return the text on stdin, however long it takes to end: a program may still run.

    :raises UsageError: if it is too long or cannot be read
    """
    if sys.stdin is None:
        raise UsageError("stdin is closed, so - cannot read an error message from it")
    stream: BinaryIO = sys.stdin.buffer
    try:
        data = stream.read(MESSAGE_BYTES.value + 1)
    except OSError as error:
        raise UsageError(
            f"cannot read the error message from stdin: {error.strerror or error}"
        ) from error
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # as PowerShell writes it
        return data.decode("utf-16", "replace")
    return data.decode("utf-8-sig", "replace")
