"""
``audit --format jsonl``, and notes on findings that an automatically found settings file hides.
"""

from __future__ import annotations

import functools
import os
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import click

from policytool import rules
from policytool.cli import options, settings
from policytool.commands import audit as auditing
from policytool.commands.batch.isolation import run_isolated
from policytool.commands.inspect import Failure
from policytool.reports.findings import model_values
from policytool.rules import selection
from policytool.rules.base import Audited, Severity
from policytool.rules.selection.suppressions import suppress
from policytool.support.errors import UsageError
from policytool.support.text import codec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from policytool.cli.audit_arguments import AuditCommandLine
    from policytool.cli.lines_report import LinesReport
    from policytool.commands.audit import AuditTally
    from policytool.rules import AuditOptions
    from policytool.rules.selection.baselines import Baseline, KnownFindings
    from policytool.rules.selection.suppressions import PathPattern, Suppressions


COUNTS: Final = ("clean", *(f"{severity.value}s" for severity in Severity), "suppressed")
"""The counts in the last line in addition to models."""


def check(terminal: AuditCommandLine) -> None:
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


def options_text(
    question: AuditOptions, passing: Suppressions, baseline: Baseline, fail_on: str
) -> str:
    """Return the options as text that is the same on all machines."""
    parts = [
        *(question, fail_on, baseline.findings),
        [(suppression.toml(), _base(suppression.path)) for suppression in passing.suppressions],
        [(str(ignore), _base(ignore.pattern)) for ignore in passing.per_file],
    ]
    return codec.encode(parts)


def stream(
    lines: LinesReport,
    results: Iterable[Audited | Failure | None],
    question: AuditOptions,
    known: KnownFindings,
    tally: AuditTally,
) -> Iterator[Audited | Failure | None]:
    """
    Write and count each result, and then yield it.

    :param known: the findings in the baseline; ``tally.passing`` refers to it
    """
    by_id = {rule.id: rule for rule in rules.chosen_rules(question)}

    def counting(result: Audited) -> Audited:
        known.recognise(result, tally.passing)
        return auditing.without_idle_commands(suppress(result, tally.passing), question)

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
    return dict(zip(COUNTS, map(int, numbers), strict=True))


def _base(pattern: PathPattern | None) -> str:
    """Return the directory of a pattern in a form that is equal on all machines."""
    return os.path.relpath(pattern.base) if pattern is not None else ""


_KEYS = {"suppression": "suppress", "per-file-ignores": "per-file-ignores", "baseline": "baseline"}
"""The settings key of each source of suppressions."""


def hidden_finding_notes(tally: AuditTally, question: AuditOptions) -> Iterator[str]:
    """Yield a sentence with the file and its keys, if they hide findings."""
    hidden = [*_suppressed_counts(tally), *_skipped_rules(question), *_exit_code_changes(tally)]
    file = settings.found_file()
    if hidden and file is not None:
        yield (
            f"{file.display_path} hides findings: {'; '.join(hidden)}. To ignore this file, "
            "specify another settings file with --config"
        )


def _suppressed_counts(tally: AuditTally) -> Iterator[str]:
    counts = {_KEYS[by]: count for by, count in tally.suppressed.items()}
    settings_counts = {
        key: count
        for key, count in sorted(counts.items())
        if settings.found_source(key.replace("-", "_"))
    }
    if settings_counts:
        yield f"{', '.join(f'{count} by {key!r}' for key, count in settings_counts.items())}"


def _skipped_rules(question: AuditOptions) -> Iterator[str]:
    """Yield the number of rules that are not checked because of the settings file."""
    selectors_by_key: dict[str, tuple[selection.Selector, ...]] = {
        key: ()
        if settings.found_source(key)
        else selection.selectors(click.get_current_context().params[key], f"--{key}")
        for key in ("select", "ignore")
    }
    without = replace(
        question,
        rules=selection.select_rules(selectors_by_key["select"], selectors_by_key["ignore"]),
    )
    if skipped := len(rules.chosen_rules(without)) - len(rules.chosen_rules(question)):
        keys = [repr(key) for key in selectors_by_key if settings.found_source(key)]
        yield (
            f"{skipped} rule{'s' if skipped > 1 else ''} not checked because of "
            f"{' and '.join(keys)}"
        )


def _exit_code_changes(tally: AuditTally) -> Iterator[str]:
    """Yield a note if the exit code would differ without the settings file."""
    fail_on = click.get_current_context().params["fail_on"]
    worst = tally.worst
    if worst is None or not settings.found_source("fail_on") or worst.rank > Severity.WARNING.rank:
        return
    if fail_on not in set(Severity) or worst.rank > Severity(fail_on).rank:
        yield f"'fail-on' is {fail_on!r}, so the reported findings do not affect the exit code"
