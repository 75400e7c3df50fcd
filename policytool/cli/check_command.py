"""``policytool check``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from msgspec.structs import replace

from policytool.cli import completion, messages, options, settings
from policytool.cli.arguments import CheckCommandLine
from policytool.cli.command import declare_command
from policytool.cli.declared_options import Positional
from policytool.cli.exit_codes import Exit
from policytool.cli.messages import noting, steps
from policytool.commands import tensorflow
from policytool.commands.arguments.running import CheckArguments
from policytool.commands.batch.isolation import failure_from
from policytool.commands.check import devices
from policytool.commands.check_options import (
    CheckOptions,
    check_options,
    check_second_model,
)
from policytool.commands.check_releases import check_inputs, release_range
from policytool.commands.migrate_all import only_model
from policytool.formats import discovery
from policytool.numerics.check_results.verdicts import Answer
from policytool.numerics.workers import Worker
from policytool.reports.checks import CHECK_REPORTERS, Checks, device_words
from policytool.support.errors import ModelFileError, WorkerError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from policytool.formats.discovery import Input
    from policytool.migration.planning.options import Options
    from policytool.numerics.check_results.checks import Check


_LIST: Final = "list"
"""The value of ``--device`` that lists the devices."""


@declare_command(
    "check",
    CheckArguments,
    CheckCommandLine,
    positional=[
        Positional(
            "model",
            "The model. Defaults to the model in the working directory if there is exactly one.",
            required=False,
            shell_complete=completion.files,
        ),
        Positional(
            "other",
            "A second model, which becomes the candidate; MODEL is then the reference.",
            required=False,
            metavar="[B]",
            shell_complete=completion.files,
        ),
    ],
    changes={
        **options.attributes(CHECK_REPORTERS),
        "device": {
            "metavar": f"auto|cpu|gpu:N|all|{_LIST}",
            "help": "Device to run on; all uses every GPU in parallel, and list prints all devices "
            "and exits.",
        },
    },
)
def command(
    arguments: CheckArguments, terminal: CheckCommandLine, *, model: str | None, other: str | None
) -> int:
    """
    Show whether predictions change under a policy, compared with float32. The answer is safe, not
    safe or undecided. The report names the layer that causes an error, and prints the migrate
    command that writes the candidate, with the layers to keep in float32.

    The reference is MODEL in float32. The candidate is MODEL with the policy of --to, or with its
    own policies. If B is specified, the reference is MODEL with its own policies and the candidate
    is B, for example the output of migrate.

    Only your own inputs (--inputs) can show that a policy is safe. Synthetic inputs, the default,
    can show errors, but the answer is undecided and the exit code is 5.

    TensorFlow runs in a separate process. Without --trust, it loads a model only if all code in the
    model is on an allow-list.
    """
    request = check_options(arguments)
    if other is not None:
        check_second_model(request)
    request = replace(request, exponents="html" in terminal.formats)
    note = noting(verbose=terminal.verbose)
    interpreter = tensorflow.interpreter(arguments)

    def start_worker(python: str) -> Worker:
        return Worker(replace(interpreter, python=python), steps(verbose=terminal.verbose), note)

    releases = release_range(arguments.python)
    # A found settings file must not turn a check into a list, which ends with exit code 0.
    if arguments.device == _LIST and settings.automatic_source("device") is None:
        with start_worker(interpreter.python) as worker:
            return _devices(worker)
    paths = _paths(model, other, request.candidate)
    if not paths:
        messages.error("no model found")
        return Exit.NO_MODEL
    _check_files(request, arguments, terminal, paths)

    def run() -> Check:
        return check_inputs(paths, request, arguments, releases, start_worker)

    checks = _run_checks(paths[-1], run, everything=bool(terminal.verbose))
    unwritten = options.publish(terminal, CHECK_REPORTERS, checks, checks.failures)
    if checks.check is None or unwritten or any(run.missing for run in checks.check.runs):
        return Exit.FAILURE
    if checks.check.is_recording:
        return Exit.CLEAN
    exits = {Answer.SAFE: Exit.CLEAN, Answer.NOT_SAFE: Exit.FINDINGS}
    undecided = Exit.CLEAN if terminal.accept_undecided else Exit.UNDECIDED
    return exits.get(checks.check.answer, undecided)


def _check_files(
    request: CheckOptions,
    arguments: CheckArguments,
    terminal: CheckCommandLine,
    paths: Sequence[Input],
) -> None:
    """
    Check that reports and recordings do not replace an input file.

    :raises UsageError: if they do.
    """
    files = (request.inputs, arguments.labels, request.against, request.weights)
    needed = [path for path in files if isinstance(path, Path)]
    if request.record is not None:
        named_files = options.named_files(paths)
        options.check_place("--record", request.record, [*named_files, *needed])
        needed.append(request.record)
    options.check(terminal.report_files, paths, needed)


def _paths(model: str | None, other: str | None, planned: Options) -> list[Input]:
    """
    Return the model, and the second model if there is one. A directory stands for the only model in
    it; without a path, the working directory is used.
    """
    path_lists = [[path] for path in (model, other) if path is not None] or [[]]
    groups = [only_model(list(discovery.inputs(paths)), planned) for paths in path_lists]
    return [source for sources in groups for source in sources] if all(groups) else []


def _run_checks(path: Input, run: Callable[[], Check], *, everything: bool) -> Checks:
    """Return the result for reports; an error is one, too."""
    try:
        return Checks(check=run(), everything=everything)
    except (ModelFileError, WorkerError) as error:
        return Checks(failures=(failure_from(path.display_path, error),))


def _devices(worker: Worker) -> int:
    """List the devices of TensorFlow on this machine."""
    for device in devices(worker):
        click.echo(", ".join(device_words(device)))
    return Exit.CLEAN
