"""``policytool audit``."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass, replace
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from policytool import rules
from policytool.cli import (
    audit_lines,
    cache_option,
    completion,
    hidden_findings,
    messages,
    options,
    report_option,
    selection_options,
    settings,
    shard_option,
)
from policytool.cli.exit_codes import Exit, of_failures
from policytool.cli.lines_report import LinesReport
from policytool.cli.progress import left_out, track
from policytool.cli.selection_options import NEVER
from policytool.commands import audit as auditing
from policytool.commands import baselines
from policytool.commands import fix as fixing
from policytool.commands.audit_tally import AuditTally, tally_of
from policytool.commands.batch import parallel, shards
from policytool.commands.batch.isolation import isolated
from policytool.commands.inspect import take
from policytool.releases.targets import stand_ins, target_and_containers
from policytool.reports import json_lines
from policytool.reports.findings import FINDING_REPORTERS, PARQUET_REPORTER
from policytool.reports.plans import Migrations
from policytool.reports.plans import diff as diffs
from policytool.rules import AuditOptions, Device
from policytool.rules.finding import Audited, Severity
from policytool.rules.fixes import FixOutcome
from policytool.rules.selection import selectors
from policytool.rules.selection.baselines import Baseline
from policytool.rules.selection.suppressions import (
    Suppressions,
    expired_suppressions,
    suppress,
)
from policytool.support.errors import UsageError
from policytool.support.spilled_values import SpilledValues

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from policytool.cli.report_option import ReportFile
    from policytool.commands.audit import Audit
    from policytool.commands.batch.cache import ResultCache
    from policytool.commands.batch.shards import Shard
    from policytool.commands.inspect import Failure
    from policytool.commands.migrate import Migration
    from policytool.formats.discovery import Input
    from policytool.reports import View
    from policytool.rules.selection.suppressions import PerFileIgnore

_REPORTERS: Final[tuple[report_option.Renders[Any], ...]] = (*FINDING_REPORTERS, PARQUET_REPORTER)


@settings.command("audit", selection_options.AuditCommand)
@click.argument("paths", nargs=-1, metavar="[PATH]...", shell_complete=completion.files)
@selection_options.selection_options
@click.option(
    "--fix",
    is_flag=True,
    envvar="POLICYTOOL_FIX",
    help="Apply safe fixes in place, and keep the original as NAME.bak.",
)
@click.option(
    "--unsafe-fixes",
    is_flag=True,
    envvar="POLICYTOOL_UNSAFE_FIXES",
    help="With --fix or --diff, include fixes that change numerics or training.",
)
@click.option(
    "--diff",
    is_flag=True,
    envvar="POLICYTOOL_DIFF",
    help="Show the changes that --fix would make, without writing them.",
)
@click.option(
    "--backup/--no-backup",
    default=True,
    show_default=True,
    envvar="POLICYTOOL_BACKUP",
    help="With --fix, keep the original as NAME.bak.",
)
@click.option(
    "--overwrite", is_flag=True, envvar="POLICYTOOL_OVERWRITE", help="Replace existing backups."
)
@options.format_option([*(reporter.name for reporter in _REPORTERS), json_lines.FORMAT])
@report_option.option(_REPORTERS)
@click.option(
    "-0", "--null", is_flag=True, help="Expect NUL instead of newlines between paths on stdin."
)
@options.jobs("read")
@options.scheduler
@cache_option.option
@shard_option.option
@options.limit_option
@options.common
def command(
    *,
    paths: tuple[str, ...],
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    per_file_ignores: tuple[PerFileIgnore, ...],
    target: tuple[str, ...],
    device: str | None,
    weights: bool,
    fail_on: str,
    no_models_ok: bool,
    skip_unrecognized: bool,
    show_suppressed: bool,
    baseline: Path | None,
    write_baseline: Path | None,
    fix: bool,
    unsafe_fixes: bool,
    diff: bool,
    backup: bool,
    overwrite: bool,
    format: str,  # the option's name
    report: tuple[ReportFile, ...],
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
    Find models that fail to load or behave differently, and show how to fix them.

    PATH is a model, a directory that contains models, a quoted glob, a URL of one of these, or -
    for a list of paths on stdin. Defaults to all models in the working directory. Only --fix,
    --write-baseline and --report write files.
    """
    report_option.check_binary(report, _REPORTERS, None if diff else format)
    selected = selectors.selectors(select, "--select")
    remembered = baselines.read(baseline) if baseline is not None else Baseline()
    question = AuditOptions(
        rules=selectors.select_rules(selected, selectors.selectors(ignore, "--ignore")),
        targets=tuple(dict.fromkeys(target_and_containers(name)[0] for name in target)),
        target_names=tuple(dict.fromkeys(target)),
        fail_on=Severity(fail_on) if fail_on != NEVER else Severity.WARNING,
        device=Device(device) if device is not None else None,
        weights=weights,
        signatures=remembered.by_path,
    )
    every = options.inputs(paths, null=null, remote=not (fix or diff))
    if write_baseline is not None:
        report_option.check_place(
            f"--write-baseline {write_baseline}",
            write_baseline,
            [path for one in every if one.exact and isinstance(path := one.path, Path)],
        )
    report_option.check(
        report, every, [file for file in (baseline, write_baseline) if file is not None]
    )
    if skip_unrecognized:  # named files count as those found in directories
        every = [replace(one, exact=False) for one in every]
    if format == json_lines.FORMAT:
        audit_lines.check(fix=fix, diff=diff, write_baseline=write_baseline is not None)
    if shard is not None:
        _check_shard(remembered, every, write_baseline)
    found = shards.part(every, shard)
    _say(selectors.unused_words(selected, question), quiet=quiet)
    _say(stand_ins(question.target_names), quiet=quiet)
    passing = Suppressions(
        directory=Path.cwd().as_posix(),
        today=_today(),
        suppressions=selection_options.suppressions(),
        per_file=per_file_ignores,
    )
    if cache is not None and (fix or diff):
        _say(["--fix and --diff read all models, so --cache has no effect"], quiet=quiet)
        cache = None
    kept = cache_option.open_cache(cache)
    ending = _Ending(
        question=question,
        kept=kept,
        every=every,
        shard=shard,
        fail_on=fail_on,
        no_models_ok=no_models_ok,
        show_suppressed=show_suppressed,
        verbose=verbose,
        quiet=quiet,
    )
    unplanned = replace(question, plans_commands=False)
    first = baselines.renaming_candidates(remembered, found) if fix or diff else found
    results = track(
        parallel.run_all(
            auditing.TASK,
            first,
            unplanned if fix or diff else question,
            jobs,
            scheduler=scheduler,
            cache=kept,
        ),
        len(first),
        progress,
        "audit",
    )
    if format == json_lines.FORMAT:
        return _print_lines(ending, results, remembered, passing, report)
    audit = auditing.collect(results)
    passing = baselines.with_baseline(remembered, audit.audited, passing)
    migrations: tuple[Migration, ...] = ()
    if fix or diff:
        how = fixing.FixOptions(
            unsafe=unsafe_fixes,
            write=not diff,
            backup=backup,
            overwrite=overwrite,
            targets=question.targets,
        )
        request = fixing.FixRequest(options=how, audit_options=question, passing=passing)
        audit, migrations = fixing.collect(
            track(
                parallel.run_all(fixing.TASK, found, request, jobs, scheduler=scheduler),
                len(found),
                progress,
                "audit",
            )
        )
    audit = _with_question(audit, question)
    unwritten: list[str] = []
    if write_baseline is not None:
        own = baselines.own(audit.audited, passing)
        unwritten = report_option.write_text(
            f"--write-baseline {write_baseline}",
            write_baseline,
            baselines.text(own, write_baseline),
        )
        passing = replace(passing, known=own.fingerprints)
    audit = _with_suppressions(audit, passing, question)
    unwritten += report_option.write_reports(report, _REPORTERS, audit, suppressed=show_suppressed)
    view = options.view(color, suppressed=show_suppressed)
    _print(audit, migrations if diff else None, format, view, color)
    _troubles(audit, unwritten)
    _say(_left(audit) if diff else (), quiet=quiet)
    not_fixed = any(fixed.outcome is FixOutcome.FAILED for fixed in audit.fixed)
    return _finish(
        ending,
        tally_of(audit.audited, passing),
        audit.passed_over,
        _failure_code((one.code for one in audit.failures), unwritten, not_fixed=not_fixed),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ending:
    """What decides how a run ends, and what it says then."""

    question: AuditOptions
    kept: ResultCache | None
    every: Sequence[Input]
    """The inputs of all shards."""

    shard: Shard | None
    fail_on: str
    no_models_ok: bool
    show_suppressed: bool
    verbose: bool
    quiet: bool


def _print_lines(
    ending: _Ending,
    results: Iterable[Audited | Failure | None],
    remembered: Baseline,
    passing: Suppressions,
    files: tuple[ReportFile, ...],
) -> int:
    """Print each result as it comes, and return the exit code."""
    known = baselines.known_findings(remembered)
    tally = AuditTally(passing=replace(passing, known=known.by_path))
    asked = audit_lines.options_text(ending.question, passing, remembered, ending.fail_on)
    none = Exit.CLEAN if ending.no_models_ok else Exit.NO_MODEL
    names = shards.names(ending.every)
    with LinesReport(
        "audit", names, asked, ending.shard, no_model=none, counts=audit_lines.COUNTS
    ) as lines:
        stream = audit_lines.stream(lines, results, ending.question, known, tally)
        kept = auditing.collect(result for result in stream if files)
        unwritten = report_option.write_reports(
            files,
            _REPORTERS,
            _with_question(kept, ending.question),
            suppressed=ending.show_suppressed,
        )
        options.troubles((), unwritten)
        failure = _failure_code(lines.failure_codes, unwritten)
        code = _finish(ending, tally, lines.counts["skipped"], failure)
        lines.end(code)
    return code


def _print(
    audit: Audit, changes: tuple[Migration, ...] | None, format: str, view: View, color: str
) -> None:
    """Print the report, or what fixes would change."""
    if changes is None:
        report_option.print_report(_REPORTERS, format, audit, view, color)
    else:
        found = Migrations(migrations=changes, failures=())
        report_option.print_report([diffs.REPORTER], diffs.REPORTER.name, found, view, color)


def _with_suppressions(audit: Audit, passing: Suppressions, question: AuditOptions) -> Audit:
    """Return an audit in which what is suppressed is set apart."""
    suppressed = SpilledValues(Audited)
    failures, _ = take(
        (
            isolated(audited.path, functools.partial(_suppressed, audited, passing, question))
            for audited in audit.audited
        ),
        suppressed.append,
    )
    return replace(audit, audited=suppressed.all(), failures=(*audit.failures, *failures))


def _suppressed(audited: Audited, passing: Suppressions, question: AuditOptions) -> Audited:
    return auditing.without_idle_commands(suppress(audited, passing), question)


def _with_question(audit: Audit, question: AuditOptions) -> Audit:
    """Return an audit with the rules and releases that models were checked for."""
    return replace(
        audit, rules=rules.chosen_rules(question), releases=auditing.checked_releases(question)
    )


def _finish(ending: _Ending, tally: AuditTally, skipped: int, failure: Exit | None) -> int:
    """
    Print the notes below a report, and return the exit code.

    :param failure: the exit code for what could not be read or written; None if all could
    """
    quiet = ending.quiet
    _say(_stderr_notes(tally, skipped, verbose=ending.verbose), quiet=quiet)
    hidden = hidden_findings.sentences(tally, ending.question)
    _warn((*_expired(tally.passing), *_unmatched(tally), *hidden), quiet=quiet)
    options.about_hdf5(verbose=ending.verbose, quiet=quiet)
    cache_option.report_use(ending.kept, verbose=ending.verbose, quiet=quiet)
    code = failure if failure is not None else _code(tally, ending.fail_on)
    if code is not Exit.NO_MODEL:
        return code
    return shard_option.no_model(ending.every, ending.shard, is_ok=ending.no_models_ok)


def _today() -> date:
    return datetime.now().astimezone().date()


def _check_shard(baseline: Baseline, every: Sequence[Input], write_baseline: Path | None) -> None:
    """
    Make sure that a shard needs nothing of the other shards.

    :raises UsageError: for a baseline that all shards would write, and if files may have been
        renamed, which only one process can match.
    """
    if write_baseline is not None:
        raise UsageError(
            "--shard and --write-baseline conflict: each shard would replace the baseline; write "
            "it without --shard"
        )
    if baselines.renaming_candidates(baseline, every):
        raise UsageError(
            "--shard cannot match renamed files with --baseline, and the baseline contains files "
            "that do not exist; update it with --write-baseline"
        )


def _failure_code(
    codes: Iterable[str], unwritten: Sequence[str], *, not_fixed: bool = False
) -> Exit | None:
    """Return the exit code for what could not be read, fixed or written; None if all could."""
    found = tuple(codes)
    return of_failures(found) if found or unwritten or not_fixed else None


def _code(tally: AuditTally, fail_on: str) -> Exit:
    """Return how a run without failures ended; what a report looks like changes nothing."""
    worst = tally.worst
    if fail_on != NEVER and worst is not None and worst.rank <= Severity(fail_on).rank:
        return Exit.FINDINGS
    return Exit.CLEAN if tally.models else Exit.NO_MODEL


def _troubles(audit: Audit, unwritten: Sequence[str]) -> None:
    """Say on stderr what could not be read or written."""
    options.troubles(audit.failures)
    for fixed in audit.fixed:
        if fixed.outcome is FixOutcome.FAILED:
            reasons = dict.fromkeys(one.reason for one in fixed.left)
            messages.error(f"not fixed: {'; '.join(reasons)}", path=fixed.path)
    options.troubles((), unwritten)


def _left(audit: Audit) -> Iterator[str]:
    """Yield the findings that would not be fixed, which a diff does not show, with reasons."""
    for fixed in audit.fixed:
        for (rule, reason), count in Counter(
            (one.finding.rule, one.reason) for one in fixed.left
        ).items():
            yield (
                f"{fixed.path}: {rule} would not be fixed ({count} "
                f"finding{'s' if count > 1 else ''}): {reason}"
            )


def _stderr_notes(tally: AuditTally, skipped: int, *, verbose: bool) -> Iterator[str]:
    """Yield what is said on stderr beside the report."""
    if skipped:
        yield left_out(skipped)
    if verbose:
        for one in tally.idle():
            yield f"the suppression of {one} matches no finding ({one.reason})"
        if gone := tally.outdated_count(baselines.exists):
            findings = "finding" if gone == 1 else "findings"
            verb = "occurs" if gone == 1 else "occur"
            yield (
                f"{gone} {findings} in the baseline no longer {verb}; update the baseline "
                "with --write-baseline"
            )


def _expired(passing: Suppressions) -> Iterator[str]:
    """Yield the suppressions that no longer work."""
    for one in expired_suppressions(passing.suppressions, passing.today):
        yield f"the suppression of {one} expired on {one.expires} and has no effect ({one.reason})"


def _unmatched(tally: AuditTally) -> Iterator[str]:
    """Yield the models that have too many or too long names for the patterns of suppressions."""
    for path, reason in tally.unmatched:
        yield f"not all suppressions were applied to {path}, because it {reason}"


def _say(sentences: Iterable[str], *, quiet: bool) -> None:
    for sentence in sentences if not quiet else ():
        messages.note(sentence)


def _warn(sentences: Iterable[str], *, quiet: bool) -> None:
    for sentence in sentences if not quiet else ():
        messages.warning(sentence)
