"""``policytool audit``, with results as JSON lines, and notes on findings that settings hide."""

from __future__ import annotations

import functools
import os
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec import Struct
from msgspec.structs import replace

from policytool import rules
from policytool.cli import completion, fleets, messages, options, settings
from policytool.cli.audit_arguments import AuditCommandLine
from policytool.cli.command import Command, declare_command
from policytool.cli.declared_options import Positional
from policytool.cli.exit_codes import Exit, exit_code_of_failures
from policytool.cli.fleets import Fleet, LinesReport
from policytool.cli.messages import left_out
from policytool.commands import audit as auditing
from policytool.commands import baselines
from policytool.commands import fix as fixing
from policytool.commands.arguments.reading import AuditArguments
from policytool.commands.audit import AuditTally, tally_of
from policytool.commands.batch import task
from policytool.commands.batch.isolation import run_isolated
from policytool.commands.inspect import Failure, separate_failures
from policytool.releases.releases import stand_ins
from policytool.reports import json_lines
from policytool.reports.findings import FINDING_REPORTERS, PARQUET_REPORTER, model_values
from policytool.reports.plans import Migrations
from policytool.reports.plans import diff as diffs
from policytool.rules import selection
from policytool.rules.base import Audited, Severity
from policytool.rules.fixes import FixOutcome
from policytool.rules.selection.baselines import Baseline, KnownFindings
from policytool.rules.selection.baselines import of as baseline_of
from policytool.rules.selection.suppressions import Suppressions, expired_suppressions, suppress
from policytool.support.errors import UsageError
from policytool.support.spilled_values import SpilledValues
from policytool.support.text import codec

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from policytool.commands.audit import Audit
    from policytool.commands.migrate import Migration
    from policytool.formats.discovery import Input
    from policytool.rules import AuditOptions
    from policytool.rules.selection.suppressions import PathPattern

LINE_COUNTS: Final = ("clean", *(f"{severity.value}s" for severity in Severity), "suppressed")
"""The counts in the last line in addition to models."""


def check_lines_options(terminal: AuditCommandLine) -> None:
    """
    Check that each model can be reported before the next one is read.

    :raises UsageError: if an option needs all models.
    """
    for option, is_set in (
        ("--fix", terminal.fix),
        ("--diff", terminal.diff),
        ("--write-baseline", terminal.write_baseline is not None),
    ):
        if is_set:
            raise UsageError(f"{option} and --format jsonl conflict; use --format json")


def portable_options(
    audit_options: AuditOptions, suppressions: Suppressions, baseline: Baseline, fail_on: str
) -> str:
    """Return the options as text that is the same on all machines."""
    parts = [
        *(replace(audit_options, draws_graph=False), fail_on, baseline.findings),
        [(suppression.toml(), _base(suppression.path)) for suppression in suppressions.entries],
        [(str(ignore), _base(ignore.pattern)) for ignore in suppressions.per_file],
    ]
    return codec.encode(parts)


def print_results(
    lines: LinesReport,
    results: Iterable[Audited | Failure | None],
    audit_options: AuditOptions,
    known: KnownFindings,
    tally: AuditTally,
) -> Iterator[Audited | Failure | None]:
    """
    Write and count each result, and then yield it.

    :param known: the findings in the baseline; ``tally.suppressions`` refers to it
    """
    by_id = {rule.id: rule for rule in rules.chosen_rules(audit_options)}

    def counting(result: Audited) -> Audited:
        """Recognize renamed files, and separate the suppressed findings of a model."""
        known.recognise(result, tally.suppressions)
        return auditing.without_idle_commands(suppress(result, tally.suppressions), audit_options)

    def values(audited: Audited) -> tuple[Mapping[str, Any], Mapping[str, int]]:
        return model_values(audited, by_id), _counts(audited)

    counted = (
        run_isolated(result.path, functools.partial(counting, result))
        if isinstance(result, Audited)
        else result
        for result in results
    )
    for result in lines.write_all(counted, lambda audited: audited.path, values):
        if isinstance(result, Failure):
            options.print_errors((result,))
        elif result is not None:
            tally.add(result)
        yield result


def _counts(audited: Audited) -> Mapping[str, int]:
    """Return the counts of one model."""
    severities = Counter(finding.severity for finding in audited.findings)
    numbers = (
        not audited.findings,
        *(severities[severity] for severity in Severity),
        len(audited.suppressed),
    )
    return dict(zip(LINE_COUNTS, map(int, numbers), strict=True))


def _base(pattern: PathPattern | None) -> str:
    """Return the directory of a pattern in a form that is equal on all machines."""
    return os.path.relpath(pattern.base) if pattern is not None else ""


_KEYS = {"suppression": "suppress", "per-file-ignores": "per-file-ignores", "baseline": "baseline"}
"""The settings key of each source of suppressions."""


def print_hidden_findings(
    tally: AuditTally, audit_options: AuditOptions, *, verbose: bool | None
) -> None:
    """
    Print a sentence with the settings file that was found automatically and its keys, if they hide
    findings: a note if it only has a baseline, which lists each finding that it hides, or else a
    warning.
    """
    counts = _suppressed_counts(tally)
    others = [*_skipped_rules(audit_options), *_exit_code_changes(tally)]
    file = settings.automatic_file()
    if file is None or not (counts or others):
        return
    if not others and set(counts) == {"baseline"}:
        count = counts["baseline"]
        findings = f"{count} finding{'s' if count > 1 else ''}"
        sentence = (
            f"the baseline in {file.display_path} accepts {findings}. If this file is not yours, "
            "specify another settings file with --config"
        )
        messages.notes([sentence], verbose=verbose)
        return
    hidden = [", ".join(f"{count} by {key!r}" for key, count in counts.items())] if counts else []
    sentence = (
        f"{file.display_path} hides findings: {'; '.join([*hidden, *others])}. To ignore this "
        "file, specify another settings file with --config"
    )
    messages.warnings([sentence], verbose=verbose)


def _suppressed_counts(tally: AuditTally) -> Mapping[str, int]:
    """Return the number of findings that each key of the settings file suppresses."""
    counts = {_KEYS[reason]: count for reason, count in tally.suppressed.items()}
    return {
        key: count
        for key, count in sorted(counts.items())
        if settings.automatic_source(key.replace("-", "_"))
    }


def _skipped_rules(audit_options: AuditOptions) -> Iterator[str]:
    """Yield the number of rules that are not checked because of the settings file."""
    selectors_by_key: dict[str, tuple[selection.Selector, ...]] = {
        key: ()
        if settings.automatic_source(key)
        else selection.selectors(click.get_current_context().params[key], f"--{key}")
        for key in ("select", "ignore")
    }
    options_without_settings = replace(
        audit_options,
        rules=selection.select_rules(selectors_by_key["select"], selectors_by_key["ignore"]),
    )
    if skipped := len(rules.chosen_rules(options_without_settings)) - len(
        rules.chosen_rules(audit_options)
    ):
        keys = [repr(key) for key in selectors_by_key if settings.automatic_source(key)]
        yield (
            f"{skipped} rule{'s' if skipped > 1 else ''} not checked because of "
            f"{' and '.join(keys)}"
        )


def _exit_code_changes(tally: AuditTally) -> Iterator[str]:
    """Yield a note if the exit code would differ without the settings file."""
    fail_on = click.get_current_context().params["fail_on"]
    worst = tally.worst
    if (
        worst is None
        or not settings.automatic_source("fail_on")
        or worst.rank > Severity.WARNING.rank
    ):
        return
    if fail_on not in set(Severity) or worst.rank > Severity(fail_on).rank:
        yield f"'fail-on' is {fail_on!r}, so the reported findings do not affect the exit code"


_REPORTERS: Final[tuple[options.Renders[Any], ...]] = (*FINDING_REPORTERS, PARQUET_REPORTER)


NEVER: Final = "never"
"""The value of ``--fail-on`` that is not a severity."""

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
    changes=options.attributes(_REPORTERS, [json_lines.FORMAT]),
    cls=AuditCommand,
)
def command(
    arguments: AuditArguments, terminal: AuditCommandLine, *, paths: tuple[str, ...]
) -> int:
    """
    Find models that fail to load or behave differently, and show how to fix them.

    Only --fix, --write-baseline and --format FORMAT=FILE write files.
    """
    run = _prepare(arguments, terminal, paths)
    if terminal.stdout_format == json_lines.FORMAT:
        return _print_lines(run)
    audit, suppressions, migrations = _fix(run) if run.has_fixes else _audit(run)
    audit = _with_audit_options(audit, run)
    suppressions, unwritten = _write_baseline(terminal.write_baseline, audit, suppressions)
    audit = _with_suppressions(audit, suppressions, run.audit_options)
    unwritten += options.write_reports(
        terminal.report_files, _REPORTERS, audit, suppressed=bool(terminal.verbose)
    )
    _print(audit, migrations if terminal.diff else None, terminal)
    _print_errors(audit, unwritten)
    messages.notes(_unfixed_notes(audit) if terminal.diff else (), verbose=terminal.verbose)
    codes = [failure.code for failure in audit.failures]
    not_fixed = any(fixed.outcome is FixOutcome.FAILED for fixed in audit.fixed)
    failure = _failure_code(codes, unwritten, not_fixed=not_fixed)
    return _finish(run, tally_of(audit.audited, suppressions), audit.passed_over, failure)


class _Run(Struct, frozen=True, kw_only=True):
    """The models of an audit, the options of the checks, and the suppressions."""

    fleet: Fleet[Input]
    terminal: AuditCommandLine
    audit_options: AuditOptions
    baseline: Baseline
    suppressions: Suppressions
    """The suppressions in the settings, without the baseline."""

    @property
    def has_fixes(self) -> bool:
        """Whether fixes are planned or applied."""
        return self.terminal.fix or self.terminal.diff


def _prepare(arguments: AuditArguments, terminal: AuditCommandLine, paths: tuple[str, ...]) -> _Run:
    """
    Return the run, after all checks that do not need the models.

    :raises UsageError: if options and paths contradict each other.
    """
    on_stdout = None if terminal.diff else terminal.stdout_format
    options.check_binary(terminal.report_files, _REPORTERS, on_stdout)
    baseline = _baseline(terminal)
    audit_options = _audit_options(arguments, terminal, baseline)
    every = _inputs(terminal, paths)
    if terminal.stdout_format == json_lines.FORMAT:
        check_lines_options(terminal)
    if terminal.shard is not None:
        _check_shard(baseline, every, terminal.write_baseline)
    notes = [
        *selection.unused_words(
            selection.selectors(arguments.select or (), "--select"), audit_options
        ),
        *stand_ins(audit_options.target_names),
    ]
    cache = terminal.cache
    if cache is not None and (terminal.fix or terminal.diff):
        notes.append("--fix and --diff read all models, so --cache has no effect")
        cache = None
    messages.notes(notes, verbose=terminal.verbose)
    cached_results = fleets.open_cache(cache)
    return _Run(
        fleet=Fleet(command="audit", terminal=terminal, every=every, cache=cached_results),
        terminal=terminal,
        audit_options=audit_options,
        baseline=baseline,
        suppressions=_suppressions(terminal),
    )


def _baseline(terminal: AuditCommandLine) -> Baseline:
    """
    Return the baseline; empty if none is named, or if the run creates the named file.

    :raises BaselineError: if the file cannot be read, or is not a baseline.
    """
    file, written = terminal.baseline, terminal.write_baseline
    if file is None:
        return Baseline()
    is_created = written is not None and written.resolve() == file.resolve() and not file.exists()
    if is_created:
        return Baseline()
    source = settings.source_file("baseline")
    return baselines.read(file, source.display_path if source is not None else None)


def _audit_options(
    arguments: AuditArguments, terminal: AuditCommandLine, baseline: Baseline
) -> AuditOptions:
    """Return the options of the checks."""
    fail_on = Severity.WARNING if terminal.fail_on == NEVER else Severity(terminal.fail_on)
    audit_options = auditing.audit_options(arguments)
    return replace(
        audit_options,
        fail_on=fail_on,
        signatures=baseline.by_path,
        forbidden=terminal.forbid,
        draws_graph="html" in terminal.formats,
    )


def _inputs(terminal: AuditCommandLine, paths: tuple[str, ...]) -> list[Input]:
    """
    Return the inputs of all shards.

    :raises UsageError: if a report or the baseline would replace one of them.
    """
    every = options.expand_inputs(paths, remote=not (terminal.fix or terminal.diff))
    baseline, written = terminal.baseline, terminal.write_baseline
    if written is not None:
        named_files = options.named_files(every)
        options.check_place(f"--write-baseline {written}", written, named_files)
    files = [file for file in (baseline, written) if file is not None]
    options.check(terminal.report_files, every, files)
    if terminal.skip_unrecognized:  # named files count as those found in directories
        return [replace(source, exact=False) for source in every]
    return every


def _suppressions(terminal: AuditCommandLine) -> Suppressions:
    """Return the suppressions of the settings."""
    return Suppressions(
        directory=Path.cwd().as_posix(),
        today=datetime.now().astimezone().date(),
        entries=terminal.suppress,
        per_file=terminal.per_file_ignores,
    )


def _audit(run: _Run) -> tuple[Audit, Suppressions, tuple[Migration, ...]]:
    """Return the audit of all models, the suppressions, and no migrations."""
    audit = auditing.collect(run.fleet.results(auditing.TASK, run.audit_options))
    return audit, baselines.with_baseline(run.baseline, audit.audited, run.suppressions), ()


def _fix(run: _Run) -> tuple[Audit, Suppressions, tuple[Migration, ...]]:
    """Apply or plan fixes; return the audit, the suppressions, and the migrations."""
    renamed = baselines.renaming_candidates(run.baseline, run.fleet.inputs)
    unplanned = replace(run.audit_options, plans_commands=False)
    audited = auditing.collect(run.fleet.results(auditing.TASK, unplanned, renamed)).audited
    suppressions = baselines.with_baseline(run.baseline, audited, run.suppressions)
    fix_options = fixing.FixOptions(
        unsafe=run.terminal.unsafe_fixes,
        write=not run.terminal.diff,
        backup=run.terminal.backup,
        targets=run.audit_options.targets,
    )
    request = fixing.FixRequest(
        options=fix_options, audit_options=run.audit_options, suppressions=suppressions
    )
    audit, migrations = fixing.collect(run.fleet.results(fixing.TASK, request))
    return audit, suppressions, migrations


def _write_baseline(
    file: Path | None, audit: Audit, suppressions: Suppressions
) -> tuple[Suppressions, list[str]]:
    """
    Write the baseline, if there is a file for it. Return the suppressions including the baseline,
    and an error message if it could not be written.
    """
    if file is None:
        return suppressions, []
    baseline = baseline_of(audit.audited, suppressions)
    text = baselines.text(baseline, file)
    unwritten = options.write_text(f"--write-baseline {file}", file, text)
    return replace(suppressions, known=baseline.fingerprints), unwritten


def _print_lines(run: _Run) -> int:
    """Print each result as soon as it is available, and return the exit code."""
    known = KnownFindings(run.baseline, baselines.exists)
    tally = AuditTally(suppressions=replace(run.suppressions, known=known.by_path))
    terminal, files = run.terminal, run.terminal.report_files
    options_text = portable_options(
        run.audit_options, run.suppressions, run.baseline, terminal.fail_on
    )
    none = Exit.CLEAN if terminal.skip_unrecognized else Exit.NO_MODEL
    names = task.names(run.fleet.every)
    with LinesReport(
        "audit", names, options_text, terminal.shard, no_model=none, counts=LINE_COUNTS
    ) as lines:
        results = run.fleet.results(auditing.TASK, run.audit_options)
        stream = print_results(lines, results, run.audit_options, known, tally)
        collected = auditing.collect(result for result in stream if files)
        audit = _with_audit_options(collected, run)
        unwritten = options.write_reports(
            files, _REPORTERS, audit, suppressed=bool(terminal.verbose)
        )
        options.print_errors((), unwritten)
        failure = _failure_code(lines.failure_codes, unwritten)
        code = _finish(run, tally, lines.counts["skipped"], failure)
        lines.end(code)
    return code


def _print(audit: Audit, changes: tuple[Migration, ...] | None, terminal: AuditCommandLine) -> None:
    """Print the report, or the diff of the planned fixes."""
    view = options.terminal_view(suppressed=bool(terminal.verbose))
    if changes is None:
        options.print_report(_REPORTERS, terminal.stdout_format, audit, view)
    else:
        migrations = Migrations(migrations=changes, failures=())
        options.print_report([diffs.REPORTER], diffs.REPORTER.name, migrations, view)


def _with_suppressions(
    audit: Audit, suppressions: Suppressions, audit_options: AuditOptions
) -> Audit:
    """Return an audit in which suppressed findings are in a separate list."""
    suppressed = SpilledValues(Audited)
    failures, _ = separate_failures(
        (
            run_isolated(
                audited.path, functools.partial(_suppressed, audited, suppressions, audit_options)
            )
            for audited in audit.audited
        ),
        suppressed.append,
    )
    return replace(audit, audited=suppressed.all(), failures=(*audit.failures, *failures))


def _suppressed(
    audited: Audited, suppressions: Suppressions, audit_options: AuditOptions
) -> Audited:
    return auditing.without_idle_commands(suppress(audited, suppressions), audit_options)


def _with_audit_options(audit: Audit, run: _Run) -> Audit:
    """Return an audit with what models were checked for."""
    audit_options = run.audit_options
    return replace(
        audit,
        rules=rules.chosen_rules(audit_options),
        releases=auditing.checked_releases(audit_options),
        fail_on=audit_options.fail_on if run.terminal.fail_on != NEVER else None,
    )


def _finish(run: _Run, tally: AuditTally, skipped: int, failure: Exit | None) -> int:
    """
    Print the notes below a report, and return the exit code.

    :param failure: the exit code of failed reads or writes; None if there are none
    """
    terminal, verbose = run.terminal, run.terminal.verbose
    if skipped:
        messages.notes([left_out(skipped, run.fleet.inputs)], verbose=verbose)
    if verbose:
        messages.notes(_stderr_notes(tally), verbose=verbose)
    warnings = (*_expired_notes(tally.suppressions), *_unmatched(tally))
    messages.warnings(warnings, verbose=verbose)
    print_hidden_findings(tally, run.audit_options, verbose=verbose)
    run.fleet.print_notes()
    code = failure if failure is not None else _code(tally, terminal.fail_on)
    if code is not Exit.NO_MODEL:
        return code
    is_ok = terminal.skip_unrecognized
    return fleets.no_model(run.fleet.every, terminal.shard, is_ok=is_ok)


def _check_shard(baseline: Baseline, every: Sequence[Input], write_baseline: Path | None) -> None:
    """
    Check that a shard does not depend on other shards.

    :raises UsageError: if all shards would write the baseline, or if files may have been renamed,
        which only a single process can detect.
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
    codes: Collection[str], unwritten: Sequence[str], *, not_fixed: bool = False
) -> Exit | None:
    """Return the exit code for failed reads, fixes and writes; None if nothing failed."""
    return exit_code_of_failures(codes) if codes or unwritten or not_fixed else None


def _code(tally: AuditTally, fail_on: str) -> Exit:
    """Return the exit code of a run without failures; it does not depend on the format."""
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


def _stderr_notes(tally: AuditTally) -> Iterator[str]:
    """Yield the notes that ``-v`` prints on stderr in addition to the report."""
    for suppression in tally.idle():
        yield f"the suppression of {suppression} matches no finding ({suppression.reason})"
    if outdated_count := tally.outdated_count(baselines.exists):
        findings = "finding" if outdated_count == 1 else "findings"
        verb = "occurs" if outdated_count == 1 else "occur"
        yield (
            f"{outdated_count} {findings} in the baseline no longer {verb}; update the "
            "baseline with --write-baseline"
        )


def _expired_notes(suppressions: Suppressions) -> Iterator[str]:
    """Yield a warning for each expired suppression."""
    for suppression in expired_suppressions(suppressions.entries, suppressions.today):
        yield (
            f"the suppression of {suppression} expired on {suppression.expires} and has no effect "
            f"({suppression.reason})"
        )


def _unmatched(tally: AuditTally) -> Iterator[str]:
    """Yield the models that have too many or too long names for the patterns of suppressions."""
    for path, reason in tally.unmatched:
        yield f"not all suppressions were applied to {path}, because it {reason}"
