"""The ``policytool`` command, its standard streams, and how it ends."""

from __future__ import annotations

import gc
import importlib
import io
import os
import platform
import sys
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from policytool.cli import messages
from policytool.cli.exit_codes import OF_THE_MACHINE, Exit, code_of
from policytool.cli.removed import COMMANDS_OF_OTHERS, REMOVED_COMMANDS, removed_option
from policytool.support.errors import ModelFileError, PolicytoolError, UsageError
from policytool.support.processes import crash_guard, interrupts
from policytool.support.text.phrases import did_you_mean

if TYPE_CHECKING:
    from types import TracebackType
    from typing import TextIO


_NAMES: Final = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))
"""The standard streams in the order of their descriptors, with their modes."""


def prepare() -> None:
    """
    Open the null device in place of closed standard streams, and escape names that the encoding of
    a stream does not support.

    Without the null device, the next opened file, such as a model, would get the descriptor to
    which reports or messages are written.

    :raises PolicytoolError: if stdout is closed.
    """
    missing = [
        (number, name, mode)
        for number, (name, mode) in enumerate(_NAMES)
        if getattr(sys, name) is None
    ]
    for number, name, mode in missing:
        null = os.open(os.devnull, os.O_RDWR)
        if null != number:
            os.dup2(null, number)
            os.close(null)
        os.set_inheritable(number, True)  # positional only
        setattr(
            sys,
            name,
            open(number, mode, encoding="utf-8", closefd=False),  # noqa: SIM115
        )  # a descriptor, for the whole run
    for name in ("stdout", "stderr"):
        stream = _buffered(getattr(sys, name))
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
        setattr(sys, name, stream)
    if any(name == "stdout" for _, name, _ in missing):
        raise PolicytoolError(
            "stdout is closed, so the report cannot be written; redirect stdout to a file or to "
            "/dev/null"
        )


def _buffered(stream: TextIO) -> TextIO:
    """
    Return a stream with a buffer, which writes the rest of a text after a signal. Streams have none
    with ``PYTHONUNBUFFERED``, which images of containers set.
    """
    raw = getattr(stream, "buffer", None)
    if not isinstance(raw, io.RawIOBase):
        return stream
    buffer = io.BufferedWriter(raw)
    return io.TextIOWrapper(buffer, encoding=stream.encoding, line_buffering=True)


def give_up(stream: TextIO) -> None:
    """
    Discard all further output to a stream that failed, so that the flush of the interpreter at exit
    does not fail again.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def require_working_directory() -> None:
    """
    Check that relative paths can be resolved.

    :raises PolicytoolError: if the working directory was deleted or cannot be read.
    """
    try:
        os.getcwd()  # noqa: PTH109  # cheaper than pathlib, which --help does not need
    except OSError as error:
        raise PolicytoolError(
            f"the working directory cannot be used ({error.strerror}); change to another directory"
        ) from error


_MODELS, _FLEETS, _SHELL = "Commands", "Fleets of models", "Shell"

COMMANDS: Final = {
    "inspect": (
        _MODELS,
        "Show the dtype policies of a model's layers and the releases that can load it.",
    ),
    "audit": (_MODELS, "Find models that fail to load or behave differently."),
    "migrate": (_MODELS, "Rewrite dtype policies, or convert models for another release."),
    "check": (_MODELS, "Show whether predictions change under a policy, compared with float32."),
    "tune": (_MODELS, "Find a minimal set of layers to keep in float32, and convert the others."),
    "diff": (_MODELS, "Compare two models, even across file formats and releases."),
    "explain": (
        _MODELS,
        "Explain an error message and its fix, or a rule, policy, limit or release.",
    ),
    "merge": (_FLEETS, "Join the JSON Lines reports of all shards of a run."),
    "completion": (_SHELL, "Print a shell completion script."),
}
"""
The section and the summary of each command by name, in the order of ``--help``. The module of a
command is imported only when the command is called.
"""


_COMPLETE: Final = "_POLICYTOOL_COMPLETE"
"""The variable with which a shell requests completions, in the protocol of Click."""


class Commands(click.Group):
    """
    A group whose commands are imported when they are called, so that ``--help`` and ``--version``
    start at once.
    """

    def list_commands(self, _context: click.Context) -> list[str]:
        """Return the commands in the order of their use."""
        return list(COMMANDS)

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        """Return the command of this name."""
        if name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"policytool.cli.{name}_command").command
        return command

    def resolve_command(
        self, context: click.Context, words: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """
        Return the command that the first word names.

        :raises UsageError: for a removed command, with its successor.
        :raises click.UsageError: for an unknown name, with the most similar command.
        """
        if words and words[0] in REMOVED_COMMANDS:
            raise UsageError(f"the command {words[0]} was removed; {REMOVED_COMMANDS[words[0]]}")
        if words and words[0] not in COMMANDS and not words[0].startswith("-"):
            usual = COMMANDS_OF_OTHERS.get(words[0])
            hint = f". Use {usual}." if usual else did_you_mean(words[0], COMMANDS)
            context.fail(f"unknown command {words[0]!r}{hint}")
        return super().resolve_command(context, words)

    def format_commands(self, _context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with their summaries, without importing them."""
        width = max(map(len, COMMANDS))
        for title in dict.fromkeys(section for section, _ in COMMANDS.values()):
            with formatter.section(title):
                formatter.write_dl(
                    [
                        (name.ljust(width), summary)
                        for name, (section, summary) in COMMANDS.items()
                        if section == title
                    ]
                )


def _print_version(
    context: click.Context, _parameter: click.Parameter, value: bool
) -> None:  # Click's callback signature
    if value:
        from policytool.support.project import VERSION

        click.echo(f"policytool {VERSION}")
        context.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Show the version and exit.",
)
def cli() -> None:
    """
    Inspect, audit and convert the dtype policies of saved Keras models, without TensorFlow.
    """
    require_working_directory()


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit the process with its code."""
    # NumPy's BLAS starts a thread per core when it is imported, a tenth of a small inspection's
    # time; nothing here multiplies matrices.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # A config of a thousand layers is a hundred thousand small objects without cycles; looking for
    # cycles every 700 objects takes a tenth as well.
    gc.set_threshold(100_000)
    _know_the_processor()
    interrupts.handle()
    crash_guard.allow()
    sys.excepthook = _print_traceback
    try:
        code = run(sys.argv[1:] if arguments is None else arguments)
    except Exception as error:  # noqa: BLE001  # a bug, with -v
        _print_traceback(type(error), error, error.__traceback__)
        code = Exit.BUG
    interrupts.clear()  # what a signal interrupted before it could be noted elsewhere
    if interrupts.is_interrupted():
        # Python would wait for threads. If Ctrl-C arrived in a text that exec() runs, as for a
        # dataclass, it would also end itself with SIGINT in place of this code. The signals are
        # still handled, because the original of this copy may pass on the same one late.
        os._exit(code)
    interrupts.handle_no_more()
    sys.exit(code)


def _print_traceback(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print the traceback of a bug (``-v``) without credentials."""
    import traceback

    from policytool.support.files.remote_path import redacted

    lines = traceback.format_exception(kind, error, trace)
    click.echo(redacted("".join(lines)), err=True, nl=False)


def _know_the_processor() -> None:
    """
    Prevent a process that determines the processor.

    h5py 3.16 reads ``platform.uname()[4]`` when it is imported, and Python 3.11 to 3.13 then run
    the first ``uname -p`` on PATH.
    """
    vars(platform.uname()).setdefault("processor", "")


def run(arguments: list[str]) -> int:
    """Run the command line and return its exit code; no traceback reaches a user."""
    try:
        prepare()
        return _answer(arguments)
    except (
        BrokenPipeError,
        SystemExit,
    ):  # Click itself exits where it meets the closed pipe, and nowhere else in this mode
        give_up(sys.stdout)
        return Exit.CLEAN
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  # the last line of defence
        # what a library makes of KeyboardInterrupt in the middle of its code is another error
        ending = KeyboardInterrupt() if interrupts.is_interrupted() else error
        try:
            return _report_ending(ending, verbose=messages.is_verbose(arguments))
        except OSError as failure:
            if failure is error:
                raise
            give_up(sys.stderr)  # nothing can be said: the exit code is left
            return Exit.FAILURE


def _answer(arguments: list[str]) -> int:
    """Run the command, or print completions or help, and return the exit code."""
    if os.environ.get(
        _COMPLETE
    ):  # a shell asks; Click would answer too, and then end the process as if a pipe had closed
        from policytool.cli import completion

        return completion.answer(cli, "policytool", _COMPLETE)
    if not arguments:  # Click 8.1 and 8.2 end otherwise
        with cli.make_context("policytool", [], resilient_parsing=True) as context:
            click.echo(cli.get_help(context), err=True)
        return Exit.USAGE
    result: Any = cli.main(
        args=arguments, prog_name="policytool", standalone_mode=False, obj=tuple(arguments)
    )
    sys.stdout.flush()
    return int(result) if isinstance(result, int) else Exit.CLEAN


def _report_ending(error: BaseException, *, verbose: bool) -> int:
    """
    Print the error that ended the run as one sentence, and return the exit code. With ``verbose``,
    a bug in policytool is raised again.
    """
    match error:
        case click.exceptions.Exit():
            pass
        case click.Abort() | KeyboardInterrupt():
            messages.error("interrupted")
        case click.ClickException():
            _show_usage_error(error)
        case ModelFileError():
            messages.error(error.message, path=error.path, code=error.code)
        case PolicytoolError():
            messages.error(str(error))
        case MemoryError():
            messages.error("memory ran out")
        case RecursionError():
            messages.error("the contents of a file are nested too deeply")
        case OSError() if error.errno in OF_THE_MACHINE:
            give_up(sys.stdout)
            advice = (
                f" {os.fsdecode(error.filename)}: {error.strerror}"
                if isinstance(error.filename, str | bytes)
                else f": {error.strerror}; the report on stdout may be incomplete"
            )
            messages.error(f"cannot read or write{advice}")
        case _:
            if verbose:
                raise error
            messages.error(
                f"this is a bug in policytool ({type(error).__name__}: {error}); run with -v "
                "and report the output"
            )
    return code_of(error)


def _show_usage_error(error: click.ClickException) -> None:
    """Print an error of Click in the format of all errors, with a hint to the help."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    text = error.format_message()
    if isinstance(error, click.NoSuchOption):
        known = error.possibilities or ()
        command = context.info_name if context is not None else None
        name, colon, _ = error.option_name.partition(":")  # Click cuts a URL at its first =
        successor = removed_option(name, command)
        if successor is not None:
            messages.error(f"the option {name} was removed; {successor}")
            return
        text = f"unknown option {name + ('...' if colon else '')!r}{did_you_mean(name, known)}"
    path = context.command_path if context is not None else "policytool"
    text = text.removesuffix(".") if not text.endswith("?") else text
    messages.error(f"{text}{'' if text.endswith('?') else '.'} Run `{path} --help` for help")
