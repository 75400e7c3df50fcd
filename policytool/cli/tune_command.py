"""``policytool tune``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from policytool.cli import (
    completion,
    input_options,
    messages,
    options,
    policy_options,
    report_option,
    settings,
    tensorflow_options,
)
from policytool.cli.exit_codes import Exit
from policytool.cli.local_paths import LocalPath
from policytool.cli.progress import steps
from policytool.commands.destinations import Destination
from policytool.commands.inspect import Failure
from policytool.commands.migrate import Migration, Status
from policytool.commands.migrate_all import the_one_model
from policytool.commands.tune import tune_and_write
from policytool.commands.tune_options import TuneOptions
from policytool.formats import discovery
from policytool.migration.planning.options import Options, Outputs, assignment
from policytool.numerics.tuning.candidates import tuned_policy
from policytool.numerics.tuning.objectives import objective
from policytool.numerics.tuning.results import Ending, Preference
from policytool.numerics.tuning.results import preference as as_preference
from policytool.numerics.tuning.search import MAX_TRIALS, Budget
from policytool.numerics.verdicts.tolerances import parse_tolerance
from policytool.numerics.workers import Worker
from policytool.reports.tuning import TUNE_REPORTERS, Tunings
from policytool.support.errors import ModelFileError, UsageError, WorkerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from policytool.cli.report_option import ReportFile
    from policytool.cli.tensorflow_options import TensorFlow
    from policytool.formats.discovery import Input
    from policytool.numerics.tensorflow_run import TensorFlowTools
    from policytool.numerics.user_functions import UserFunction


@settings.command("tune")
@click.argument("model", required=False, shell_complete=completion.files)
@click.option(
    "--to",
    metavar="POLICY",
    shell_complete=completion.policies,
    help="Policy of the layers that are converted, such as mixed_float16.",
)
@policy_options.options
@click.option(
    "--keep-rules",
    is_flag=True,
    help="Do not convert any layer that migrate keeps in float32 by default.",
)
@input_options.options("4 synthetic batches")
@click.option(
    "--tolerance",
    multiple=True,
    metavar="[PATTERN=]NUMBER",
    help="Allowed relative error, for all outputs or only for those that match PATTERN.  "
    "[default: 0.01, unless --agreement or --metric is set]",
)
@click.option(
    "--agreement",
    type=float,
    metavar="SHARE",
    help="Share of rows for which the largest output must stay the same, such as 0.99.",
)
@input_options.labels
@click.option(
    "--metric",
    metavar="NAME|MODULE:FUNCTION",
    shell_complete=completion.metrics,
    help="Metric of the task, such as accuracy, or your own function of labels and predictions. "
    "Without --labels, your function gets the predictions of the float32 model as labels.",
)
@click.option(
    "--max-drop",
    type=float,
    metavar="NUMBER",
    help="Maximum amount by which the metric may be worse.  [default: 0.01; for errors, "
    "1% of the value in float32]",
)
@click.option(
    "--gradients",
    is_flag=True,
    help="Also require gradients that are finite and close to those in float32.",
)
@click.option(
    "--prefer",
    type=click.Choice([one.value for one in Preference if one is not Preference.NONE]),
    help="Convert the slowest layers first, or those with the largest outputs, instead of as many "
    "layers as possible.",
)
@click.option(
    "--max-trials",
    type=click.IntRange(min=1),
    metavar="N",
    default=MAX_TRIALS,
    show_default=True,
    help="Maximum number of sets of layers to try.",
)
@click.option(
    "--time",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Begin no trial after this time, and use the best set found by then.",
)
@click.option(
    "--resume",
    type=LocalPath(path_type=Path),
    metavar="FILE",
    help="Record all trials in FILE, and continue from it if it exists.",
)
@click.option(
    "-o",
    "--output",
    type=LocalPath(readable=False),
    metavar="FILE|DIR",
    help="Output file or directory.  [default: next to the input]",
)
@click.option("--overwrite", is_flag=True, help="Replace an existing output.")
@click.option("--dry-run", is_flag=True, help="Search without writing the model.")
@click.option(
    "--device",
    default="auto",
    show_default=True,
    metavar="auto|cpu|gpu:N",
    help="Device to run on.",
)
@click.option("--all-layers", is_flag=True, help="Show all converted layers.")
@tensorflow_options.options
@options.format_option([reporter.name for reporter in TUNE_REPORTERS])
@report_option.option(TUNE_REPORTERS)
@options.limit_option
@options.common
def command(
    *,
    model: str | None,
    to: str | None,
    set: tuple[str, ...],  # the option's name
    include_exceptions: bool,
    outputs: str,
    keep_rules: bool,
    weights: Path | None,
    inputs: Path | UserFunction | None,
    batches: int | None,
    batch_size: int | None,
    seed: int,
    tolerance: tuple[str, ...],
    agreement: float | None,
    labels: Path | None,
    metric: str | None,
    max_drop: float | None,
    gradients: bool,
    prefer: str | None,
    max_trials: int,
    time: float | None,
    resume: Path | None,
    output: str | None,
    overwrite: bool,
    dry_run: bool,
    device: str,
    all_layers: bool,
    tensorflow: TensorFlow,
    format: str,  # the option's name
    report: tuple[ReportFile, ...],
    verbose: bool,
    quiet: bool,
    debug: bool,  # main() looks for it
    color: str,
    progress: str,
) -> int:
    """
    Find a minimal set of layers to keep in float32, and write the model with all other layers
    converted. The outputs stay within --tolerance of the float32 model; --agreement, --metric and
    --gradients set other objectives. If no set meets the objective, exit 1 without writing.

    Each trial runs the model with a different set of layers in float32. The search uses one half of
    the inputs, and the other half validates its result. Layers that migrate keeps in float32 by
    default are converted if the objective allows it. Ctrl-C ends the search and writes the best set
    so far.

    TensorFlow runs in a separate process. Without --trust, it loads a model only if all code in the
    model is on an allow-list.
    """
    planned = Options(
        to=tuned_policy(to),
        assignments=tuple(assignment(text) for text in set),
        include_exceptions=include_exceptions,
        outputs=Outputs(outputs),
    )
    wanted = TuneOptions(
        candidate=planned,
        objective=objective(
            tuple(parse_tolerance(text) for text in tolerance),
            agreement=agreement,
            labels=labels,
            metric=metric,
            max_drop=max_drop,
            gradients=gradients,
            has_inputs=inputs is not None,
        ),
        keep_rules=keep_rules,
        weights=weights,
        inputs=inputs,
        batches=batches,
        batch_size=batch_size,
        seed=seed,
        preference=as_preference(prefer),
        budget=Budget(trials=max_trials, seconds=time),
        record=resume,
        device=device,
    )
    if output == "-":
        raise UsageError(
            "-o - is not supported: models cannot be written to stdout; specify a file or a "
            "directory"
        )
    destination = Destination(
        output=Path(output) if output is not None else None,
        is_directory=output is not None and output.endswith(("/", os.sep)),
        overwrite=overwrite,
        write=not dry_run,
    )
    found = _one(list(discovery.inputs([model] if model is not None else [])), planned)
    if not found:
        messages.error("no model found")
        return Exit.NO_MODEL
    read = [path for path in (inputs, labels, weights) if isinstance(path, Path)]
    needed = [*read, *(path for path in (destination.output,) if isinstance(path, Path))]
    if resume is not None:
        report_option.check_place("--resume", resume, [found[0].local_path, *needed])
        needed.append(resume)
    report_option.check(report, found, needed)
    show = steps(progress)
    state = [""]
    with Worker(
        tensorflow.interpreter, lambda step: show(f"{state[0]}: {step}" if step else "")
    ) as worker:

        def tell(text: str) -> None:
            state[0] = text
            show(text)

        results = _run(found[0], wanted, destination, tensorflow.tools(worker), tell)
        show("")
    results = Tunings(
        tuning=results.tuning,
        migration=results.migration,
        failures=results.failures,
        everything=all_layers,
        arguments=click.get_current_context().find_root().obj or (),
    )
    unwritten = report_option.write_reports(report, TUNE_REPORTERS, results)
    report_option.print_report(TUNE_REPORTERS, format, results, options.view(color), color)
    options.troubles(results.failures, unwritten)
    return _exit(results, is_unwritten=bool(unwritten))


def _one(found: list[Input], planned: Options) -> list[Input]:
    return (
        found
        if len(found) == 1 and found[0].exact
        else the_one_model(found, planned, Destination(write=False))
    )


def _run(
    model: Input,
    wanted: TuneOptions,
    destination: Destination,
    tools: TensorFlowTools,
    tell: Callable[[str], None],
) -> Tunings:
    try:
        tuning, migration = tune_and_write(model, wanted, destination, tools, tell)
        return Tunings(tuning=tuning, migration=migration)
    except ModelFileError as error:
        return Tunings(failures=(Failure(path=error.path, code=error.code, message=error.message),))
    except WorkerError as error:
        failure = Failure(
            path=model.display_path, code=error.code, message=str(error), details=error.details
        )
        return Tunings(failures=(failure,))


def _exit(found: Tunings, *, is_unwritten: bool) -> int:
    tuning, migration = found.tuning, found.migration
    if tuning is not None and tuning.ending is Ending.INTERRUPTED:
        return Exit.INTERRUPTED
    if tuning is None or is_unwritten or _is_blocked(migration):
        return Exit.FAILURE
    return Exit.CLEAN if tuning.passed else Exit.FINDINGS


def _is_blocked(migration: Migration | None) -> bool:
    return migration is not None and migration.status in {Status.BLOCKED, Status.MISSED}
