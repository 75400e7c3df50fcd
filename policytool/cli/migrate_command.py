"""``policytool migrate``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from policytool.cli import completion, fleets, messages, options, settings
from policytool.cli.arguments import TABLE, MigrateCommandLine
from policytool.cli.command import declare_command
from policytool.cli.declared_options import AUTO, Positional
from policytool.cli.exit_codes import Exit, exit_code_of_failures
from policytool.cli.fleets import LinesReport
from policytool.cli.messages import left_out, noting, steps, track
from policytool.commands import remote_migration, tensorflow
from policytool.commands.arguments.declaration import as_path
from policytool.commands.arguments.migrate import MigrateArguments
from policytool.commands.batch import task
from policytool.commands.destinations import without_outputs
from policytool.commands.inspect import Failure, separate_failures
from policytool.commands.migrate import Migration, Status
from policytool.commands.migrate_all import (
    ON_A_CLUSTER,
    migrate_all,
    migrate_destination,
    migrate_interpreters,
    migrate_options,
    migrate_saved,
    saved_plans_in,
    the_one_model,
)
from policytool.formats import discovery
from policytool.formats.discovery import display_path
from policytool.migration.planning.options import Options
from policytool.numerics.workers import Worker
from policytool.reports import json_lines
from policytool.reports.plans import PLAN_REPORTERS, Migrations, plan_values
from policytool.support.errors import UsageError
from policytool.support.files import transfers
from policytool.support.spilled_values import SpilledValues
from policytool.support.text import codec

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from policytool.commands.destinations import Destination
    from policytool.commands.migrate import Result
    from policytool.commands.saved_plans import SavedPlan
    from policytool.formats.discovery import Input
    from policytool.numerics.tensorflow_run import TensorFlowTools

_DETAILED: Final = frozenset({"diff", "html"})
"""The formats that need the layers and the documents that change."""

_OR_ALL: Final = ", or use a quoted glob for all of them"


@declare_command(
    "migrate",
    MigrateArguments,
    MigrateCommandLine,
    positional=[
        Positional(
            "paths",
            "An HDF5 file, a .keras file, a SavedModel, an architecture in JSON or YAML, a "
            "TensorFlow.js model.json, a directory that contains models, a quoted glob, a URL of "
            "one of these, or - for a list of paths on stdin. Defaults to the model in the working "
            "directory if there is exactly one.",
            nargs=-1,
            metavar="[PATH]...",
            shell_complete=completion.files,
        )
    ],
    changes={
        **options.attributes(PLAN_REPORTERS, [json_lines.FORMAT]),
        "preview": {
            "help": "Show the changes without writing files, and exit 1 if a file would change."
        },
    },
)
def command(
    arguments: MigrateArguments, terminal: MigrateCommandLine, *, paths: tuple[str, ...]
) -> int:
    """
    Rewrite dtype policies, or convert models for another release. The original is unchanged unless
    --in-place is set.

    Without options, migrate replaces deprecated policy formats with the current one, and
    predictions stay unchanged. --target edits the model or, if necessary, converts it into a new
    file. If the target cannot represent part of the model, migrate reports the layer and the key,
    and writes nothing. It copies weights unchanged unless their dtype changes.

    The model of a URL is copied to a temporary directory if it changes.

    Only --target, --verify and --retrace run TensorFlow, in a separate process. --target does so
    only if TensorFlow is installed and all code in the model is on an allow-list.
    """
    planned, destination = migrate_options(arguments), migrate_destination(arguments)
    listed = list(options.expand_stdin(paths))
    source, target = migrate_interpreters(arguments)
    show = steps(verbose=terminal.verbose)
    with (
        Worker(source, show, noting(verbose=terminal.verbose)) as worker,
        Worker(target, show, noting(verbose=terminal.verbose)) as other,
        transfers.reporting(show),
    ):
        tools = _tools(arguments, terminal, worker, other)
        inputs = list(discovery.inputs(listed, remote=True)) if listed else []
        if not paths and terminal.plan is None:
            inputs = the_one_model(discovery.inputs([]), planned, destination, _OR_ALL)
        files = [path for path in (terminal.plan, destination.output) if path is not None]
        options.check(terminal.report_files, inputs, files)
        if terminal.plan is None:
            work = _work_of_models(inputs, (planned, destination), tools, terminal, arguments)
        elif planned == Options():
            work = _work_of_plans(terminal.plan, listed, destination, tools, terminal)
        else:
            raise UsageError(
                "--plan applies a saved plan and cannot be combined with options that change the "
                "plan (--to, --set, ...)"
            )
        if terminal.stdout_format == json_lines.FORMAT:
            verify = AUTO if arguments.verify is None else str(arguments.verify)
            return _print_lines(work, [work.plans, planned, destination, verify], terminal)
        migrations, skipped = _collect(work.results)
    code = _report(migrations, terminal, work.every, skipped=skipped)
    return fleets.no_model(work.every, terminal.shard) if code == Exit.NO_MODEL else code


def _tools(
    arguments: MigrateArguments, terminal: MigrateCommandLine, worker: Worker, other: Worker
) -> TensorFlowTools:
    """
    Return the tools that use the child processes. A run on a cluster has no tools, because its
    workers do not run TensorFlow.

    :raises UsageError: if the options request a comparison on a cluster.
    """
    verify, reason = arguments.verify, _no_verify_reason(verify=arguments.verify)
    if isinstance(terminal.jobs, str):
        if arguments.retrace or verify:
            option = "--retrace" if arguments.retrace else "--verify"
            raise UsageError(f"{ON_A_CLUSTER} and cannot be combined with {option}")
        reason = reason or ON_A_CLUSTER
    return tensorflow.tools(arguments, worker, other, verify=verify, no_verify_reason=reason)


class _Work(NamedTuple):
    """The work of a run: the migration of models, or the application of saved plans."""

    every: Sequence[object]
    """The models or plans of all shards."""

    names: Sequence[str]
    results: Iterator[Result]
    plans: Sequence[SavedPlan] = ()


def _work_of_models(
    inputs: Sequence[Input],
    request: tuple[Options, Destination],
    tools: TensorFlowTools,
    terminal: MigrateCommandLine,
    arguments: MigrateArguments,
) -> _Work:
    """
    Return the migration of models.

    :raises UsageError: if outputs conflict with each other or with the inputs.
    """
    planned, destination = request
    remote_migration.check((model.path for model in inputs), destination)
    every = without_outputs(inputs, planned.suffix, destination)
    sources = [(model.path, planned.suffix) for model in every]
    task.check_outputs(sources, destination, terminal.shard)
    part = task.shard_items(every, terminal.shard)
    results = migrate_all(
        part,
        planned,
        destination,
        tools,
        jobs=terminal.jobs,
        details=not terminal.formats.isdisjoint(_DETAILED),
        several=len(every) > 1,
        weights=as_path(arguments.weights),
    )
    tracked_results = track(results, len(part), "migrate", verbose=terminal.verbose)
    return _Work(every, task.names(every), tracked_results)


def _work_of_plans(
    file: Path,
    listed: Sequence[str],
    destination: Destination,
    tools: TensorFlowTools,
    terminal: MigrateCommandLine,
) -> _Work:
    """
    Return the application of saved plans.

    :raises UsageError: if outputs conflict with each other or with the inputs, and for paths
        without a plan.
    """
    plans = saved_plans_in(file, tuple(listed))
    remote_migration.check((saved.path for saved in plans), destination)
    sources = [(saved.path, saved.plan.suffix) for saved in plans]
    task.check_outputs(sources, destination, terminal.shard)
    part = task.shard_items(plans, terminal.shard)
    details = not terminal.formats.isdisjoint(_DETAILED)
    results = migrate_saved(part, destination, tools, jobs=terminal.jobs, details=details)
    return _Work(plans, [saved.display_path for saved in plans], results, plans)


def _no_verify_reason(*, verify: bool | None) -> str | None:
    """Return the reason why the default comparison of predictions is off; None if it is on."""
    if verify is False:
        file = settings.automatic_source("verify")
        return "--no-verify" if file is None else f"verify = false in {file.display_path}"
    file = settings.automatic_source("target") if verify is None else None
    if file is None:
        return None
    return (
        f"{file.display_path} sets the target, but was not specified with --config; use --verify "
        "to compare predictions"
    )


def _collect(results: Iterable[Result]) -> tuple[Migrations, int]:
    """
    Return all results and the number of skipped inputs. If an exception interrupts the run, report
    the files already written.
    """
    migrations = SpilledValues(Migration)
    try:
        failures, skipped = separate_failures(results, migrations.append)
    except BaseException:
        for migration in migrations:
            if migration.written is not None:
                messages.note(
                    f"{migration.plan.path} was already written: "
                    f"{display_path(migration.target or migration.written.target)}"
                )
        raise
    return Migrations(migrations=migrations.all(), failures=failures), skipped


def _print_lines(work: _Work, request: Sequence[object], terminal: MigrateCommandLine) -> int:
    """
    Print the result of each model as soon as it is available, and return the exit code.

    :param request: all values that affect the results
    """
    shard, count_names = terminal.shard, map(_count_name, Status)
    lines = LinesReport("migrate", work.names, codec.encode(request), shard, counts=count_names)

    def values(migration: Migration) -> tuple[Mapping[str, Any], Mapping[str, int]]:
        return plan_values(migration), {_count_name(migration.status): 1}

    def write_and_print() -> Iterator[Result]:
        for result in lines.write_all(work.results, lambda migration: migration.plan.path, values):
            migrations = _migrations(result)
            _print_errors(migrations, refusals=True)
            _print_notes(migrations.migrations, quiet=terminal.verbose is False)
            yield result

    with lines:
        collected, _ = _collect(result for result in write_and_print() if terminal.report_files)
        unwritten = options.write_reports(terminal.report_files, PLAN_REPORTERS, collected)
        options.print_errors((), unwritten)
        counts = lines.counts
        statuses = {status: counts[_count_name(status)] for status in Status}
        _print_summary(statuses, counts["failures"], counts["skipped"], work.every, terminal)
        code: int = _code(statuses, lines.failure_codes, unwritten)
        if code == Exit.NO_MODEL:
            code = fleets.no_model(work.every, terminal.shard)
        lines.end(code)
    return code


def _count_name(status: Status) -> str:
    """Return the key of a count in the last line."""
    return f"models_{status.value}"


def _migrations(result: Result) -> Migrations:
    """Return the migrations that contain only this result."""
    return Migrations(
        migrations=(result,) if isinstance(result, Migration) else (),
        failures=(result,) if isinstance(result, Failure) else (),
    )


def _report(
    migrations: Migrations, terminal: MigrateCommandLine, every: Sequence[object], *, skipped: int
) -> int:
    """Print the reports and messages, and return the exit code."""
    unwritten = options.publish(terminal, PLAN_REPORTERS, migrations)
    _print_errors(migrations, refusals=terminal.stdout_format != TABLE)
    _print_notes(migrations.migrations, quiet=terminal.verbose is False)
    counts = Counter(migration.status for migration in migrations.migrations)
    statuses = {status: counts[status] for status in Status}
    _print_summary(statuses, len(migrations.failures), skipped, every, terminal)
    codes = [failure.code for failure in migrations.failures]
    return _code(statuses, codes, unwritten)


def _code(
    statuses: Mapping[Status, int], failure_codes: Collection[str], unwritten: Sequence[str]
) -> Exit:
    """Return the exit code for the number of migrations with each status, and the failures."""
    if failure_codes or unwritten or statuses[Status.BLOCKED]:
        return exit_code_of_failures(failure_codes)
    if statuses[Status.MISSED] or statuses[Status.PLANNED]:
        return Exit.FINDINGS
    return Exit.CLEAN if any(statuses.values()) else Exit.NO_MODEL


def _print_errors(migrations: Migrations, *, refusals: bool) -> None:
    """
    Print failures on stderr; also refusals, unless the report on stdout is a table, which contains
    them.
    """
    options.print_errors(migrations.failures)
    for migration in migrations.migrations if refusals else ():
        for refusal in migration.plan.refusals:
            messages.error(refusal.message, path=migration.plan.path, code=refusal.code)


def _print_notes(migrations: Iterable[Migration], *, quiet: bool) -> None:
    """Print a note for each replaced file that has another name."""
    for migration in migrations:
        if migration.written is not None and migration.written.followed_link and not quiet:
            messages.note(
                f"{migration.plan.path} is a link; its target was replaced: "
                f"{migration.written.target}"
            )


def _print_summary(
    statuses: Mapping[Status, int],
    failures: int,
    skipped: int,
    every: Sequence[object],
    terminal: MigrateCommandLine,
) -> None:
    if terminal.verbose is False:
        return
    if skipped:
        messages.note(left_out(skipped, every, weights=True))
    several = sum(statuses.values()) + failures + skipped > 1
    if terminal.verbose or several:
        summary = ", ".join(
            f"{count} {status.value}" for status, count in statuses.items() if count
        )
        messages.note((summary or "no models") + (f", {failures} failed" if failures else ""))
