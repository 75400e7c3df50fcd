"""
The versioned JSON of ``audit``; its schema is ``policytool/reports/schemas/audit.schema.json``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from policytool.reports.findings._content import rules_of, totals, with_fingerprints
from policytool.reports.json_writing import FAILURES, JsonItems, json_pieces, with_version
from policytool.reports.reporter import streaming_reporter
from policytool.rules.finding import Finding, Remedy
from policytool.rules.fixes import FixedModel, UnfixedFinding
from policytool.support.text import codec
from policytool.support.text.codec import attributes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policytool.commands.audit import Audit
    from policytool.reports.layout import View
    from policytool.rules import Rule
    from policytool.rules.finding import Audited
    from policytool.support.text.codec import Forms

VERSION: Final = 1
"""Additive changes keep it; anything else raises it."""


def pieces(audit: Audit, view: View) -> Iterator[str]:
    """Yield the report as JSON text."""
    rules = rules_of(audit)
    values = {
        "models": JsonItems(model_values(audited, rules) for audited in audit.audited),
        "fixes": audit.fixed,
        "failures": audit.failures,
        "summary": _summary(audit),
    }
    return json_pieces(with_version(VERSION, values), FORMS, unicode=view.unicode)


_MODEL: Final = attributes("path", "format", "layers", written_by="generation")
_FINDING: Final = attributes(
    *("severity", "message", "path", "detail", "address", "advice"), fix="remedy"
)
_COMMAND: Final = attributes("target", "arguments", "reason", safety="fix")
_SHORT: Final = attributes("rule", "path", "detail")


def model_values(audited: Audited, rules: Mapping[str, Rule]) -> dict[str, Any]:
    """Return what was found in one model."""
    return {
        **_MODEL(audited),
        "findings": [
            _finding(finding, fingerprint, rules[finding.rule])
            for finding, fingerprint in with_fingerprints(audited)
        ],
        "commands": [_COMMAND(command) for command in audited.commands],
        "suppressed": [
            {
                **_finding(one.finding, one.fingerprint, rules[one.finding.rule]),
                "by": one.by,
                "reason": one.reason,
            }
            for one in audited.suppressed
        ],
    }


def finding_values(finding: Finding, fingerprint: str, rule: Rule) -> dict[str, Any]:
    """Return a finding as JSON values."""
    text = codec.encode(_finding(finding, fingerprint, rule), FORMS, nan=False)
    values: dict[str, Any] = json.loads(text)
    return values


def _finding(finding: Finding, fingerprint: str, rule: Rule) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "name": rule.name,
        **_FINDING(finding),
        "fingerprint": fingerprint,
    }


def _summary(audit: Audit) -> dict[str, Any]:
    count = totals(audit)
    return {
        "models": count.models,
        "releases": audit.releases,
        "clean": count.clean,
        "findings": count.severities,
        "fixable": count.fixes,
        "suppressed": count.suppressed,
        "failures": count.failures,
        "skipped": audit.passed_over,
    }


FORMS: Final[Forms] = {
    **FAILURES,
    Finding: _SHORT,
    FixedModel: attributes(
        *("path", "outcome", "arguments", "warnings", "backup"), resolved="gone", remaining="left"
    ),
    Remedy: attributes("arguments", safety="fix"),
    UnfixedFinding: lambda one: {**_SHORT(one.finding), "reason": one.reason},
}
"""The forms of the values in a model."""

REPORTER: Final = streaming_reporter("json", pieces)
