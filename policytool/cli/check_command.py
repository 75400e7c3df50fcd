"""``policytool check``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from policytool.cli import completion, options, policy_options, report_option, tensorflow_options
from policytool.cli.exit_codes import Exit
from policytool.cli.progress import steps
from policytool.commands.check import CheckOptions, check, devices
from policytool.commands.destinations import Destination
from policytool.commands.inspect import Failure
from policytool.commands.migrate_all import the_one_model
from policytool.formats import discovery
from policytool.migration.planning.options import Options, Outputs, assignment, checked_policy
from policytool.numerics.verdicts.tolerances import Tolerances, parse_tolerance
from policytool.numerics.workers import Worker
from policytool.releases.targets import target as named_target
from policytool.reports.checks import CHECK_REPORTERS, Checks, described
from policytool.support.errors import ModelFileError, UsageError, WorkerError

if TYPE_CHECKING:
    from policytool.cli.report_option import ReportFile
    from policytool.cli.tensorflow_options import TensorFlow
    from policytool.formats.discovery import Input
    from policytool.numerics.tensorflow_run import TensorFlowTools


@click.command("check", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("model", required=False, shell_complete=completion.files)
@click.argument("other", required=False, metavar="[B]", shell_complete=completion.files)
@click.option(
    "--to",
    "--policy",
    "to",
    metavar="POLICY",
    shell_complete=completion.policies,
    help="The candidate: the model under this policy, as migrate --to.",
)
@click.option(
    "--reference",
    metavar="POLICY",
    shell_complete=completion.policies,
    help="What it is held against.  [default: float32, or MODEL as it is with B]",
)
@policy_options.options
@click.option(
    "--target",
    shell_complete=completion.loaders,
    metavar="LOADER",
    help="Spell policies for --python's release, such as tf2.4.",
)
@click.option(
    "--weights",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The weights of an architecture.",
)
@click.option(
    "--inputs",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Inputs by name (.npz), or those of the one input (.npy), instead of synthetic ones.",
)
@click.option(
    "--batches",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="How many batches of synthetic inputs.",
)
@click.option("--batch-size", type=click.IntRange(min=1), metavar="N", help="Examples in a batch.")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="What synthetic inputs, and weights that no file gives, are drawn with.",
)
@click.option(
    "--save-inputs",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the inputs to a .npz file, for --inputs.",
)
@click.option(
    "--isolated/--no-isolated",
    default=True,
    show_default=True,
    help="Whether each layer also runs alone, with the reference's activations.",
)
@click.option(
    "--gradients",
    is_flag=True,
    help="Make one backward step too, and count the gradients that loss scaling would save.",
)
@click.option(
    "--device",
    default="auto",
    show_default=True,
    metavar="auto|cpu|gpu:N|all",
    help="Where to run; all runs the GPUs side by side.",
)
@click.option("--list-devices", is_flag=True, help="List the devices that there are, and exit.")
@click.option(
    "--tf32",
    is_flag=True,
    help="Measure as well what TF32 does to the reference, on a GPU that has it.",
)
@click.option(
    "--deterministic", is_flag=True, help="Let TensorFlow use deterministic kernels alone."
)
@click.option(
    "--tolerance",
    multiple=True,
    metavar="[PATTERN=]NUMBER",
    help="The relative error allowed, for all or for an output or layers.",
)
@click.option("--timing", is_flag=True, help="Measure latency, throughput and peak memory of both.")
@click.option("--all-layers", is_flag=True, help="Show every layer instead of the worst.")
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
    inputs: Path | None,
    batches: int,
    batch_size: int | None,
    seed: int,
    save_inputs: Path | None,
    isolated: bool,
    gradients: bool,
    device: str,
    list_devices: bool,
    tf32: bool,
    deterministic: bool,
    tolerance: tuple[str, ...],
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
    Run a saved model under a policy and compare it with float32, layer by layer; exit 1 where it is
    farther off than its dtypes explain.

    The candidate is MODEL under --to, or as it is; the reference is MODEL in float32. With B, the
    candidate is B and the reference MODEL, such as a file before and after migrate. Inputs are
    synthetic unless --inputs gives real ones.

    TensorFlow runs in a process of its own. Without --trust it loads a model only if all in it is
    on an allow-list of what only computes.
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
            "B is the candidate as it is; options that plan a candidate (--to, --set, ...) go with "
            "MODEL alone"
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
        deterministic=deterministic,
        device=device,
        tolerances=Tolerances(given=tuple(parse_tolerance(text) for text in tolerance)),
    )
    with Worker(tensorflow.interpreter, steps(progress)) as worker:
        if list_devices:
            return _devices(worker)
        paths = _paths(model, other, planned)
        if not paths:
            click.echo("policytool: no model found", err=True)
            return Exit.NO_MODEL
        read = [path for path in (inputs, weights) if path is not None]
        if save_inputs is not None:
            report_option.check_place(
                "--save-inputs",
                save_inputs,
                [*(found.path for found in paths if found.exact), *read],
            )
        report_option.check(
            report, paths, [*read, *([save_inputs] if save_inputs is not None else [])]
        )
        tools = tensorflow.tools(worker)
        found = _run_checks(paths, wanted, tools, everything=all_layers)
    unwritten = report_option.write_reports(report, CHECK_REPORTERS, found)
    click.echo(
        report_option.render_report(CHECK_REPORTERS, format, found, options.view(color)),
        nl=False,
        color=color != "never",
    )
    options.troubles(found.failures, unwritten, debug=debug)
    if found.check is None or unwritten or any(run.missing for run in found.check.runs):
        return Exit.FAILURE
    return Exit.CLEAN if found.check.passed else Exit.FINDINGS


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
    paths: list[Input], wanted: CheckOptions, tools: TensorFlowTools, *, everything: bool
) -> Checks:
    try:
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
