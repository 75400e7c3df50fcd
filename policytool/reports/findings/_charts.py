"""The charts of ``audit``: findings by rule and by model."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from policytool.reports.findings._content import TONES, rules_of
from policytool.reports.page import Bar, Bars

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policytool.commands.audit import Audit
    from policytool.rules.finding import Severity

_MOST: Final = 20
"""Bars of a chart."""


def charts(audit: Audit) -> Iterator[Bars]:
    """Yield the charts of what has findings; the second one if there are several models."""
    known = rules_of(audit)
    rules, models = Counter[str](), Counter[str]()
    worst: dict[str, Severity] = {}
    for one in audit.audited:
        for finding in one.findings:
            rule = f"{finding.rule} {known[finding.rule].name}"
            rules[rule] += 1
            models[one.path] += 1
            for name in (rule, one.path):
                found = worst.setdefault(name, finding.severity)
                worst[name] = min(found, finding.severity, key=lambda severity: severity.rank)
    if rules:
        yield _chart("Findings by rule", rules, worst)
    if len(models) > 1:
        yield _chart("Findings by model", models, worst)


def _chart(title: str, counts: Mapping[str, int], worst: Mapping[str, Severity]) -> Bars:
    shown = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    more = len(shown) - _MOST
    return Bars(
        title=title + (f" (the first {_MOST} of {len(shown)})" if more > 0 else ""),
        bars=tuple(
            Bar(label=name, value=count, text=f"{count:,}", tone=TONES[worst[name]])
            for name, count in shown[:_MOST]
        ),
    )
