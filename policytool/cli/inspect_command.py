"""``policytool inspect``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from policytool.cli import completion, fleets, messages, options
from policytool.cli.arguments import InspectCommandLine
from policytool.cli.command import declare_command
from policytool.cli.declared_options import Positional
from policytool.cli.exit_codes import Exit, exit_code_of_failures
from policytool.cli.fleets import Fleet, LinesReport
from policytool.cli.messages import left_out
from policytool.commands import inspect as inspection
from policytool.commands import suggested_conversion
from policytool.commands.arguments.reading import InspectArguments
from policytool.commands.batch import task
from policytool.releases import policy
from policytool.reports import json_lines
from policytool.reports.inspection import PARQUET_REPORTER, REPORTERS, has_sizes, model_values
from policytool.support.errors import PolicyNameError, UsageError
from policytool.support.files.remote_path import RemotePath
from policytool.support.text import codec

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from policytool.commands.inspect import Failure
    from policytool.formats.discovery import Input
    from policytool.model.model import Model

_ONLY = ("deprecated", "mixed")
_PAGES = {"table", "markdown", "html"}
"""Reports that print the command that converts a model."""

_WITHOUT_SIZES = {"table", "markdown"}
"""Reports with the sizes of layers only if the terminal is wide."""

_REPORTERS: Final[tuple[options.Renders[Any], ...]] = (*REPORTERS, PARQUET_REPORTER)


@declare_command(
    "inspect",
    InspectArguments,
    InspectCommandLine,
    positional=[
        Positional(
            "paths",
            "An HDF5 file, a .keras file, a SavedModel directory, an architecture in JSON or YAML, "
            "a TensorFlow.js model.json, a checkpoint, a directory that contains models, a quoted "
            "glob, a URL of one of these, or - for a list of paths on stdin. Defaults to all "
            "models in the working directory.",
            nargs=-1,
            metavar="[PATH]...",
            shell_complete=completion.files,
        )
    ],
    changes=options.attributes(_REPORTERS, [json_lines.FORMAT]),
)
def command(
    _arguments: InspectArguments, terminal: InspectCommandLine, *, paths: tuple[str, ...]
) -> int:
    """
    Show the dtype policy of each layer, and the releases that can load the model.
    """
    _check_options(terminal)
    options.check_binary(terminal.report_files, _REPORTERS, terminal.stdout_format)
    selection = inspection.Selection(
        layer=terminal.layer,
        only=terminal.only,
        depth=terminal.depth,
        every_release=terminal.releases == "all",
    )
    every = options.expand_inputs(paths, remote=True)
    options.check(terminal.report_files, every)
    cache = fleets.open_cache(terminal.cache)
    fleet = Fleet(command="inspect", terminal=terminal, every=every, cache=cache)
    if terminal.summary:
        return print_summary(fleet, terminal)
    extras: dict[str, inspection.ModelExtras] = {}
    results = inspection.check_selection(_models(fleet, terminal, extras), selection)
    if terminal.stdout_format == json_lines.FORMAT:
        return _print_lines(fleet, terminal, results, selection)
    inspected = inspection.collect(results)
    selected = replace(inspection.select(inspected, selection), extras=extras)
    failures = inspected.failures
    unwritten = options.publish(
        terminal, _REPORTERS, selected, failures, variables=terminal.variables
    )
    codes = [failure.code for failure in failures]
    return _finish(fleet, len(inspected.models), inspected.passed_over, codes, unwritten)


def print_summary(fleet: Fleet[Input], terminal: InspectCommandLine) -> int:
    """
    Print the summary of models, and return the exit code.

    :raises UsageError: for a format that is not available for a summary.
    """
    # only this option needs these modules
    from policytool.commands.summary import TASK, SummaryRequest, summarize
    from policytool.reports import summaries

    reporters: tuple[options.Renders[Any], ...] = (
        *summaries.SUMMARY_REPORTERS,
        summaries.PARQUET_REPORTER,
    )
    names = [reporter.name for reporter in reporters]
    if missing := terminal.formats - {*names}:
        raise UsageError(f"--summary has no format {min(missing)}; use one of {', '.join(names)}")
    request = SummaryRequest(every_release=terminal.releases == "all")
    keeps_records = bool(summaries.WITH_ROWS & terminal.formats)
    summary = summarize(fleet.results(TASK, request), request, keeps_records=keeps_records)
    unwritten = options.publish(terminal, reporters, summary, summary.failures)
    codes = [failure.code for failure in summary.failures]
    return _finish(fleet, summary.models, summary.passed_over, codes, unwritten)


def _models(
    fleet: Fleet[Input],
    terminal: InspectCommandLine,
    extras: dict[str, inspection.ModelExtras],
) -> Iterator[Model | Failure | None]:
    """
    Return the models as they are read.

    :param extras: where everything else that reports show of a model is added, by its path
    """
    inputs = fleet.inputs
    with_fix = (
        len(inputs) == 1
        and not isinstance(inputs[0].path, RemotePath)  # a plan would repeat the requests for it
        and _PAGES & terminal.formats
    )
    view = options.terminal_view(variables=terminal.variables)
    with_sizes = has_sizes(view) or bool(terminal.formats - _WITHOUT_SIZES)
    if with_fix:
        results = fleet.results(suggested_conversion.TASK, with_sizes)
        return suggested_conversion.models(results, extras)
    return fleet.results(inspection.TASK, with_sizes)


def _print_lines(
    fleet: Fleet[Input],
    terminal: InspectCommandLine,
    results: Iterable[Model | Failure | None],
    selection: inspection.Selection,
) -> int:
    """Print each result as soon as it is available, and return the exit code."""

    def values(model: Model) -> tuple[Mapping[str, Any], Mapping[str, int]]:
        return model_values(model, inspection.select_layers(model, selection)), {}

    def printed(lines: LinesReport) -> Iterator[Model | Failure | None]:
        for result in lines.write_all(results, lambda model: model.path, values):
            if isinstance(result, inspection.Failure):
                options.print_errors((result,))
            yield result

    names = task.names(fleet.every)
    with LinesReport("inspect", names, codec.encode(selection), terminal.shard) as lines:
        collected = inspection.collect(result for result in printed(lines) if terminal.report_files)
        selected = inspection.select(collected, selection)
        unwritten = options.write_reports(
            terminal.report_files, _REPORTERS, selected, variables=terminal.variables
        )
        options.print_errors((), unwritten)
        counts = lines.counts
        code = _finish(fleet, counts["models"], counts["skipped"], lines.failure_codes, unwritten)
        lines.end(code)
    return code


def _finish(
    fleet: Fleet[Input],
    models: int,
    skipped: int,
    failure_codes: Collection[str],
    unwritten: Sequence[str],
) -> int:
    """Print the notes below a report, and return the exit code."""
    verbose = fleet.terminal.verbose
    messages.notes([left_out(skipped, fleet.inputs)] if skipped else (), verbose=verbose)
    fleet.print_notes()
    if verbose:
        failures = len(failure_codes)
        messages.note(
            f"{models} model{'s' if models != 1 else ''}, "
            f"{failures} failure{'s' if failures != 1 else ''}"
        )
    if failure_codes or unwritten:
        return exit_code_of_failures(failure_codes)
    return Exit.CLEAN if models else fleets.no_model(fleet.every, fleet.terminal.shard)


def _check_options(terminal: InspectCommandLine) -> None:
    """
    Check that options do not contradict each other, and that the value of ``--only`` is a policy.

    :raises UsageError: if they do, or if it is not.
    """
    if terminal.only is not None and terminal.only not in _ONLY:
        _check_policy(terminal.only)
    if not terminal.summary:
        return
    selecting = {
        "--layer": terminal.layer,
        "--only": terminal.only,
        "--depth": terminal.depth,
        "--variables": terminal.variables or None,
    }
    if names := [name for name, value in selecting.items() if value is not None]:
        raise UsageError(
            f"--summary counts all layers and cannot be combined with {' or '.join(names)}"
        )
    if terminal.shard is not None:
        raise UsageError("--summary and --shard conflict: a summary counts all models")


def _check_policy(only: str) -> None:
    try:
        policy.policy_from_name(only)
    except PolicyNameError as error:
        raise UsageError(
            f"--only must be deprecated, mixed or a policy, not {only!r}: {error}"
        ) from error
