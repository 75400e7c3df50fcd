"""
Findings for people at a terminal, grouped by file and by rule: what, where, why, and the command
that mends it.

What a rule says of several layers in the same words is said once, with the names of the layers. A
command is in one piece that a shell takes as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.reports import shell
from policytool.reports.findings._base import FindingReporter
from policytool.reports.findings._content import (
    EFFECTS,
    OUTCOMES,
    advice,
    alike,
    by_rule,
    groups,
    left,
    places,
    remedies,
    summary,
    words,
)
from policytool.reports.layout import clean, width_of, wrap
from policytool.reports.rule_reference import plain
from policytool.rules.finding import Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from policytool.commands.audit import Audit
    from policytool.reports.findings._content import FindingGroup
    from policytool.reports.layout import View
    from policytool.rules.finding import Audited, Suppressed
    from policytool.rules.fixes import Mended

_STYLES: Final = {Severity.ERROR: "bad", Severity.WARNING: "half", Severity.NOTE: "dim"}
_BESIDE: Final = 3
"""
A layer's path takes at most one column in so many where a sentence stands beside it; longer ones
stand above.
"""


def render(audit: Audit, view: View) -> str:
    """
    Return the findings of each model that has some, with what ``--fix`` did to it, and totals.
    """
    done = {mended.path: mended for mended in audit.mended}
    shown = [
        audited
        for audited in audit.audited
        if audited.findings or audited.path in done or (audited.suppressed and view.suppressed)
    ]
    blocks = [
        [
            *_model(audit, audited, view),
            *(_fix_lines(done[audited.path], view) if audited.path in done else ()),
        ]
        for audited in shown
    ]
    if text := summary(audit):
        blocks.append(wrap("", text, view, "title", indent=0))
    return "\n".join("".join(f"{line}\n" for line in block) for block in blocks)


def _model(audit: Audit, audited: Audited, view: View) -> list[str]:
    lines = [view.paint(clean(audited.path), "title")]
    for group in groups(audit, audited):
        lines += _group(group, audited.path, view)
    return lines + (_suppressed_lines(audited.suppressed, view) if view.suppressed else [])


def _group(group: FindingGroup, path: str, view: View) -> list[str]:
    label = f"{group.rule.id} {group.severity.value:8}"
    lines = wrap(label, plain(group.rule.summary), view)
    lines[0] = lines[0].replace(
        label, view.paint(label.rstrip(), _STYLES[group.severity]) + label[len(label.rstrip()) :], 1
    )
    lines += _finding_lines(alike(group.findings), view)
    for remedy in remedies(group.findings):
        lines += [f"    {view.paint(f'mend it ({EFFECTS[remedy.fix]}):', 'dim')}"]
        lines += [
            f"      {view.paint(line, 'good')}"
            for line in shell.lines(words(path, remedy), view.width - 6)
        ]
    for text in advice(group.findings):
        lines += wrap("what to do: ", clean(text), view, indent=4)
    return lines


def _finding_lines(sentences: list[tuple[str, tuple[str, ...]]], view: View) -> list[str]:
    """
    Return the sentences, each beside its layer where the paths are short and above it where they
    are long or several.
    """
    room = view.width // _BESIDE
    labels = [clean(paths[0]) if len(paths) == 1 else "" for _, paths in sentences]
    longest = max((width_of(label) for label in labels if width_of(label) <= room), default=0)
    lines = []
    for (said, paths), label in zip(sentences, labels, strict=True):
        if label and width_of(label) <= room:
            beside = label + " " * (longest - width_of(label) + 2)
            first, *rest = wrap(beside, clean(said), view, indent=4)
            lines += [first.replace(label, view.paint(label, "mixed"), 1), *rest]
            continue
        if paths:
            lines += wrap("", ", ".join(map(clean, paths)), view, "mixed", indent=4)
        lines += wrap("", clean(said), view, indent=6 if paths else 4)
    return lines


def _suppressed_lines(found: Iterable[Suppressed], view: View) -> list[str]:
    """Return what is let pass, by rule and reason."""
    by: dict[tuple[str, str, str], list[str]] = {}
    for one in found:
        by.setdefault((one.finding.rule, one.by, one.reason), []).append(
            one.finding.path or one.finding.message
        )
    lines = []
    for (rule, by_what, reason), where in by.items():
        why = (
            clean(reason)
            if by_what in reason
            else f"{by_what}{': ' if reason else ''}{clean(reason)}"
        )  # a baseline's reason names it
        text = f"{', '.join(dict.fromkeys(map(clean, where)))} ({why})"
        lines += wrap(f"{rule} suppressed: ", text, view, "dim")
    return lines


def _fix_lines(done: Mended, view: View) -> list[str]:
    """
    Return what became of a model's remedies: what is mended, what is not and why, and what the file
    no longer says.
    """
    lines = []
    for rule, findings in by_rule(done.gone):
        lines += wrap(f"{rule} {OUTCOMES[done.outcome]}: ", places(findings), view, "good")
    for rule, reason, findings in left(done):
        lines += wrap(f"{rule} not mended: ", f"{places(findings)}: {clean(reason)}", view, "half")
    for warning in done.warnings:
        lines += wrap("warning: ", clean(warning), view, "half")
    return lines + (
        wrap("the original is ", clean(done.backup), view, "dim") if done.backup is not None else []
    )


REPORTER: Final = FindingReporter(name="table", render=render)
