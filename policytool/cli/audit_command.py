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
    cache_option,
    completion,
    hidden_findings,
    messages,
    options,
    report_option,
    selection_options,
    settings,
)
from policytool.cli.exit_codes import Exit
from policytool.cli.progress import left_out, track
from policytool.cli.selection_options import NEVER
from policytool.commands import audit as auditing
from policytool.commands import baselines
from policytool.commands import fix as fixing
from policytool.commands.batch import parallel
from policytool.releases.targets import stand_ins, target_and_containers
from policytool.reports.findings import FINDING_REPORTERS
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
@options.format_option([reporter.name for reporter in FINDING_REPORTERS])
@report_option.option(FINDING_REPORTERS)
@click.option(
    "-0", "--null", is_flag=True, help="Expect NUL instead of newlines between paths on stdin."
)
@options.jobs("read")
@cache_option.option
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
    cache: str | None,
    verbose: bool,
    quiet: bool,
    debug: bool,  # main() looks for it
    color: str,
    progress: str,
) -> int:
    """
    Find models that fail to load or behave differently, and show how to fix them.

    PATH is a model, a directory that contains models, a quoted glob, or - for a list of paths on
    stdin. Defaults to all models in the working directory. Only --fix,
    --write-baseline and --report write files.
    """
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
    if skip_unrecognized:  # named files count as those found in directories
        found = [replace(one, exact=False) for one in found]
    _say(selectors.unused_words(selected, question), quiet=quiet)
    _say(stand_ins(question.target_names), quiet=quiet)
    passing = Suppressions(
        directory=Path.cwd().as_posix(),
        today=_today(),
        suppressions=selection_options.suppressions(),
        per_file=per_file_ignores,
    )
    unplanned = replace(question, plans_commands=False)
    first = baselines.renaming_candidates(remembered, found) if fix or diff else found
    if cache is not None and (fix or diff):
        _say(["--fix and --diff read all models, so --cache has no effect"], quiet=quiet)
        cache = None
    kept = cache_option.open_cache(cache)
    audit = auditing.collect(
        track(
            parallel.run_all(
                auditing.TASK, first, unplanned if fix or diff else question, jobs, kept
            ),
            len(first),
            progress,
            "audit",
        )
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
    audit = replace(
        audit, rules=rules.chosen_rules(question), releases=auditing.checked_releases(question)
    )
    unwritten: list[str] = []
    if write_baseline is not None:
        own = baselines.own(audit.audited, passing)
        unwritten = report_option.write_text(
            f"--write-baseline {write_baseline}",
            write_baseline,
            baselines.text(own, write_baseline),
        )
        passing = replace(passing, known=own.fingerprints)
    audit = replace(
        audit,
        audited=tuple(
            auditing.without_idle_commands(suppress(audited, passing), question)
            for audited in audit.audited
        ),
    )
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
    _say(_stderr_notes(audit, passing, verbose=verbose), quiet=quiet)
    _warn(
        (*_expired(passing), *hidden_findings.sentences(audit, question)),
        quiet=quiet,
    )
    options.about_hdf5(verbose=verbose, quiet=quiet)
    cache_option.report_use(kept, verbose=verbose, quiet=quiet)
    return _code(audit, fail_on, unwritten, no_models_ok=no_models_ok)


def _today() -> date:
    return datetime.now().astimezone().date()


def _code(audit: Audit, fail_on: str, unwritten: Sequence[str], *, no_models_ok: bool) -> Exit:
    """Return how the run ended; what a report looks like changes nothing."""
    if (
        audit.failures
        or unwritten
        or any(fixed.outcome is FixOutcome.FAILED for fixed in audit.fixed)
    ):
        return Exit.FAILURE
    found_worst = worst(finding for audited in audit.audited for finding in audited.findings)
    if fail_on != NEVER and found_worst is not None and found_worst.rank <= Severity(fail_on).rank:
        return Exit.FINDINGS
    if not audit.audited:
        (messages.note if no_models_ok else messages.error)("no model found")
        return Exit.CLEAN if no_models_ok else Exit.NO_MODEL
    return Exit.CLEAN


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


def _stderr_notes(audit: Audit, passing: Suppressions, *, verbose: bool) -> Iterator[str]:
    """Yield what is said on stderr beside the report."""
    if audit.passed_over:
        yield left_out(audit.passed_over)
    if verbose:
        for one in idle(audit.audited, passing):
            yield f"the suppression of {one} matches no finding ({one.reason})"
        if gone := baselines.outdated_count(passing, audit.audited):
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


def _say(sentences: Iterable[str], *, quiet: bool) -> None:
    for sentence in sentences if not quiet else ():
        messages.note(sentence)


def _warn(sentences: Iterable[str], *, quiet: bool) -> None:
    for sentence in sentences if not quiet else ():
        messages.warning(sentence)
