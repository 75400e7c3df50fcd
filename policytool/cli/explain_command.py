"""``policytool explain``."""

from __future__ import annotations

import codecs
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from policytool.cli import completion, messages, options
from policytool.cli.arguments import ReportArguments
from policytool.cli.command import declare_command
from policytool.cli.declared_options import Positional
from policytool.cli.exit_codes import Exit
from policytool.commands.arguments.reading import ExplainArguments
from policytool.commands.explain import explain
from policytool.reports.explanations import EXPLANATION_REPORTERS, PAGE
from policytool.support import project
from policytool.support.errors import UsageError
from policytool.support.files import opening
from policytool.support.limits import MESSAGE_BYTES

if TYPE_CHECKING:
    from typing import BinaryIO


@declare_command(
    "explain",
    ExplainArguments,
    ReportArguments,
    positional=[
        Positional(
            "text",
            "A topic: the ID or the name of a rule, a policy, a limit, a release, or one of the "
            "lists rules, policies, limits and releases; or a text file with a message or a whole "
            "traceback; or the message itself. - reads it from stdin, which is the default for a "
            "pipe.",
            nargs=-1,
            metavar="[TOPIC|FILE|TEXT...|-]",
            shell_complete=completion.topics,
        )
    ],
    changes=options.attributes(EXPLANATION_REPORTERS),
)
def command(
    arguments: ExplainArguments, terminal: ReportArguments, *, text: tuple[str, ...]
) -> int:
    """
    Find the cause of an error message of Keras or TensorFlow and how to fix it, or explain a topic.

    Shows at most 3 entries for a message, the most likely first. The commands name the model
    and the release of a traceback. With --model, or if the file that a traceback names is
    there, the first line is what the release does with it, and the command is tested for it. A
    topic is a rule (PT104), a policy (mixed_float16), a limit (json-bytes), a release
    (keras3.6), or a list of all of them (rules, policies, limits, releases).
    """
    name = text[0].strip() if len(text) == 1 else ""
    options.check(terminal.report_files, ())
    is_word = name not in ("", "-") and not any(map(str.isspace, name))
    if is_word and (code := _print_topic(name, terminal)) is not None:
        return code
    explanation = explain(
        _message(text), os.fspath(arguments.model) if arguments.model is not None else None
    )
    unwritten = options.publish(terminal, EXPLANATION_REPORTERS, explanation)
    if not explanation.matches:
        if is_word:
            _check_spelling(name)
        messages.error(f"no known error message matches; see {project.page(PAGE)} for the list")
        return Exit.FAILURE if unwritten else Exit.NO_MODEL
    return Exit.FAILURE if unwritten else Exit.CLEAN


def _message(words: tuple[str, ...]) -> str:
    """
    Return the message that the arguments are, or the text of the file or of stdin that they name.

    :raises UsageError: if there is no argument and no pipe, or if the file is not a text
    """
    if words == ("-",) or (not words and sys.stdin is not None and not sys.stdin.isatty()):
        return _read_stdin()
    if not words:
        raise UsageError("explain needs a topic, a file, a message, or a pipe")
    path = Path(words[0])
    is_file = opening.is_reachable_file(path)
    is_directory = os.path.isdir(path)  # Path.is_dir raises for a long message
    if len(words) > 1 or not (is_file or is_directory):
        return " ".join(words)
    try:
        data = opening.read_user_file(path, MESSAGE_BYTES) if is_file else b"\0"
    except opening.TooLargeError:
        data = b"\0"
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    text = _decoded(data)
    if "\0" in text:
        raise UsageError(
            f"cannot read {path}: not a text with an error message. For a model, run "
            f"`policytool inspect {shlex.quote(str(path))}`"
        )
    return text


def _print_topic(name: str, terminal: ReportArguments) -> int | None:
    """
    Print what the reference has about a name, and return the exit code; None if it has nothing.

    :raises UsageError: for a format that only explanations of messages have
    """
    from policytool.reports import topics  # not for a message

    topic = topics.topic_from_name(name)
    if topic is None:
        return None
    names = [reporter.name for reporter in topics.TOPIC_REPORTERS]
    if missing := terminal.formats - {*names}:
        raise UsageError(f"the topic {name} has no format {min(missing)}; use {' or '.join(names)}")
    unwritten = options.publish(terminal, topics.TOPIC_REPORTERS, topic)
    return Exit.FAILURE if unwritten else Exit.CLEAN


def _check_spelling(word: str) -> None:
    """
    Make sure that a word is not a topic with a typo.

    :raises UsageError: if it is; the message has the name of the topic
    """
    from policytool.releases import policy  # only after a mistake
    from policytool.reports import topics
    from policytool.support.text.phrases import did_you_mean

    meant = policy.meant_policy(word)
    suggestion = (
        did_you_mean(word, topics.names()) if meant is None else f". Did you mean {meant!r}?"
    )
    if suggestion != did_you_mean(word, ()):
        raise UsageError(f"unknown topic {word!r}{suggestion} Run `policytool explain --help`")


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
    return _decoded(data)


def _decoded(data: bytes) -> str:
    """Return the text of bytes in UTF-8 or, as PowerShell writes it, UTF-16."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace")
    return data.decode("utf-8-sig", "replace")
