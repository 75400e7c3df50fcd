"""``policytool inspect``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import click

from policytool.cli import (
    cache_option,
    completion,
    messages,
    options,
    report_option,
    settings,
    shard_option,
)
from policytool.cli.exit_codes import Exit, of_failures
from policytool.cli.lines_report import LinesReport
from policytool.cli.progress import left_out, track
from policytool.commands import inspect as inspection
from policytool.commands import suggested_conversion
from policytool.commands.batch import parallel, shards
from policytool.releases import policy
from policytool.reports import json_lines
from policytool.reports.inspection import PARQUET_REPORTER, REPORTERS, model_values
from policytool.support.errors import PolicyNameError, UsageError
from policytool.support.files.remote_path import RemotePath
from policytool.support.text import codec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from policytool.cli.report_option import ReportFile
    from policytool.commands.batch.cache import ResultCache
    from policytool.commands.batch.shards import Shard
    from policytool.commands.inspect import Failure
    from policytool.formats.discovery import Input
    from policytool.model.model import Model

_ONLY = ("deprecated", "mixed")
_PAGES = {"table", "markdown", "html"}
"""Reports that print the command that converts a model."""

_REPORTERS: Final[tuple[report_option.Renders[Any], ...]] = (*REPORTERS, PARQUET_REPORTER)


@settings.command("inspect")
@click.argument("paths", nargs=-1, metavar="[PATH]...", shell_complete=completion.files)
@options.format_option([*(reporter.name for reporter in _REPORTERS), json_lines.FORMAT])
@report_option.option(_REPORTERS)
@click.option(
    "--summary",
    is_flag=True,
    help=(
        "Show one summary of all models: formats, releases, policies, sizes and possible savings. "
        "CSV and Parquet have one row for each model."
    ),
)
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
@options.scheduler
@cache_option.option
@shard_option.option
@options.limit_option
@options.common
def command(
    paths: tuple[str, ...],
    format: str,  # the option's name
    report: tuple[ReportFile, ...],
    layer: str | None,
    only: str | None,
    *,
    summary: bool,
    variables: bool,
    depth: int | None,
    releases: str,
    null: bool,
    jobs: int | None,
    scheduler: str | None,
    cache: str | None,
    shard: Shard | None,
    verbose: bool,
    quiet: bool,
    debug: bool,  # main() looks for it
    color: str,
    progress: str,
) -> int:
    """
    Show the dtype policy of each layer, and the releases that can load the model.

    PATH is an HDF5 file, a .keras file, a SavedModel directory, an architecture in JSON or YAML, a
    TensorFlow.js model.json, a checkpoint, a directory that contains models, a quoted glob, a URL
    of one of these, or - for a list of paths on stdin. Defaults to all models in the working
    directory.
    """
    if only is not None and only not in _ONLY:
        _check_policy(only)
    if summary:
        _check_no_selection(layer=layer, only=only, depth=depth, variables=variables or None)
    report_option.check_binary(report, _REPORTERS, format)
    selection = inspection.Selection(
        layer=layer, only=only, depth=depth, every_release=releases == "all"
    )
    every = options.inputs(paths, null=null, remote=True)
    report_option.check(report, every)
    found = shards.part(every, shard)
    kept = cache_option.open_cache(cache)
    ending = _Ending(every=every, shard=shard, kept=kept, verbose=verbose, quiet=quiet)
    if summary:
        from policytool.cli import inspect_summary  # only for this option

        if shard is not None:
            raise UsageError("--summary and --shard conflict: a summary counts all models")
        counts, codes, unwritten = inspect_summary.run(
            every,
            inspect_summary.SummaryRun(
                format=format,
                report=report,
                every_release=releases == "all",
                jobs=jobs,
                scheduler=scheduler,
                cache=kept,
                color=color,
                progress=progress,
            ),
        )
        return _finish(ending, counts, codes, unwritten)
    fixes: dict[str, inspection.SuggestedFix] = {}
    with_fix = (
        len(found) == 1
        and not isinstance(found[0].path, RemotePath)  # a plan would repeat the requests for it
        and _PAGES & {format, *(one.format for one in report)}
    )
    models: Iterable[Model | inspection.Failure | None]
    if with_fix:
        with_fixes = parallel.run_all(
            suggested_conversion.TASK, found, None, jobs, scheduler=scheduler, cache=kept
        )
        models = suggested_conversion.models(with_fixes, fixes)
    else:
        models = parallel.run_all(
            inspection.TASK, found, None, jobs, scheduler=scheduler, cache=kept
        )
    results = inspection.check_selection(track(models, len(found), progress, "inspect"), selection)
    if format == json_lines.FORMAT:
        return _print_lines(ending, results, selection, report, variables=variables)
    inspected = inspection.collect(results)
    selected = replace(inspection.select(inspected, selection), fixes=fixes)
    unwritten = report_option.write_reports(report, _REPORTERS, selected, variables=variables)
    view = options.view(color, variables=variables)
    report_option.print_report(_REPORTERS, format, selected, view, color)
    options.troubles(inspected.failures, unwritten)
    counts = {
        "models": len(inspected.models),
        "failures": len(inspected.failures),
        "skipped": inspected.passed_over,
    }
    return _finish(ending, counts, [one.code for one in inspected.failures], unwritten)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ending:
    """What decides how a run ends, and what it says then."""

    every: Sequence[Input]
    """The inputs of all shards."""

    shard: Shard | None
    kept: ResultCache | None
    verbose: bool
    quiet: bool


def _print_lines(
    ending: _Ending,
    results: Iterable[Model | Failure | None],
    selection: inspection.Selection,
    files: tuple[ReportFile, ...],
    *,
    variables: bool,
) -> int:
    """Print each result as it comes, and return the exit code."""

    def values(model: Model) -> tuple[Mapping[str, Any], Mapping[str, int]]:
        return model_values(model, inspection.select_layers(model, selection)), {}

    def printed(lines: LinesReport) -> Iterator[Model | Failure | None]:
        for result in lines.write_all(results, lambda model: model.path, values):
            if isinstance(result, inspection.Failure):
                options.troubles((result,))
            yield result

    names = shards.names(ending.every)
    with LinesReport("inspect", names, codec.encode(selection), ending.shard) as lines:
        kept = inspection.collect(result for result in printed(lines) if files)
        selected = inspection.select(kept, selection)
        unwritten = report_option.write_reports(files, _REPORTERS, selected, variables=variables)
        options.troubles((), unwritten)
        code = _finish(ending, lines.counts, lines.failure_codes, unwritten)
        lines.end(code)
    return code


def _finish(
    ending: _Ending,
    counts: Mapping[str, int],
    failure_codes: Iterable[str],
    unwritten: Sequence[str],
) -> int:
    """Print the notes below a report, and return the exit code."""
    if counts["skipped"] and not ending.quiet:
        messages.note(left_out(counts["skipped"]))
    options.about_hdf5(verbose=ending.verbose, quiet=ending.quiet)
    cache_option.report_use(ending.kept, verbose=ending.verbose, quiet=ending.quiet)
    if ending.verbose:
        models, failures = counts["models"], counts["failures"]
        messages.note(
            f"{models} model{'s' if models != 1 else ''}, "
            f"{failures} failure{'s' if failures != 1 else ''}"
        )
    if counts["failures"] or unwritten:
        return of_failures(failure_codes)
    return Exit.CLEAN if counts["models"] else shard_option.no_model(ending.every, ending.shard)


def _check_no_selection(**selecting: object) -> None:
    """
    Make sure that a summary is not asked for a part of the layers.

    :raises UsageError: if it is.
    """
    if names := [f"--{name}" for name, value in selecting.items() if value is not None]:
        raise UsageError(
            f"--summary counts all layers and cannot be combined with {' or '.join(names)}"
        )


def _check_policy(only: str) -> None:
    try:
        policy.policy_from_name(only)
    except PolicyNameError as error:
        raise UsageError(
            f"--only must be deprecated, mixed or a policy, not {only!r}: {error}"
        ) from error
