"""``policytool check``."""

from __future__ import annotations

from dataclasses import replace
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
from policytool.commands.check import check, devices
from policytool.commands.check_options import CheckOptions
from policytool.commands.destinations import Destination
from policytool.commands.earlier_check import read_earlier_check
from policytool.commands.inspect import Failure
from policytool.commands.migrate_all import the_one_model
from policytool.formats import discovery
from policytool.migration.planning.options import Options, Outputs, assignment, checked_policy
from policytool.numerics.check_results.answers import Answer, OutputKind
from policytool.numerics.verdicts.output_kinds import named_kinds
from policytool.numerics.verdicts.safety import MAX_CHANGE, share_of
from policytool.numerics.verdicts.task_metric import wanted_metric
from policytool.numerics.workers import Worker
from policytool.releases.targets import target as named_target
from policytool.reports.checks import CHECK_REPORTERS, Checks, described
from policytool.support.errors import ModelFileError, UsageError, WorkerError

if TYPE_CHECKING:
    from policytool.cli.report_option import ReportFile
    from policytool.cli.tensorflow_options import TensorFlow
    from policytool.formats.discovery import Input
    from policytool.numerics.tensorflow_run import TensorFlowTools
    from policytool.numerics.user_functions import UserFunction


@settings.command("check")
@click.argument("model", required=False, shell_complete=completion.files)
@click.argument("other", required=False, metavar="[B]", shell_complete=completion.files)
@click.option(
    "--to",
    "--policy",
    "to",
    metavar="POLICY",
    shell_complete=completion.policies,
    help="Policy of the candidate. Accepts the same values as migrate --to.",
)
@click.option(
    "--reference",
    metavar="POLICY",
    shell_complete=completion.policies,
    help="Policy of the reference.  [default: float32; with B, the policies in MODEL]",
)
@policy_options.options
@click.option(
    "--target",
    shell_complete=completion.releases,
    metavar="RELEASE",
    help="Write the candidate's policies in the format of this release, such as tf2.4.",
)
@input_options.options("1 synthetic batch")
@click.option(
    "--save-inputs",
    type=LocalPath(path_type=Path),
    metavar="FILE",
    help="Save the inputs to a .npz file that --inputs can read.",
)
@click.option(
    "--isolated",
    is_flag=True,
    help="Always run each layer in isolation too, not only to explain an error.",
)
@click.option(
    "--gradients",
    is_flag=True,
    help="Also run one backward pass and count the gradients that need loss scaling.",
)
@click.option(
    "--device",
    default="auto",
    show_default=True,
    metavar="auto|cpu|gpu:N|all",
    help="Device to run on; all uses every GPU in parallel.",
)
@click.option("--list-devices", is_flag=True, help="List the available devices and exit.")
@click.option(
    "--tf32",
    is_flag=True,
    help="Also measure the effect of TF32 on the reference, on GPUs that support it.",
)
@click.option("--deterministic", is_flag=True, help="Use only deterministic kernels.")
@click.option(
    "--max-change",
    type=float,
    default=100 * MAX_CHANGE,
    metavar="PERCENT",
    help="Largest share of predictions that may change; for numbers, half of it is the largest "
    f"error relative to their spread.  [default: {100 * MAX_CHANGE:g}]",
)
@click.option(
    "--output-kind",
    multiple=True,
    metavar="NAME=KIND",
    help="Kind of an output, if it is not recognized; can be repeated. KIND is one of "
    + ", ".join(OutputKind)
    + ".",
)
@click.option(
    "--accept-undecided",
    is_flag=True,
    help="Exit with 0 instead of 5 if the answer is undecided.",
)
@input_options.labels
@click.option(
    "--metric",
    metavar="NAME|MODULE:FUNCTION",
    shell_complete=completion.metrics,
    help="Task metric to compute for both models, such as accuracy, or your own function of labels "
    "and predictions.",
)
@click.option(
    "--max-drop",
    type=float,
    metavar="NUMBER",
    help="Maximum amount by which the metric of the candidate may be worse.  [default: 0.01; for "
    "errors, 1% of the reference]",
)
@click.option(
    "--compare-to",
    type=LocalPath(path_type=Path),
    metavar="FILE",
    help="Compare with this JSON report of an earlier check, and exit 1 if there are regressions.",
)
@click.option(
    "--timing", is_flag=True, help="Measure latency, throughput and peak memory of both models."
)
@click.option(
    "--all-layers",
    is_flag=True,
    help="Show all layers instead of only the worst ones.",
)
@tensorflow_options.options
@options.format_option([reporter.name for reporter in CHECK_REPORTERS])
@report_option.option(CHECK_REPORTERS)
@options.limit_option
@options.common
def command(
    *,
    model: str | None,
    other: str | None,
    to: str | None,
    reference: str | None,
    set: tuple[str, ...],  # the option's name
    include_exceptions: bool,
    outputs: str,
    target: str | None,
    weights: Path | None,
    inputs: Path | UserFunction | None,
    batches: int | None,
    batch_size: int | None,
    seed: int,
    save_inputs: Path | None,
    isolated: bool,
    gradients: bool,
    device: str,
    list_devices: bool,
    tf32: bool,
    deterministic: bool,
    max_change: float,
    output_kind: tuple[str, ...],
    accept_undecided: bool,
    labels: Path | None,
    metric: str | None,
    max_drop: float | None,
    compare_to: Path | None,
    timing: bool,
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
    planned = Options(
        to=checked_policy(to, "--to") if to is not None else None,
        assignments=tuple(assignment(text) for text in set),
        include_exceptions=include_exceptions,
        outputs=Outputs(outputs),
        target=named_target(target) if target is not None else None,
    )
    if other is not None and replace(planned, target=None) != Options():
        raise UsageError(
            "options that change the candidate (--to, --set, ...) cannot be combined with B, "
            "because B is the candidate"
        )
    wanted = CheckOptions(
        candidate=planned,
        reference=checked_policy(reference, "--reference") if reference is not None else None,
        weights=weights,
        inputs=inputs,
        save_inputs=save_inputs,
        batches=batches,
        batch_size=batch_size,
        seed=seed,
        isolated=isolated,
        gradients=gradients,
        timing=timing,
        tf32=tf32,
        exponents="html" in {format, *(one.format for one in report)},
        deterministic=deterministic,
        device=device,
        max_change=share_of(max_change),
        output_kinds=named_kinds(output_kind),
        metric=wanted_metric(labels, metric, max_drop, has_inputs=inputs is not None),
    )
    with Worker(tensorflow.interpreter, steps(progress)) as worker:
        if list_devices:
            return _devices(worker)
        paths = _paths(model, other, planned)
        if not paths:
            messages.error("no model found")
            return Exit.NO_MODEL
        given = (inputs, labels, compare_to, weights)
        read = [path for path in given if isinstance(path, Path)]
        if save_inputs is not None:
            report_option.check_place(
                "--save-inputs",
                save_inputs,
                [*(found.local_path for found in paths if found.exact), *read],
            )
        report_option.check(
            report, paths, [*read, *([save_inputs] if save_inputs is not None else [])]
        )
        tools = tensorflow.tools(worker)
        found = _run_checks(paths, wanted, tools, compare_to, everything=all_layers)
    unwritten = report_option.write_reports(report, CHECK_REPORTERS, found)
    report_option.print_report(CHECK_REPORTERS, format, found, options.view(color), color)
    options.troubles(found.failures, unwritten)
    if found.check is None or unwritten or any(run.missing for run in found.check.runs):
        return Exit.FAILURE
    if found.check.is_regressed:
        return Exit.FINDINGS
    exits = {Answer.SAFE: Exit.CLEAN, Answer.NOT_SAFE: Exit.FINDINGS}
    undecided = Exit.CLEAN if accept_undecided else Exit.UNDECIDED
    return exits.get(found.check.answer, undecided)


def _paths(model: str | None, other: str | None, planned: Options) -> list[Input]:
    """
    Return the model, and the second one where there is one: of a directory, or of the working
    directory where none is named, the one that it holds.
    """
    named = [[path] for path in (model, other) if path is not None] or [[]]
    found = [_one(list(discovery.inputs(paths)), planned) for paths in named]
    return [one for several in found for one in several] if all(found) else []


def _one(found: list[Input], planned: Options) -> list[Input]:
    return (
        found
        if len(found) == 1 and found[0].exact
        else the_one_model(found, planned, Destination(write=False))
    )


def _run_checks(
    paths: list[Input],
    wanted: CheckOptions,
    tools: TensorFlowTools,
    compare_to: Path | None,
    *,
    everything: bool,
) -> Checks:
    try:
        if compare_to is not None:
            wanted = replace(wanted, earlier=read_earlier_check(compare_to))
        return Checks(
            check=check(paths[0], paths[1] if len(paths) > 1 else None, wanted, tools),
            everything=everything,
        )
    except ModelFileError as error:
        return Checks(failures=(Failure(path=error.path, code=error.code, message=error.message),))
    except WorkerError as error:
        return Checks(
            failures=(
                Failure(
                    path=paths[-1].display_path,
                    code=error.code,
                    message=str(error),
                    details=error.details,
                ),
            )
        )


def _devices(worker: Worker) -> int:
    """List what TensorFlow can run on here."""
    for device in devices(worker):
        click.echo(", ".join(described(device)))
    return Exit.CLEAN
