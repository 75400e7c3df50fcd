"""``policytool audit``."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass, replace
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from policytool import rules
from policytool.cli import audit_lines, completion, fleets, messages, options, report_option
from policytool.cli.audit_arguments import AuditCommandLine
from policytool.cli.command import Command, declare_command
from policytool.cli.declared_options import Positional
from policytool.cli.exit_codes import Exit, of_failures
from policytool.cli.lines_report import LinesReport
from policytool.cli.messages import left_out, track
from policytool.commands import audit as auditing
from policytool.commands import baselines
from policytool.commands import fix as fixing
from policytool.commands.arguments.reading import AuditArguments
from policytool.commands.audit import AuditTally, tally_of
from policytool.commands.batch import parallel, task
from policytool.commands.batch.isolation import run_isolated
from policytool.commands.inspect import separate_failures
from policytool.releases.releases import stand_ins
from policytool.reports import json_lines
from policytool.reports.findings import FINDING_REPORTERS, PARQUET_REPORTER
from policytool.reports.plans import Migrations
from policytool.reports.plans import diff as diffs
from policytool.rules import selection
from policytool.rules.base import Audited, Severity
from policytool.rules.fixes import FixOutcome
from policytool.rules.selection.baselines import Baseline
from policytool.rules.selection.suppressions import Suppressions, expired_suppressions, suppress
from policytool.support.errors import UsageError
from policytool.support.spilled_values import SpilledValues

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import click

    from policytool.commands.audit import Audit
    from policytool.commands.batch.cache import ResultCache
    from policytool.commands.inspect import Failure
    from policytool.commands.migrate import Migration
    from policytool.formats.discovery import Input
    from policytool.rules import AuditOptions

_REPORTERS: Final[tuple[report_option.Renders[Any], ...]] = (*FINDING_REPORTERS, PARQUET_REPORTER)


NEVER: Final = "never"
"""What ``--fail-on`` has beside the severities."""

_SEPARATED: Final = "--require-separator"


class AuditCommand(Command):
    """The command, which can require ``--`` before the paths."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """
        Parse the arguments.

        :raises UsageError: if ``--require-separator`` is present and ``--`` is not.
        """
        end = args.index("--") if "--" in args else len(args)
        if _SEPARATED in args[:end] and not ctx.resilient_parsing:
            if end == len(args):
                raise UsageError(
                    f"{_SEPARATED} requires -- between the options and the paths; in "
                    ".pre-commit-config.yaml, add -- to the end of the hook's args"
                )
            # Raises if -- is the value of the last option, and therefore does not end the options.
            self.make_parser(ctx).parse_args(args[:end])
        return super().parse_args(ctx, args)


@declare_command(
    "audit",
    AuditArguments,
    AuditCommandLine,
    positional=[
        Positional(
            "paths",
            "A model, a directory that contains models, a quoted glob, a URL of one of these, or - "
            "for a list of paths on stdin. Defaults to all models in the working directory.",
            nargs=-1,
            metavar="[PATH]...",
            shell_complete=completion.files,
        )
    ],
    changes=report_option.attributes(_REPORTERS, [json_lines.FORMAT]),
    cls=AuditCommand,
)
def command(
    arguments: AuditArguments, terminal: AuditCommandLine, *, paths: tuple[str, ...]
) -> int:
    """
    Find models that fail to load or behave differently, and show how to fix them.

    Only --fix, --write-baseline and --format FORMAT=FILE write files.
    """
    report, fix, diff = terminal.report_files, terminal.fix, terminal.diff
    report_option.check_binary(report, _REPORTERS, None if diff else terminal.stdout_format)
    baseline, write_baseline = terminal.baseline, terminal.write_baseline
    remembered = baselines.read(baseline) if baseline is not None else Baseline()
    fail_on = Severity.WARNING if terminal.fail_on == NEVER else Severity(terminal.fail_on)
    question = replace(
        auditing.audit_options(arguments), fail_on=fail_on, signatures=remembered.by_path
    )
    every = options.expand_inputs(paths, remote=not (fix or diff))
    if write_baseline is not None:
        report_option.check_place(
            f"--write-baseline {write_baseline}",
            write_baseline,
            [path for source in every if source.exact and isinstance(path := source.path, Path)],
        )
    report_option.check(
        report, every, [file for file in (baseline, write_baseline) if file is not None]
    )
    if terminal.skip_unrecognized:  # named files count as those found in directories
        every = [replace(source, exact=False) for source in every]
    if terminal.stdout_format == json_lines.FORMAT:
        audit_lines.check(fix=fix, diff=diff, write_baseline=write_baseline is not None)
    if terminal.shard is not None:
        _check_shard(remembered, every, write_baseline)
    inputs = task.shard_items(every, terminal.shard)
    quiet = terminal.verbose is False
    _print_notes(
        selection.unused_words(selection.selectors(arguments.select or (), "--select"), question),
        quiet=quiet,
    )
    _print_notes(stand_ins(question.target_names), quiet=quiet)
    passing = Suppressions(
        directory=Path.cwd().as_posix(),
        today=_today(),
        suppressions=terminal.suppress,
        per_file=terminal.per_file_ignores,
    )
    cache = terminal.cache
    if cache is not None and (fix or diff):
        _print_notes(["--fix and --diff read all models, so --cache has no effect"], quiet=quiet)
        cache = None
    ending = _Ending(
        question=question, kept=fleets.open_cache(cache), every=every, terminal=terminal
    )
    unplanned = replace(question, plans_commands=False)
    first = baselines.renaming_candidates(remembered, inputs) if fix or diff else inputs
    results = track(
        parallel.run_all(
            auditing.TASK,
            first,
            unplanned if fix or diff else question,
            terminal.jobs,
            cache=ending.kept,
        ),
        len(first),
        "audit",
        verbose=terminal.verbose,
    )
    if terminal.stdout_format == json_lines.FORMAT:
        return _print_lines(ending, results, remembered, passing)
    audit = auditing.collect(results)
    passing = baselines.with_baseline(remembered, audit.audited, passing)
    migrations: tuple[Migration, ...] = ()
    if fix or diff:
        request = fixing.FixRequest(
            options=_fix_options(terminal, question), audit_options=question, passing=passing
        )
        audit, migrations = fixing.collect(
            track(
                parallel.run_all(fixing.TASK, inputs, request, terminal.jobs),
                len(inputs),
                "audit",
                verbose=terminal.verbose,
            )
        )
    audit = _with_question(audit, question)
    unwritten: list[str] = []
    if write_baseline is not None:
        own = baselines.baseline_from(audit.audited, passing)
        unwritten = report_option.write_text(
            f"--write-baseline {write_baseline}",
            write_baseline,
            baselines.text(own, write_baseline),
        )
        passing = replace(passing, known=own.fingerprints)
    audit = _with_suppressions(audit, passing, question)
    shows_suppressed = bool(terminal.verbose)
    unwritten += report_option.write_reports(report, _REPORTERS, audit, suppressed=shows_suppressed)
    _print(audit, migrations if diff else None, terminal)
    _print_errors(audit, unwritten)
    _print_notes(_unfixed_notes(audit) if diff else (), quiet=quiet)
    not_fixed = any(fixed.outcome is FixOutcome.FAILED for fixed in audit.fixed)
    return _finish(
        ending,
        tally_of(audit.audited, passing),
        audit.passed_over,
        _failure_code((failure.code for failure in audit.failures), unwritten, not_fixed=not_fixed),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ending:
    """What decides how a run ends, and what it says then."""

    question: AuditOptions
    kept: ResultCache | None
    every: Sequence[Input]
    """The inputs of all shards."""

    terminal: AuditCommandLine


def _print_lines(
    ending: _Ending,
    results: Iterable[Audited | Failure | None],
    remembered: Baseline,
    passing: Suppressions,
) -> int:
    """Print each result as soon as it is available, and return the exit code."""
    known = baselines.known_findings(remembered)
    tally = AuditTally(passing=replace(passing, known=known.by_path))
    terminal, files = ending.terminal, ending.terminal.report_files
    options_text = audit_lines.options_text(ending.question, passing, remembered, terminal.fail_on)
    none = Exit.CLEAN if terminal.skip_unrecognized else Exit.NO_MODEL
    names = task.names(ending.every)
    with LinesReport(
        "audit", names, options_text, terminal.shard, no_model=none, counts=audit_lines.COUNTS
    ) as lines:
        stream = audit_lines.stream(lines, results, ending.question, known, tally)
        kept = auditing.collect(result for result in stream if files)
        unwritten = report_option.write_reports(
            files,
            _REPORTERS,
            _with_question(kept, ending.question),
            suppressed=bool(terminal.verbose),
        )
        options.print_errors((), unwritten)
        failure = _failure_code(lines.failure_codes, unwritten)
        code = _finish(ending, tally, lines.counts["skipped"], failure)
        lines.end(code)
    return code


def _fix_options(terminal: AuditCommandLine, question: AuditOptions) -> fixing.FixOptions:
    return fixing.FixOptions(
        unsafe=terminal.unsafe_fixes,
        write=not terminal.diff,
        backup=terminal.backup,
        targets=question.targets,
    )


def _print(audit: Audit, changes: tuple[Migration, ...] | None, terminal: AuditCommandLine) -> None:
    """Print the report, or the diff of the planned fixes."""
    color = terminal.color
    view = options.view(color, suppressed=bool(terminal.verbose))
    if changes is None:
        report_option.print_report(_REPORTERS, terminal.stdout_format, audit, view, color)
    else:
        migrations = Migrations(migrations=changes, failures=())
        report_option.print_report([diffs.REPORTER], diffs.REPORTER.name, migrations, view, color)


def _with_suppressions(audit: Audit, passing: Suppressions, question: AuditOptions) -> Audit:
    """Return an audit in which what is suppressed is set apart."""
    suppressed = SpilledValues(Audited)
    failures, _ = separate_failures(
        (
            run_isolated(audited.path, functools.partial(_suppressed, audited, passing, question))
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
    terminal = ending.terminal
    verbose, quiet = bool(terminal.verbose), terminal.verbose is False
    _print_notes(_stderr_notes(tally, skipped, verbose=verbose), quiet=quiet)
    hidden = audit_lines.hidden_finding_notes(tally, ending.question)
    _warn((*_expired_notes(tally.passing), *_unmatched(tally), *hidden), quiet=quiet)
    options.about_hdf5(verbose=verbose, quiet=quiet)
    fleets.report_use(ending.kept, verbose=verbose, quiet=quiet)
    code = failure if failure is not None else _code(tally, terminal.fail_on)
    if code is not Exit.NO_MODEL:
        return code
    return fleets.no_model(ending.every, terminal.shard, is_ok=terminal.skip_unrecognized)


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
    """Return the exit code for failed reads, fixes and writes; None if nothing failed."""
    failure_codes = tuple(codes)
    return of_failures(failure_codes) if failure_codes or unwritten or not_fixed else None


def _code(tally: AuditTally, fail_on: str) -> Exit:
    """Return how a run without failures ended; what a report looks like changes nothing."""
    worst = tally.worst
    if fail_on != NEVER and worst is not None and worst.rank <= Severity(fail_on).rank:
        return Exit.FINDINGS
    return Exit.CLEAN if tally.models else Exit.NO_MODEL


def _print_errors(audit: Audit, unwritten: Sequence[str]) -> None:
    """Print on stderr the models and reports that could not be read, fixed or written."""
    options.print_errors(audit.failures)
    for fixed in audit.fixed:
        if fixed.outcome is FixOutcome.FAILED:
            reasons = dict.fromkeys(unfixed.reason for unfixed in fixed.left)
            messages.error(f"not fixed: {'; '.join(reasons)}", path=fixed.path)
    options.print_errors((), unwritten)


def _unfixed_notes(audit: Audit) -> Iterator[str]:
    """Yield the findings that --fix would not fix, with reasons; a diff does not show them."""
    for fixed in audit.fixed:
        for (rule, reason), count in Counter(
            (unfixed.finding.rule, unfixed.reason) for unfixed in fixed.left
        ).items():
            yield (
                f"{fixed.path}: {rule} would not be fixed ({count} "
                f"finding{'s' if count > 1 else ''}): {reason}"
            )


def _stderr_notes(tally: AuditTally, skipped: int, *, verbose: bool) -> Iterator[str]:
    """Yield the notes that are printed on stderr in addition to the report."""
    if skipped:
        yield left_out(skipped)
    if verbose:
        for suppression in tally.idle():
            yield f"the suppression of {suppression} matches no finding ({suppression.reason})"
        if gone := tally.outdated_count(baselines.exists):
            findings = "finding" if gone == 1 else "findings"
            verb = "occurs" if gone == 1 else "occur"
            yield (
                f"{gone} {findings} in the baseline no longer {verb}; update the baseline "
                "with --write-baseline"
            )


def _expired_notes(passing: Suppressions) -> Iterator[str]:
    """Yield a warning for each expired suppression."""
    for suppression in expired_suppressions(passing.suppressions, passing.today):
        yield (
            f"the suppression of {suppression} expired on {suppression.expires} and has no effect "
            f"({suppression.reason})"
        )


def _unmatched(tally: AuditTally) -> Iterator[str]:
    """Yield the models that have too many or too long names for the patterns of suppressions."""
    for path, reason in tally.unmatched:
        yield f"not all suppressions were applied to {path}, because it {reason}"


def _print_notes(sentences: Iterable[str], *, quiet: bool) -> None:
    for sentence in sentences if not quiet else ():
        messages.note(sentence)


def _warn(sentences: Iterable[str], *, quiet: bool) -> None:
    for sentence in sentences if not quiet else ():
        messages.warning(sentence)
