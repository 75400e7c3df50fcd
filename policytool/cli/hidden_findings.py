"""What a settings file that nobody named keeps out of an audit's findings and exit code."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from policytool import rules
from policytool.cli import settings
from policytool.rules import selection
from policytool.rules.base import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.commands.audit import AuditTally
    from policytool.rules import AuditOptions

_KEYS = {"suppression": "suppress", "per-file-ignores": "per-file-ignores", "baseline": "baseline"}
"""What lets a finding pass to the key that says so."""


def hidden_finding_notes(tally: AuditTally, question: AuditOptions) -> Iterator[str]:
    """Yield a sentence with the file and its keys, if they hide anything."""
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
