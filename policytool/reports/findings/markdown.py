"""
The report of an audit for pull requests and job summaries: GitHub-flavoured Markdown, a section per
model that has findings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.reports import shell
from policytool.reports._markdown import code, prose, row
from policytool.reports.findings._base import FindingReporter
from policytool.reports.findings._content import (
    EFFECTS,
    OUTCOMES,
    advice,
    by_rule,
    groups,
    layer_message,
    left,
    places,
    remedies,
    summary,
    words,
)
from policytool.reports.rule_reference import plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.commands.audit import Audit
    from policytool.reports.findings._content import FindingGroup
    from policytool.reports.layout import View
    from policytool.rules.finding import Audited
    from policytool.rules.fixes import Mended

_COLUMNS: Final = ("severity", "rule", "layer", "what")
_LET_PASS: Final = ("rule", "layer", "by", "reason")


def render(audit: Audit, view: View) -> str:
    """
    Return the report as Markdown: totals, a section per model with findings, and what could not be
    read.
    """
    blocks = (
        [f"**policytool audit** {prose(summary(audit))}"] if audit.audited or audit.failures else []
    )
    for audited in audit.audited:
        if audited.findings or (audited.suppressed and view.suppressed):
            blocks += _model(audit, audited, view)
    if mended := [line for done in audit.mended for line in _fix_lines(done)]:
        blocks += ["### Mended", "\n".join(mended)]
    if audit.failures:
        blocks += [
            "### Not read",
            "\n".join(
                f"- {code(failure.path)} {prose(failure.message)}" for failure in audit.failures
            ),
        ]
    return "\n\n".join(blocks) + "\n" if blocks else ""


def _model(audit: Audit, audited: Audited, view: View) -> Iterator[str]:
    """
    Yield the blocks of a model: its findings, a table each row, then what its rules are about and
    what mends it.
    """
    yield f"### {code(audited.path)}"
    found = groups(audit, audited)
    rows = [
        row(
            (
                group.severity.value,
                group.rule.id,
                code(finding.path) if finding.path else "",
                prose(layer_message(finding)),
            )
        )
        for group in found
        for finding in group.findings
    ]
    if rows:
        yield _table(_COLUMNS, rows)
        yield "\n".join(line for group in found for line in _reasons(group, audited.path))
    if audited.suppressed and view.suppressed:
        yield "Suppressed:"
        cells = [
            (one.finding.rule, code(one.finding.path or ""), prose(one.by), prose(one.reason))
            for one in audited.suppressed
        ]
        yield _table(_LET_PASS, [row(one) for one in cells])


def _table(titles: tuple[str, ...], rows: list[str]) -> str:
    return "\n".join([row(titles), row(["---"] * len(titles)), *rows])


def _reasons(group: FindingGroup, path: str) -> Iterator[str]:
    yield f"- **{group.rule.id} {group.rule.name}** {prose(plain(group.rule.summary))}"
    for remedy in remedies(group.findings):
        yield f"  - {code(shell.command(words(path, remedy)))} mends it and {EFFECTS[remedy.fix]}"
    for text in advice(group.findings):
        yield f"  - {prose(text)}"


def _fix_lines(done: Mended) -> Iterator[str]:
    """Yield a line for each rule of what was mended, and of what was not."""
    for rule, findings in by_rule(done.gone):
        yield f"- {code(done.path)} **{rule}** {OUTCOMES[done.outcome]}: {prose(places(findings))}"
    for rule, reason, findings in left(done):
        yield (
            f"- {code(done.path)} **{rule}** not mended: {prose(places(findings))}: {prose(reason)}"
        )
    for warning in done.warnings:
        yield f"- {code(done.path)} warning: {prose(warning)}"
    if done.backup is not None:
        yield f"- {code(done.path)} the original is {code(done.backup)}"


REPORTER: Final = FindingReporter(name="markdown", render=render)
