"""``policytool inspect``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from policytool.cli import completion, options, report_option
from policytool.cli.exit_codes import Exit
from policytool.cli.progress import left_out, track
from policytool.commands import inspect as inspection
from policytool.commands.batch import parallel
from policytool.releases import policy
from policytool.reports import REPORTERS
from policytool.support.errors import PolicyNameError, UsageError

if TYPE_CHECKING:
    from policytool.cli.report_option import ReportFile

_ONLY = ("deprecated", "mixed")


@click.command("inspect", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("paths", nargs=-1, metavar="[PATH]...", shell_complete=completion.files)
@options.format_option([reporter.name for reporter in REPORTERS])
@report_option.option(REPORTERS)
@click.option(
    "--layer",
    metavar="PATTERN",
    help="Show layers of this path, or whose path this regular expression matches in full.",
)
@click.option(
    "--only",
    metavar="deprecated|mixed|POLICY",
    shell_complete=completion.policies,
    help="Show layers with a deprecated spelling, a mixed policy, or this policy.",
)
@click.option(
    "--variables",
    is_flag=True,
    help="Show each layer's stored variables (JSON always has them, CSV counts them).",
)
@click.option(
    "--depth", type=click.IntRange(min=0), metavar="N", help="Show N levels below the model."
)
@click.option("-0", "--null", is_flag=True, help="Paths on stdin end in NUL instead of newlines.")
@options.jobs("read")
@options.limit_option
@options.common
def command(
    paths: tuple[str, ...],
    format: str,  # the option's name
    report: tuple[ReportFile, ...],
    layer: str | None,
    only: str | None,
    *,
    variables: bool,
    depth: int | None,
    null: bool,
    jobs: int | None,
    verbose: bool,
    quiet: bool,
    debug: bool,  # main() looks for it
    color: str,
    progress: str,
) -> int:
    """
    Report what each layer of saved models computes in, stores in, and why.

    PATH is an HDF5 file, a .keras file, a SavedModel directory, architecture JSON or YAML, a
    TensorFlow.js model.json, a directory with models below it, a quoted glob, or - for a list of
    paths on stdin. Without one, every model below the working directory is reported.
    """
    if only is not None and only not in _ONLY:
        _check_policy(only)
    selection = inspection.Selection(layer=layer, only=only, depth=depth)
    found = options.inputs(paths, null=null)
    report_option.check(report, found)
    inspected = inspection.collect(
        track(parallel.run_all(inspection.TASK, found, None, jobs), len(found), progress, "inspect")
    )
    selected = inspection.select(inspected, selection)
    unwritten = report_option.write_reports(report, REPORTERS, selected, variables=variables)
    click.echo(
        report_option.render_report(
            REPORTERS, format, selected, options.view(color, variables=variables)
        ),
        nl=False,
        color=color != "never",
    )
    options.troubles(inspected.failures, unwritten)
    if inspected.passed_over and not quiet:
        click.echo(f"policytool: {left_out(inspected.passed_over)}", err=True)
    options.about_hdf5(verbose=verbose, quiet=quiet)
    if verbose:
        click.echo(
            f"policytool: {len(inspected.models)} models, {len(inspected.failures)} failures",
            err=True,
        )
    if inspected.failures or unwritten:
        return Exit.FAILURE
    if not inspected.models:
        click.echo("policytool: no model found", err=True)
        return Exit.NO_MODEL
    return Exit.CLEAN


def _check_policy(only: str) -> None:
    try:
        policy.policy_from_name(only)
    except PolicyNameError as error:
        raise UsageError(f"--only takes deprecated, mixed, or a policy: {error}") from error
