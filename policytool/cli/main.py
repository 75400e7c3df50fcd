"""The ``policytool`` command and how it ends."""

from __future__ import annotations

import errno
import gc
import importlib
import os
import platform
import signal
import sys
from typing import Any, Final, NoReturn

import click

from policytool.cli import messages, standard_streams
from policytool.cli.exit_codes import Exit
from policytool.support.errors import ModelFileError, PolicytoolError, UsageError
from policytool.support.processes import crash_guard

COMMANDS: Final = {
    "inspect": (
        "policytool.cli.inspect_command",
        "Report what each layer of saved models computes in, stores in, and why.",
    ),
    "audit": (
        "policytool.cli.audit_command",
        "Find what will not load, will not train as before, or will compute wrongly.",
    ),
    "migrate": (
        "policytool.cli.migrate_command",
        "Rewrite the policies of saved models into current ones, or into others.",
    ),
    "check": (
        "policytool.cli.check_command",
        "Run a model under a policy and compare it with float32, layer by layer.",
    ),
    "diff": (
        "policytool.cli.diff_command",
        "Show what changed between two saved models, across formats and generations.",
    ),
    "policies": (
        "policytool.cli.policies_command",
        "Explain dtype policies and how each generation of Keras spells them.",
    ),
    "rules": (
        "policytool.cli.rules_command",
        "Explain the rules of audit: what each looks for, why, and where that is from.",
    ),
    "limits": (
        "policytool.cli.limits_command",
        "List the bounds on what is read of a file, which --limit raises.",
    ),
    "completion": (
        "policytool.cli.completion_command",
        "Print what makes bash, zsh or fish complete the command line.",
    ),
}
"""
Name to module and summary, in the order of ``--help``; a command's module is imported when it is
called.
"""


_COMPLETE: Final = "_POLICYTOOL_COMPLETE"
"""The variable by which a shell asks what could stand at the cursor (Click's own protocol)."""


_OF_THE_MACHINE: Final = frozenset(
    getattr(errno, name)
    for name in (
        "ENOSPC",
        "EDQUOT",
        "EFBIG",
        "EIO",
        "EROFS",
        "ESTALE",
        "ENOMEM",
        "EMFILE",
        "ENFILE",
        "EBADF",
        "EAGAIN",
    )
    if hasattr(errno, name)
)
"""
A full or a failing disk below stdout, a stdout that takes no output, a directory that cannot be
searched: no bugs of ours.
"""


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
        command: click.Command = importlib.import_module(COMMANDS[name][0]).command
        return command

    def format_commands(self, _context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with their summaries, importing none of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


def _print_version(
    context: click.Context, _parameter: click.Parameter, value: bool
) -> None:  # Click's callback signature
    if value:
        from policytool.support.version import VERSION

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
    Audit and convert the dtype policies of saved Keras and TensorFlow models, without importing
    TensorFlow.
    """
    standard_streams.require_working_directory()


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit the process with its code."""
    # NumPy's BLAS starts a thread per core when it is imported, a tenth of a small inspection's
    # time; nothing here multiplies matrices.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # A config of a thousand layers is a hundred thousand small objects without cycles; looking for
    # cycles every 700 objects takes a tenth as well.
    gc.set_threshold(100_000)
    _know_the_processor()
    _end_orderly()
    crash_guard.allow()
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def _know_the_processor() -> None:
    """
    Let nothing start a process to ask which processor this is.

    h5py asks for ``platform.uname()[4]`` when it is imported (3.16), and Python 3.11 to 3.13 then
    runs ``uname -p``, the first of that name on PATH.
    """
    vars(platform.uname()).setdefault("processor", "")


def _end_orderly() -> None:
    """
    Let what asks the process to end do as Ctrl-C does: copies of models lie in temporary
    directories, and a child has TensorFlow.
    """
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores it
            signal.signal(number, signal.default_int_handler)


def run(arguments: list[str]) -> int:
    """Run the command line and return its exit code; no traceback reaches a user."""
    try:
        standard_streams.prepare()
        return _answer(arguments)
    except (
        BrokenPipeError,
        SystemExit,
    ):  # Click itself exits where it meets the closed pipe, and nowhere else in this mode
        standard_streams.give_up(sys.stdout)
        return Exit.CLEAN
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  # the last line of defence
        try:
            return _report_ending(error, debug="--debug" in arguments)
        except OSError as failure:
            if failure is error:
                raise
            standard_streams.give_up(sys.stderr)  # nothing can be said: the exit code is left
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


def _report_ending(error: BaseException, *, debug: bool) -> int:
    """
    Say in one sentence what ended the run, and return its exit code; with ``debug`` a bug of ours
    is raised as it is.
    """
    match error:
        case click.exceptions.Exit():
            return error.exit_code
        case click.Abort() | KeyboardInterrupt():
            messages.say("interrupted")
            return Exit.INTERRUPTED
        case click.ClickException():
            vars(error)["message"] = messages.escape(
                error.message
            )  # the text that Click adds around it is constant
            error.show()
            return Exit.USAGE
        case ModelFileError():
            messages.say(f"{error.path} {error.message} [{error.code}]")
            return Exit.FAILURE
        case PolicytoolError():
            messages.say(str(error))
            return Exit.USAGE if isinstance(error, UsageError) else Exit.FAILURE
        case OSError() if error.errno in _OF_THE_MACHINE:
            standard_streams.give_up(sys.stdout)
            where = (
                f" of {os.fsdecode(error.filename)}"
                if isinstance(error.filename, str | bytes)
                else ", and the report on stdout may be incomplete"
            )
            messages.say(f"reading or writing failed ({error.strerror}){where}")
            return Exit.FAILURE
    if debug:
        raise error
    messages.say(
        f"this is a bug in policytool ({type(error).__name__}: {error}); run with --debug and "
        "report what it prints"
    )
    return Exit.BUG
