"""
The page of ``audit``: how many models have findings, then for each of them what was found, and the
command that fixes it; with charts in HTML.

What a rule says of several layers in the same words is said once, with the names of the layers.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from policytool.reports._words import failure_facts
from policytool.reports.findings._content import (
    OUTCOMES,
    TONES,
    advice,
    alike,
    by_rule,
    commands,
    counts,
    groups,
    layer_message,
    left,
    obstacles,
    places,
    rules_of,
    summary,
)
from policytool.reports.page import (
    Bar,
    Bars,
    Block,
    Command,
    Fact,
    Facts,
    Item,
    Listing,
    Page,
    Tone,
    Verdict,
)
from policytool.support.shorten import join_and_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from policytool.commands.audit import Audit
    from policytool.reports.findings._content import FindingGroup
    from policytool.reports.layout import View
    from policytool.rules.finding import Audited, Severity, Suppressed
    from policytool.rules.fixes import FixedModel

_CLASS: Final = re.compile(r"^\((\w+)\)")
_SHOWN: Final = 8
"""Layers that are named of each finding; HTML and JSON name all."""


def page(audit: Audit, view: View) -> Page:
    """Return the page; models without anything to report are only in the totals."""
    done = {fixed.path: fixed for fixed in audit.fixed}
    visible_models = [
        audited
        for audited in audit.audited
        if audited.findings or audited.path in done or (audited.suppressed and view.suppressed)
    ]
    models = [
        tuple(_model(audit, audited, done.get(audited.path), view)) for audited in visible_models
    ]
    failures = failure_facts(audit.failures)
    text = summary(audit)
    if not text:
        return Page(groups=())
    worst = _worst(audit.audited)
    verdict = Verdict.whole(text=text, tone=TONES[worst] if worst is not None else Tone.GOOD)
    first = (verdict, *(charts(audit) if view.is_searchable else ()))
    return Page(groups=(first, *models), failures=failures)


def _worst(audited_models: Iterable[Audited]) -> Severity | None:
    severities = {finding.severity for audited in audited_models for finding in audited.findings}
    return min(severities, key=lambda severity: severity.rank, default=None)


def _model(audit: Audit, audited: Audited, done: FixedModel | None, view: View) -> Iterator[Block]:
    worst = _worst([audited])
    yield Verdict.whole(
        subject=audited.path,
        text=counts(audited.findings) or "no findings",
        tone=TONES[worst] if worst is not None else Tone.PLAIN,
    )
    finding_groups = groups(audit, audited)
    if finding_groups:
        most = None if view.is_searchable else _SHOWN
        yield Listing(items=tuple(item for group in finding_groups for item in _items(group, most)))
    for label, words in commands(audited):
        yield Command(label=label, words=words)
    if reasons := tuple(Fact(label=label, text=reason) for label, reason in obstacles(audited)):
        yield Facts(facts=reasons)
    if view.suppressed and audited.suppressed:
        yield Facts(facts=tuple(_suppressed(audited.suppressed)))
    if done is not None and (facts := tuple(_fixes(done))):
        yield Facts(facts=facts)


def _items(group: FindingGroup, most: int | None) -> Iterator[Item]:
    label = f"{group.rule.id} {group.severity.value}"
    tone = TONES[group.severity]
    whole = {layer_message(finding): finding.message for finding in group.findings}
    for text, paths in alike(group.findings):
        several = len(paths) > 1
        yield Item(
            label=label,
            tone=tone,
            text=_of_several(text, len(paths)) if several else whole[text],
            names=join_and_count(paths, most) if several else "",
        )
    for text in advice(group.findings):
        yield Item(label="", tone=Tone.PLAIN, text=f"hint: {text}", names="")


def _of_several(text: str, count: int) -> str:
    """Return what a rule says of layers, which may begin with their class in parentheses."""
    return _CLASS.sub(r"\1", text) + f" ({count} layers)"


def _suppressed(suppressed_findings: Iterable[Suppressed]) -> Iterator[Fact]:
    """Yield the suppressed findings by rule and reason."""
    by: dict[tuple[str, str, str], list[str]] = {}
    for suppressed in suppressed_findings:
        by.setdefault((suppressed.finding.rule, suppressed.by, suppressed.reason), []).append(
            suppressed.finding.path or suppressed.finding.message
        )
    for (rule, by_what, reason), where in by.items():
        why = reason if by_what in reason else f"{by_what}{': ' if reason else ''}{reason}"
        yield Fact(
            label=f"{rule} suppressed",
            text=f"{', '.join(dict.fromkeys(where))} ({why})",
            tone=Tone.DIM,
        )


def _fixes(done: FixedModel) -> Iterator[Fact]:
    """Yield what was fixed, what was not and why, and what the file no longer says."""
    for rule, findings in by_rule(done.gone):
        yield Fact(label=f"{rule} {OUTCOMES[done.outcome]}", text=places(findings), tone=Tone.GOOD)
    for rule, reason, findings in left(done):
        yield Fact(
            label=f"{rule} not fixed",
            text=f"{places(findings)}: {reason}",
            tone=Tone.CAUTION,
        )
    yield from (Fact(label="warning", text=text, tone=Tone.CAUTION) for text in done.warnings)
    if done.backup is not None:
        yield Fact(label="original", text=f"kept in {done.backup}", tone=Tone.DIM)


_MOST: Final = 20
"""Bars of a chart."""


def charts(audit: Audit) -> Iterator[Bars]:
    """Yield the chart of findings by rule, and by model if there are several models."""
    known = rules_of(audit)
    rules, models = Counter[str](), Counter[str]()
    worst: dict[str, Severity] = {}
    for audited in audit.audited:
        for finding in audited.findings:
            rule = f"{finding.rule} {known[finding.rule].name}"
            rules[rule] += 1
            models[audited.path] += 1
            for name in (rule, audited.path):
                previous_severity = worst.setdefault(name, finding.severity)
                worst[name] = min(
                    previous_severity, finding.severity, key=lambda severity: severity.rank
                )
    if rules:
        yield _chart("Findings by rule", rules, worst)
    if len(models) > 1:
        yield _chart("Findings by model", models, worst)


def _chart(title: str, counts: Mapping[str, int], worst: Mapping[str, Severity]) -> Bars:
    ranked_counts = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    more = len(ranked_counts) - _MOST
    return Bars(
        title=title + (f" (the first {_MOST} of {len(ranked_counts)})" if more > 0 else ""),
        bars=tuple(
            Bar(label=name, value=count, text=f"{count:,}", tone=TONES[worst[name]])
            for name, count in ranked_counts[:_MOST]
        ),
    )
