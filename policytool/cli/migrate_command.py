"""``policytool migrate``."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from policytool.cli import (
    completion,
    messages,
    options,
    policy_options,
    report_option,
    settings,
    shard_option,
    tensorflow_options,
)
from policytool.cli.exit_codes import Exit, of_failures
from policytool.cli.lines_report import LinesReport
from policytool.cli.local_paths import LocalPath
from policytool.cli.progress import left_out, steps, track
from policytool.commands import remote_migration
from policytool.commands.batch import shards
from policytool.commands.destinations import Destination, without_outputs
from policytool.commands.inspect import Failure, take
from policytool.commands.migrate import Migration, Status
from policytool.commands.migrate_all import (
    migrate_all,
    migrate_saved,
    saved_plans_in,
    the_one_model,
)
from policytool.formats import discovery
from policytool.formats.discovery import display_path
from policytool.migration.planning.options import (
    LossScales,
    Optimizers,
    Options,
    Outputs,
    assignment,
    checked_policy,
)
from policytool.numerics.verification import SECONDS
from policytool.numerics.workers import Worker
from policytool.releases.targets import descriptions, running_release, target_and_containers
from policytool.reports import json_lines
from policytool.reports.plans import PLAN_REPORTERS, Migrations, plan_values
from policytool.support.errors import UsageError
from policytool.support.files import transfers
from policytool.support.files.remote_path import from_text
from policytool.support.spilled_values import SpilledValues
from policytool.support.text import codec

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from policytool.cli.report_option import ReportFile
    from policytool.cli.tensorflow_options import TensorFlow
    from policytool.commands.batch.shards import Shard
    from policytool.commands.migrate import Result
    from policytool.commands.saved_plans import SavedPlan
    from policytool.numerics.tensorflow_run import TensorFlowTools

_DIFF: Final = "diff"
_OR_ALL: Final = ", or use a quoted glob for all of them"
_FORMATS: Final = [
    *(reporter.name for reporter in PLAN_REPORTERS if reporter.name != _DIFF),
    json_lines.FORMAT,
]


@settings.command("migrate")
@click.argument("paths", nargs=-1, metavar="[PATH]...", shell_complete=completion.files)
@click.option(
    "--to",
    metavar="POLICY",
    shell_complete=completion.policies,
    help="New policy for all layers that use the model's policy.",
)
@policy_options.options
@click.option(
    "--loss-scale",
    type=click.Choice([one.value for one in LossScales]),
    default=LossScales.DROP.value,
    show_default=True,
    help="Drop the loss scale of a policy, or keep it by moving it to the optimizer.",
)
@click.option(
    "--optimizer",
    type=click.Choice([one.value for one in Optimizers]),
    default=Optimizers.FOLLOW.value,
    show_default=True,
    help="Adapt the saved optimizer's loss scaling to the new policy, or leave it unchanged.",
)
@click.option(
    "--target",
    shell_complete=completion.targets,
    metavar="RELEASE",
    help="Write the model for this release, such as keras3, tf_keras or tf2.4, and convert it if "
    "necessary.",
)
@click.option("--list-targets", is_flag=True, help="List the values for --target and exit.")
@click.option(
    "--allow-weight-rewrite",
    is_flag=True,
    help="Allow conversions to rescale weights if predictions would otherwise change.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(readable=False),
    metavar="FILE|DIR",
    help="Output file or directory, or a URL such as s3://BUCKET/DIR/.  [default: next to the "
    "input]",
)
@click.option(
    "--in-place", is_flag=True, help="Replace the input, and keep the original as NAME.bak."
)
@click.option(
    "--backup/--no-backup",
    default=True,
    show_default=True,
    help="With --in-place, keep the original as NAME.bak.",
)
@click.option("--overwrite", is_flag=True, help="Replace existing outputs and backups.")
@click.option(
    "--skip-existing",
    is_flag=True,
    help="Skip models whose output exists, for example after an interrupted run.",
)
@click.option(
    "--allow-overflow",
    is_flag=True,
    help="Write values that overflow the new dtype as infinity.",
)
@click.option("--dry-run", is_flag=True, help="Show the plan without writing files.")
@click.option("--diff", is_flag=True, help="Show config differences without writing files.")
@click.option("--check", is_flag=True, help="Exit 1 if a file would change, without writing files.")
@click.option(
    "--retrace",
    is_flag=True,
    help="Re-export SavedModels with TensorFlow, so that their graphs and variables follow the new "
    "policies.",
)
@tensorflow_options.verify_option
@tensorflow_options.two_sided
@click.option(
    "--plan",
    type=LocalPath(path_type=Path),
    metavar="FILE",
    help="Apply a plan saved with --dry-run --format json.",
)
@options.format_option(_FORMATS)
@report_option.option(PLAN_REPORTERS)
@click.option(
    "-0", "--null", is_flag=True, help="Expect NUL instead of newlines between paths on stdin."
)
@options.jobs("migrate")
@options.scheduler
@shard_option.option
@options.limit_option
@options.common
def command(
    *,
    paths: tuple[str, ...],
    to: str | None,
    set: tuple[str, ...],  # the option's name
    outputs: str,
    loss_scale: str,
    optimizer: str,
    target: str | None,
    list_targets: bool,
    allow_weight_rewrite: bool,
    output: str | None,
    plan: Path | None,
    format: str,  # the option's name
    report: tuple[ReportFile, ...],
    include_exceptions: bool,
    in_place: bool,
    backup: bool,
    overwrite: bool,
    skip_existing: bool,
    allow_overflow: bool,
    dry_run: bool,
    diff: bool,
    check: bool,
    retrace: bool,
    verify: bool | str,
    tensorflow: TensorFlow,
    null: bool,
    jobs: int | None,
    scheduler: str | None,
    shard: Shard | None,
    verbose: bool,
    quiet: bool,
    debug: bool,  # main() looks for it
    color: str,
    progress: str,
) -> int:
    """
    Rewrite dtype policies, or convert models for another release. The original is unchanged unless
    --in-place is set.

    Without options, migrate replaces deprecated policy formats with the current one, and
    predictions stay unchanged. --target edits the model or, if necessary, converts it into a new
    file. If the target cannot represent part of the model, migrate reports the layer and the key,
    and writes nothing. It copies weights unchanged unless their dtype changes.

    PATH is an HDF5 file, a .keras file, a SavedModel, an architecture in JSON or YAML, a
    TensorFlow.js model.json, a directory that contains models, a quoted glob, a URL of one of
    these, or - for a list of paths on stdin. Defaults to the model in the working directory if
    there is exactly one. A URL is copied to a temporary directory if its model changes.

    Only --target, --verify and --retrace run TensorFlow, in a separate process. --target does so
    only if TensorFlow is installed and all code in the model is on an allow-list.
    """
    if list_targets:
        click.echo("\n".join(f"{name:<12}  {text}" for name, text in descriptions()))
        return Exit.CLEAN
    if in_place and output is not None:
        raise UsageError(
            "--in-place and -o conflict: --in-place replaces the input, and -o leaves it unchanged"
        )
    if skip_existing and (in_place or overwrite):
        raise UsageError(
            f"--skip-existing and {'--in-place' if in_place else '--overwrite'} conflict: the "
            "first keeps existing files, and the second replaces them"
        )
    if output == "-":
        raise UsageError(
            "-o - is not supported: models cannot be written to stdout; specify a file or a "
            "directory"
        )
    loader, containers = target_and_containers(target) if target is not None else (None, ())
    asked = Options(
        to=checked_policy(to, "--to") if to is not None else None,
        assignments=tuple(assignment(text) for text in set),
        include_exceptions=include_exceptions,
        outputs=Outputs(outputs),
        loss_scale=LossScales(loss_scale),
        optimizer=Optimizers(optimizer),
        target=loader,
        target_name=target,
        running=running_release(target),
        containers=containers,
        retrace=retrace,
        allow_weight_rewrite=allow_weight_rewrite,
    )
    destination = Destination(
        output=from_text(output) if output is not None else None,
        is_directory=output is not None and output.endswith(("/", os.sep)),
        in_place=in_place,
        backup=backup,
        overwrite=overwrite,
        skip_existing=skip_existing,
        allow_overflow=allow_overflow,
        write=not (dry_run or diff or check),
    )
    listed = list(options.expand_stdin(paths, null=null))
    others = [path for path in (plan, destination.output) if path is not None]
    if target is not None and verify == tensorflow_options.AUTO and not retrace:
        tensorflow = tensorflow.with_time_limit(SECONDS)
    parts = diff or any(file.format == _DIFF for file in report)
    with (
        Worker(tensorflow.interpreter, steps(progress)) as worker,
        Worker(tensorflow.target, steps(progress)) as other,
        transfers.reporting(steps(progress)),
    ):
        tools = tensorflow.tools(worker, other, verify=verify)
        if scheduler is not None:
            tools = _without_verification(tools, retrace=retrace)
        plans: list[SavedPlan] = []
        if plan is not None:
            report_option.check(
                report, discovery.inputs(listed, remote=True) if listed else (), others
            )
            if asked != Options():
                raise UsageError(
                    "--plan applies a saved plan and cannot be combined with options that change "
                    "the plan (--to, --set, ...)"
                )
            plans = saved_plans_in(plan, tuple(listed))
            remote_migration.check((one.path for one in plans), destination)
            every: Sequence[object] = plans
            names = [one.display_path for one in plans]
            sources, suffixes = [one.path for one in plans], [one.plan.suffix for one in plans]
            part = shards.part(plans, shard)
            running = migrate_saved(
                part, destination, tools, jobs=jobs, scheduler=scheduler, parts=parts
            )
        else:
            inputs = (
                list(discovery.inputs(listed, remote=True))
                if listed
                else []
                if paths
                else the_one_model(discovery.inputs([]), asked, destination, _OR_ALL)
            )
            report_option.check(report, inputs, others)
            remote_migration.check((one.path for one in inputs), destination)
            every = inputs = without_outputs(inputs, asked.suffix, destination)
            names = shards.names(inputs)
            sources, suffixes = [one.path for one in inputs], [asked.suffix] * len(inputs)
            found = shards.part(inputs, shard)
            running = track(
                migrate_all(
                    found,
                    asked,
                    destination,
                    tools,
                    jobs=jobs,
                    scheduler=scheduler,
                    parts=parts,
                    several=len(inputs) > 1,
                ),
                len(found),
                progress,
                "migrate",
            )
        shards.check_outputs(sources, suffixes, destination, shard)
        if format == json_lines.FORMAT and not diff:
            request = [plans, asked, destination, str(verify), check]
            lines = LinesReport(
                "migrate", names, codec.encode(request), shard, counts=map(_count_name, Status)
            )
            return _print_lines(
                lines,
                running,
                report,
                lambda: shard_option.no_model(every, shard),
                check=check,
                quiet=quiet,
                verbose=verbose,
            )
        found_all, skipped = _collect(running)
    code = _report(
        found_all,
        _DIFF if diff else format,
        report,
        color,
        skipped=skipped,
        check=check,
        quiet=quiet,
        verbose=verbose,
    )
    return shard_option.no_model(every, shard) if code == Exit.NO_MODEL else code


def _without_verification(tools: TensorFlowTools, *, retrace: bool) -> TensorFlowTools:
    """
    Return the tools for a run on a cluster, whose workers run no TensorFlow.

    :raises UsageError: if a user wants that.
    """
    if retrace or tools.verify:
        option = "--retrace" if retrace else "--verify"
        raise UsageError(f"--scheduler runs no TensorFlow and cannot be combined with {option}")
    reason = tools.no_verify_reason or "--scheduler runs no TensorFlow"
    return replace(tools, verify=False, no_verify_reason=reason)


def _collect(results: Iterable[Result]) -> tuple[Migrations, int]:
    """
    Return all results, and how many inputs were no models; where something ends the call before,
    say what was written.
    """
    found = SpilledValues(Migration)
    try:
        failures, skipped = take(results, found.append)
    except BaseException:
        for one in found:
            if one.written is not None:
                messages.note(
                    f"{one.plan.path} was already written: "
                    f"{display_path(one.target or one.written.target)}"
                )
        raise
    return Migrations(migrations=found.all(), failures=failures), skipped


def _print_lines(
    lines: LinesReport,
    results: Iterable[Result],
    files: tuple[ReportFile, ...],
    no_model: Callable[[], int],
    *,
    check: bool,
    quiet: bool,
    verbose: bool,
) -> int:
    """Print what happened to each model as soon as it happened, and return the exit code."""

    def values(migration: Migration) -> tuple[Mapping[str, Any], Mapping[str, int]]:
        return plan_values(migration), {_count_name(migration.status): 1}

    def printed() -> Iterator[Result]:
        for result in lines.write_all(results, lambda one: one.plan.path, values):
            one = _migrations(result)
            _troubles(one, refusals=True)
            _notes(one.migrations, quiet=quiet)
            yield result

    with lines:
        kept, _ = _collect(result for result in printed() if files)
        unwritten = report_option.write_reports(files, PLAN_REPORTERS, kept)
        options.troubles((), unwritten)
        counts = lines.counts
        statuses = {status: counts[_count_name(status)] for status in Status}
        _summary(statuses, counts["failures"], counts["skipped"], quiet=quiet, verbose=verbose)
        code: int = _code(statuses, lines.failure_codes, unwritten, check=check)
        code = no_model() if code == Exit.NO_MODEL else code
        lines.end(code)
    return code


def _count_name(status: Status) -> str:
    """Return the key of a count in the last line."""
    return f"models_{status.value}"


def _migrations(result: Result) -> Migrations:
    """Return one result by its kind."""
    return Migrations(
        migrations=(result,) if isinstance(result, Migration) else (),
        failures=(result,) if isinstance(result, Failure) else (),
    )


def _report(
    found: Migrations,
    format: str,
    files: tuple[ReportFile, ...],
    color: str,
    *,
    skipped: int,
    check: bool,
    quiet: bool,
    verbose: bool,
) -> int:
    """Show what happened and return the exit code."""
    unwritten = report_option.write_reports(files, PLAN_REPORTERS, found)
    report_option.print_report(PLAN_REPORTERS, format, found, options.view(color), color)
    options.troubles((), unwritten)
    _troubles(found, refusals=format != "table")
    _notes(found.migrations, quiet=quiet)
    counts = Counter(migration.status for migration in found.migrations)
    statuses = {status: counts[status] for status in Status}
    _summary(statuses, len(found.failures), skipped, quiet=quiet, verbose=verbose)
    return _code(statuses, [one.code for one in found.failures], unwritten, check=check)


def _code(
    statuses: Mapping[Status, int],
    failure_codes: Collection[str],
    unwritten: Sequence[str],
    *,
    check: bool,
) -> Exit:
    """Return the exit code, given how many migrations ended in each way."""
    if failure_codes or unwritten or statuses[Status.BLOCKED]:
        return of_failures(failure_codes)
    if statuses[Status.MISSED] or (check and statuses[Status.PLANNED]):
        return Exit.FINDINGS
    return Exit.CLEAN if any(statuses.values()) else Exit.NO_MODEL


def _troubles(found: Migrations, *, refusals: bool) -> None:
    """
    Say on stderr what could not be done; refusals only where the report on stdout is not for
    people.
    """
    options.troubles(found.failures)
    for migration in found.migrations if refusals else ():
        for refusal in migration.plan.refusals:
            messages.error(refusal.message, path=migration.plan.path, code=refusal.code)


def _notes(migrations: Iterable[Migration], *, quiet: bool) -> None:
    """Say which files were replaced that have another name."""
    for migration in migrations:
        if migration.written is not None and migration.written.followed_link and not quiet:
            messages.note(
                f"{migration.plan.path} is a link; its target was replaced: "
                f"{migration.written.target}"
            )


def _summary(
    statuses: Mapping[Status, int], failures: int, skipped: int, *, quiet: bool, verbose: bool
) -> None:
    if skipped and not quiet:
        messages.note(left_out(skipped, weights=True))
    several = sum(statuses.values()) + failures + skipped > 1
    if (verbose or several) and not quiet:
        said = ", ".join(f"{count} {status.value}" for status, count in statuses.items() if count)
        messages.note((said or "no models") + (f", {failures} failed" if failures else ""))
