"""``policytool audit``."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from policytool import rules
from policytool.cli import (
    completion,
    hidden_findings,
    messages,
    options,
    report_option,
    selection_options,
)
from policytool.cli.exit_codes import Exit
from policytool.cli.progress import left_out, track
from policytool.cli.selection_options import NEVER
from policytool.commands import audit as auditing
from policytool.commands import baselines
from policytool.commands import fix as fixing
from policytool.commands.batch import parallel
from policytool.releases.targets import target as named_target
from policytool.reports.findings import FINDING_REPORTERS
from policytool.reports.layout import clean
from policytool.reports.plans import Migrations
from policytool.reports.plans import diff as diffs
from policytool.rules import AuditOptions, Device
from policytool.rules.finding import Severity, worst
from policytool.rules.fixes import FixOutcome
from policytool.rules.selection import selectors
from policytool.rules.selection.baselines import Baseline
from policytool.rules.selection.suppressions import (
    Suppressions,
    expired_suppressions,
    idle,
    suppress,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from policytool.cli.report_option import ReportFile
    from policytool.commands.audit import Audit
    from policytool.commands.migrate import Migration
    from policytool.rules.selection.suppressions import PerFileIgnore


@click.command(
    "audit",
    cls=selection_options.AuditCommand,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("paths", nargs=-1, metavar="[PATH]...", shell_complete=completion.files)
@selection_options.selection_options
@click.option(
    "--fix",
    is_flag=True,
    envvar="POLICYTOOL_FIX",
    help="Mend in place what migrate mends without changing what is computed; keep NAME.bak.",
)
@click.option(
    "--unsafe-fixes",
    is_flag=True,
    envvar="POLICYTOOL_UNSAFE_FIXES",
    help="With --fix or --diff, mend too what changes numerics or training.",
)
@click.option(
    "--diff",
    is_flag=True,
    envvar="POLICYTOOL_DIFF",
    help="Show what --fix would change, and write nothing.",
)
@click.option(
    "--backup/--no-backup",
    default=True,
    show_default=True,
    envvar="POLICYTOOL_BACKUP",
    help="Whether --fix keeps the original.",
)
@click.option(
    "--overwrite", is_flag=True, envvar="POLICYTOOL_OVERWRITE", help="Replace a backup that exists."
)
@options.format_option([reporter.name for reporter in FINDING_REPORTERS])
@report_option.option(FINDING_REPORTERS)
@click.option("-0", "--null", is_flag=True, help="Paths on stdin end in NUL instead of newlines.")
@options.jobs("read")
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
    verbose: bool,
    quiet: bool,
    debug: bool,  # main() looks for it
    color: str,
    progress: str,
) -> int:
    """
    Find what will not load, will not train as before, or will compute wrongly, and say how to mend
    it.

    PATH is what inspect takes. Nothing is written but by --fix, --write-baseline and --report.
    """
    selected = selectors.selectors(select, "--select")
    remembered = baselines.read(baseline) if baseline is not None else Baseline()
    question = AuditOptions(
        rules=selectors.select_rules(selected, selectors.selectors(ignore, "--ignore")),
        targets=tuple(dict.fromkeys(named_target(name) for name in target)),
        device=Device(device) if device is not None else None,
        weights=weights,
        signatures=remembered.by_path,
    )
    found = options.inputs(paths, null=null)
    if write_baseline is not None:
        report_option.check_place(
            f"--write-baseline {write_baseline}",
            write_baseline,
            [one.path for one in found if one.exact],
        )
    report_option.check(
        report, found, [file for file in (baseline, write_baseline) if file is not None]
    )
    _say(selectors.unused_words(selected, question), quiet=quiet)
    passing = Suppressions(
        directory=Path.cwd().as_posix(),
        today=_today(),
        suppressions=selection_options.suppressions(),
        per_file=per_file_ignores,
    )
    first = baselines.renaming_candidates(remembered, found) if fix or diff else found
    audit = auditing.collect(
        track(parallel.run_all(auditing.TASK, first, question, jobs), len(first), progress, "audit")
    )
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
                parallel.run_all(fixing.TASK, found, request, jobs), len(found), progress, "audit"
            )
        )
    audit = replace(audit, rules=rules.chosen_rules(question))
    unwritten: list[str] = []
    if write_baseline is not None:
        own = baselines.own(audit.audited, passing)
        unwritten = report_option.write_text(
            f"--write-baseline {write_baseline}",
            write_baseline,
            baselines.text(own, write_baseline),
        )
        passing = replace(passing, known=own.fingerprints)
    audit = replace(audit, audited=tuple(suppress(audited, passing) for audited in audit.audited))
    unwritten += report_option.write_reports(
        report, FINDING_REPORTERS, audit, suppressed=show_suppressed
    )
    view = options.view(color, suppressed=show_suppressed)
    text = (
        diffs.REPORTER.render(Migrations(migrations=migrations, failures=()), view)
        if diff
        else report_option.render_report(FINDING_REPORTERS, format, audit, view)
    )
    click.echo(text, nl=False, color=color != "never")
    _troubles(audit, unwritten)
    _say(_left(audit) if diff else (), quiet=quiet)
    _say(
        (
            *_stderr_notes(audit, passing, verbose=verbose),
            *hidden_findings.sentences(audit, question),
        ),
        quiet=quiet,
    )
    options.about_hdf5(verbose=verbose, quiet=quiet)
    return _code(audit, fail_on, unwritten, no_models_ok=no_models_ok)


def _today() -> date:
    return datetime.now().astimezone().date()


def _code(audit: Audit, fail_on: str, unwritten: Sequence[str], *, no_models_ok: bool) -> Exit:
    """Return how the run ended; what a report looks like changes nothing."""
    if (
        audit.failures
        or unwritten
        or any(mended.outcome is FixOutcome.FAILED for mended in audit.mended)
    ):
        return Exit.FAILURE
    found_worst = worst(finding for audited in audit.audited for finding in audited.findings)
    if fail_on != NEVER and found_worst is not None and found_worst.rank <= Severity(fail_on).rank:
        return Exit.FINDINGS
    if not audit.audited:
        click.echo("policytool: no model found", err=True)
        return Exit.CLEAN if no_models_ok else Exit.NO_MODEL
    return Exit.CLEAN


def _troubles(audit: Audit, unwritten: Sequence[str]) -> None:
    """Say on stderr what could not be read or written."""
    options.troubles(audit.failures)
    for mended in audit.mended:
        if mended.outcome is FixOutcome.FAILED:
            reasons = dict.fromkeys(one.reason for one in mended.left)
            click.echo(
                f"policytool: {clean(mended.path)} was not mended: {clean('; '.join(reasons))}",
                err=True,
            )
    options.troubles((), unwritten)


def _left(audit: Audit) -> Iterator[str]:
    """Yield what a diff does not show: what would not be mended, and why."""
    for mended in audit.mended:
        for (rule, reason), count in Counter(
            (one.finding.rule, one.reason) for one in mended.left
        ).items():
            yield (
                f"{mended.path} {rule} would not be mended ({count} "
                f"finding{'s' if count > 1 else ''}): {reason}"
            )


def _stderr_notes(audit: Audit, passing: Suppressions, *, verbose: bool) -> Iterator[str]:
    """Yield what is said on stderr beside the report."""
    if audit.passed_over:
        yield left_out(audit.passed_over)
    for one in expired_suppressions(passing.suppressions, passing.today):
        yield (
            f"warning: the suppression of {one} expired on {one.expires} and no longer works "
            f"({one.reason})"
        )
    if verbose:
        for one in idle(audit.audited, passing):
            yield f"the suppression of {one} matched nothing ({one.reason})"
        if gone := baselines.outdated_count(passing, audit.audited):
            yield (
                f"{gone} findings of the baseline no longer occur; --write-baseline brings it up "
                "to date"
            )


def _say(sentences: Iterable[str], *, quiet: bool) -> None:
    for sentence in sentences if not quiet else ():
        messages.say(sentence)
