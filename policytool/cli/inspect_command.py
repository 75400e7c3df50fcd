"""``policytool inspect``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from policytool.cli import completion, fleets, messages, options, report_option
from policytool.cli.arguments import InspectCommandLine
from policytool.cli.command import declare_command
from policytool.cli.declared_options import Positional
from policytool.cli.exit_codes import Exit, of_failures
from policytool.cli.lines_report import LinesReport
from policytool.cli.messages import left_out, track
from policytool.commands import inspect as inspection
from policytool.commands import suggested_conversion
from policytool.commands.arguments.reading import InspectArguments
from policytool.commands.batch import parallel, task
from policytool.releases import policy
from policytool.reports import json_lines
from policytool.reports.inspection import PARQUET_REPORTER, REPORTERS, has_sizes, model_values
from policytool.support.errors import PolicyNameError, UsageError
from policytool.support.files.remote_path import RemotePath
from policytool.support.text import codec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from policytool.commands.batch.cache import ResultCache
    from policytool.commands.inspect import Failure
    from policytool.formats.discovery import Input
    from policytool.model.model import Model

_ONLY = ("deprecated", "mixed")
_PAGES = {"table", "markdown", "html"}
"""Reports that print the command that converts a model."""

_WITHOUT_SIZES = {"table", "markdown"}
"""Reports that have the sizes of layers only if they are wide."""

_REPORTERS: Final[tuple[report_option.Renders[Any], ...]] = (*REPORTERS, PARQUET_REPORTER)


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
    changes=report_option.attributes(_REPORTERS, [json_lines.FORMAT]),
)
def command(
    _arguments: InspectArguments, terminal: InspectCommandLine, *, paths: tuple[str, ...]
) -> int:
    """
    Show the dtype policy of each layer, and the releases that can load the model.
    """
    if terminal.only is not None and terminal.only not in _ONLY:
        _check_policy(terminal.only)
    if terminal.summary:
        _check_no_selection(
            layer=terminal.layer,
            only=terminal.only,
            depth=terminal.depth,
            variables=terminal.variables or None,
        )
    report_option.check_binary(terminal.report_files, _REPORTERS, terminal.stdout_format)
    selection = inspection.Selection(
        layer=terminal.layer,
        only=terminal.only,
        depth=terminal.depth,
        every_release=terminal.releases == "all",
    )
    every = options.expand_inputs(paths, remote=True)
    report_option.check(terminal.report_files, every)
    inputs = task.shard_items(every, terminal.shard)
    kept = fleets.open_cache(terminal.cache)
    ending = _Ending(every=every, kept=kept, terminal=terminal)
    if terminal.summary:
        from policytool.cli import inspect_summary  # only for this option

        if terminal.shard is not None:
            raise UsageError("--summary and --shard conflict: a summary counts all models")
        counts, codes, unwritten = inspect_summary.run(every, terminal, kept)
        return _finish(ending, counts, codes, unwritten)
    fixes: dict[str, inspection.SuggestedFix] = {}
    with_fix = (
        len(inputs) == 1
        and not isinstance(inputs[0].path, RemotePath)  # a plan would repeat the requests for it
        and _PAGES & terminal.formats
    )
    view = options.view(terminal.color, variables=terminal.variables)
    with_sizes = has_sizes(view) or bool(terminal.formats - _WITHOUT_SIZES)
    models: Iterable[Model | inspection.Failure | None]
    if with_fix:
        with_fixes = parallel.run_all(
            suggested_conversion.TASK,
            inputs,
            with_sizes,
            terminal.jobs,
            cache=kept,
        )
        models = suggested_conversion.models(with_fixes, fixes)
    else:
        models = parallel.run_all(inspection.TASK, inputs, with_sizes, terminal.jobs, cache=kept)
    results = inspection.check_selection(
        track(models, len(inputs), "inspect", verbose=terminal.verbose), selection
    )
    if terminal.stdout_format == json_lines.FORMAT:
        return _print_lines(ending, results, selection)
    inspected = inspection.collect(results)
    selected = replace(inspection.select(inspected, selection), fixes=fixes)
    unwritten = report_option.publish(
        terminal, _REPORTERS, selected, inspected.failures, variables=terminal.variables
    )
    counts = {
        "models": len(inspected.models),
        "failures": len(inspected.failures),
        "skipped": inspected.passed_over,
    }
    return _finish(ending, counts, [failure.code for failure in inspected.failures], unwritten)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ending:
    """What decides how a run ends, and what it says then."""

    every: Sequence[Input]
    """The inputs of all shards."""

    kept: ResultCache | None
    terminal: InspectCommandLine


def _print_lines(
    ending: _Ending, results: Iterable[Model | Failure | None], selection: inspection.Selection
) -> int:
    """Print each result as it comes, and return the exit code."""

    def values(model: Model) -> tuple[Mapping[str, Any], Mapping[str, int]]:
        return model_values(model, inspection.select_layers(model, selection)), {}

    def printed(lines: LinesReport) -> Iterator[Model | Failure | None]:
        for result in lines.write_all(results, lambda model: model.path, values):
            if isinstance(result, inspection.Failure):
                options.print_errors((result,))
            yield result

    names, terminal = task.names(ending.every), ending.terminal
    with LinesReport("inspect", names, codec.encode(selection), terminal.shard) as lines:
        kept = inspection.collect(result for result in printed(lines) if terminal.report_files)
        selected = inspection.select(kept, selection)
        unwritten = report_option.write_reports(
            terminal.report_files, _REPORTERS, selected, variables=terminal.variables
        )
        options.print_errors((), unwritten)
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
    verbose, quiet = bool(ending.terminal.verbose), ending.terminal.verbose is False
    if counts["skipped"] and not quiet:
        messages.note(left_out(counts["skipped"]))
    options.about_hdf5(verbose=verbose, quiet=quiet)
    fleets.report_use(ending.kept, verbose=verbose, quiet=quiet)
    if verbose:
        models, failures = counts["models"], counts["failures"]
        messages.note(
            f"{models} model{'s' if models != 1 else ''}, "
            f"{failures} failure{'s' if failures != 1 else ''}"
        )
    if counts["failures"] or unwritten:
        return of_failures(failure_codes)
    return Exit.CLEAN if counts["models"] else fleets.no_model(ending.every, ending.terminal.shard)


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
