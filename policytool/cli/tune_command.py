"""``policytool tune``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from msgspec.structs import replace

from policytool.cli import completion, messages, options
from policytool.cli.arguments import ReportArguments
from policytool.cli.command import declare_command
from policytool.cli.declared_options import Positional
from policytool.cli.exit_codes import Exit
from policytool.cli.messages import noting, steps
from policytool.commands import tensorflow
from policytool.commands.arguments.running import TuneArguments
from policytool.commands.batch.isolation import failure_from
from policytool.commands.migrate import Migration, Status
from policytool.commands.migrate_all import only_model
from policytool.commands.tune import tune_and_write
from policytool.commands.tune_run import TuneOptions, tune_destination, tune_options
from policytool.formats import discovery
from policytool.numerics.check_results.verdicts import Answer
from policytool.numerics.tuning.results import Ending
from policytool.numerics.workers import Worker
from policytool.reports.tuning import TUNE_REPORTERS, Tunings
from policytool.support.errors import ModelFileError, WorkerError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from policytool.commands.destinations import Destination
    from policytool.formats.discovery import Input
    from policytool.numerics.tensorflow_run import TensorFlowTools


@declare_command(
    "tune",
    TuneArguments,
    ReportArguments,
    positional=[
        Positional(
            "model",
            "The model. Defaults to the model in the working directory if there is exactly one.",
            required=False,
            shell_complete=completion.files,
        )
    ],
    changes={
        **options.attributes(TUNE_REPORTERS),
        "metric": {
            "help": "Metric of the task or your own MODULE:FUNCTION, and the largest drop, such as "
            "accuracy=0.002. agreement is the share of rows with the same largest output.  "
            "[default: 0.01; for errors, 1% of the reference]"
        },
    },
)
def command(arguments: TuneArguments, terminal: ReportArguments, *, model: str | None) -> int:
    """
    Find a minimal set of layers to keep in float32, and write the model with all other layers
    converted. The outputs stay within --tolerance of the float32 model; --metric and
    --gradients set other objectives. If no set meets the objective, exit 1 without writing.

    Each trial runs the model with a different set of layers in float32. The search uses one half of
    the rows. On the other half, the rule of check decides how many predictions change: exit 5 if
    the rows are too few, or synthetic. Layers that migrate keeps in float32 by default are
    converted if the objective allows it. Ctrl-C ends the search and writes the best set so far.

    TensorFlow runs in a separate process. Without --trust, it loads a model only if all code in the
    model is on an allow-list.
    """
    request, destination = tune_options(arguments), tune_destination(arguments)
    models = only_model(
        list(discovery.inputs([model] if model is not None else [])), request.candidate
    )
    if not models:
        messages.error("no model found")
        return Exit.NO_MODEL
    _check_files(request, arguments, terminal, models, destination)
    show = steps(verbose=terminal.verbose)
    state = [""]
    with Worker(
        tensorflow.interpreter(arguments),
        lambda step: show(f"{state[0]}: {step}" if step else ""),
        noting(verbose=terminal.verbose),
    ) as worker:

        def tell(text: str) -> None:
            """Remember the last message, and show it."""
            state[0] = text
            show(text)

        results = _run(models[0], request, destination, tensorflow.tools(arguments, worker), tell)
        show("")
    results = replace(
        results,
        everything=bool(terminal.verbose),
        arguments=click.get_current_context().find_root().obj or (),
    )
    unwritten = options.publish(terminal, TUNE_REPORTERS, results, results.failures)
    return _exit(results, is_unwritten=bool(unwritten))


def _check_files(
    request: TuneOptions,
    arguments: TuneArguments,
    terminal: ReportArguments,
    models: Sequence[Input],
    destination: Destination,
) -> None:
    """
    Make sure that reports and recorded trials replace nothing that is read or written.

    :raises UsageError: if they do.
    """
    files = (request.inputs, arguments.labels, request.weights, destination.output)
    needed = [path for path in files if isinstance(path, Path)]
    if request.record is not None:
        options.check_place("--resume", request.record, [models[0].local_path, *needed])
        needed.append(request.record)
    options.check(terminal.report_files, models, needed)


def _run(
    model: Input,
    request: TuneOptions,
    destination: Destination,
    tools: TensorFlowTools,
    tell: Callable[[str], None],
) -> Tunings:
    """Return the result of a search, or the failure of the model."""
    try:
        tuning, migration = tune_and_write(model, request, destination, tools, tell)
        return Tunings(tuning=tuning, migration=migration)
    except (ModelFileError, WorkerError) as error:
        return Tunings(failures=(failure_from(model.display_path, error),))


_EXITS: Final = {
    Answer.SAFE: Exit.CLEAN,
    Answer.NOT_SAFE: Exit.FINDINGS,
    Answer.UNDECIDED: Exit.UNDECIDED,
}


def _exit(tunings: Tunings, *, is_unwritten: bool) -> int:
    tuning, migration = tunings.tuning, tunings.migration
    if tuning is not None and tuning.ending is Ending.INTERRUPTED:
        return Exit.INTERRUPTED
    if tuning is None or is_unwritten or _is_blocked(migration):
        return Exit.FAILURE
    return _EXITS[tuning.answer]


def _is_blocked(migration: Migration | None) -> bool:
    return migration is not None and migration.status in {Status.BLOCKED, Status.MISSED}
