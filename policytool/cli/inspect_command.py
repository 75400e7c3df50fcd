"""``policytool inspect``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from policytool.cli import (
    cache_option,
    completion,
    messages,
    options,
    report_option,
    settings,
)
from policytool.cli.exit_codes import Exit
from policytool.cli.progress import left_out, track
from policytool.commands import inspect as inspection
from policytool.commands.batch import parallel
from policytool.commands.suggested_conversion import with_fix
from policytool.releases import policy
from policytool.reports.inspection import REPORTERS
from policytool.support.errors import PolicyNameError, UsageError

if TYPE_CHECKING:
    from policytool.cli.report_option import ReportFile

_ONLY = ("deprecated", "mixed")
_PAGES = {"table", "markdown", "html"}
"""Reports that print the command that converts a model."""


@settings.command("inspect")
@click.argument("paths", nargs=-1, metavar="[PATH]...", shell_complete=completion.files)
@options.format_option([reporter.name for reporter in REPORTERS])
@report_option.option(REPORTERS)
@click.option(
    "--layer",
    metavar="PATTERN",
    help="Show only layers whose path equals PATTERN or fully matches it as a regular expression.",
)
@click.option(
    "--only",
    metavar="deprecated|mixed|POLICY",
    shell_complete=completion.policies,
    help="Show only layers with a deprecated policy format, a mixed policy, or the policy POLICY.",
)
@click.option(
    "--variables",
    is_flag=True,
    help="Show the stored variables of each layer. JSON always lists them; CSV only counts them.",
)
@click.option(
    "--depth", type=click.IntRange(min=0), metavar="N", help="Show only N levels below the model."
)
@click.option(
    "-0", "--null", is_flag=True, help="Expect NUL instead of newlines between paths on stdin."
)
@click.option(
    "--releases",
    type=click.Choice(["current", "all"]),
    default="current",
    show_default=True,
    help="Show compatibility with the newest Keras and tf_keras, or with all releases.",
)
@options.jobs("read")
@cache_option.option
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
    releases: str,
    null: bool,
    jobs: int | None,
    cache: str | None,
    verbose: bool,
    quiet: bool,
    debug: bool,  # main() looks for it
    color: str,
    progress: str,
) -> int:
    """
    Show the dtype policy of each layer, and the releases that can load the model.

    PATH is an HDF5 file, a .keras file, a SavedModel directory, an architecture in JSON or YAML, a
    TensorFlow.js model.json, a checkpoint, a directory that contains models, a quoted glob, or -
    for a list of paths on stdin. Defaults to all models in the working directory.
    """
    if only is not None and only not in _ONLY:
        _check_policy(only)
    selection = inspection.Selection(
        layer=layer, only=only, depth=depth, every_release=releases == "all"
    )
    found = options.inputs(paths, null=null)
    report_option.check(report, found)
    kept = cache_option.open_cache(cache)
    inspected = inspection.collect(
        track(
            parallel.run_all(inspection.TASK, found, None, jobs, kept),
            len(found),
            progress,
            "inspect",
        )
    )
    selected = inspection.select(inspected, selection)
    if len(found) == len(inspected.models) == 1 and _PAGES & {
        format,
        *(one.format for one in report),
    }:
        selected = with_fix(selected, found[0])
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
        messages.note(left_out(inspected.passed_over))
    options.about_hdf5(verbose=verbose, quiet=quiet)
    cache_option.report_use(kept, verbose=verbose, quiet=quiet)
    if verbose:
        models, failures = len(inspected.models), len(inspected.failures)
        messages.note(
            f"{models} model{'s' if models != 1 else ''}, "
            f"{failures} failure{'s' if failures != 1 else ''}"
        )
    if inspected.failures or unwritten:
        return Exit.FAILURE
    if not inspected.models:
        messages.error("no model found")
        return Exit.NO_MODEL
    return Exit.CLEAN


def _check_policy(only: str) -> None:
    try:
        policy.policy_from_name(only)
    except PolicyNameError as error:
        raise UsageError(
            f"--only must be deprecated, mixed or a policy, not {only!r}: {error}"
        ) from error
