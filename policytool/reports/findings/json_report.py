"""
The versioned JSON of ``audit``; its schema is ``policytool/reports/schemas/audit.schema.json``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from policytool.reports.findings._base import FindingReporter
from policytool.reports.findings._content import marked, rules_of, totals
from policytool.reports.json_writing import written
from policytool.support.version import version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.commands.audit import Audit
    from policytool.reports.layout import View
    from policytool.rules import Rule
    from policytool.rules.finding import Audited, Finding, Remedy
    from policytool.rules.fixes import Mended

VERSION: Final = 1
"""Additive changes keep it; anything else raises it."""


def render(audit: Audit, view: View) -> str:
    """Return the report as JSON text."""
    return written(document(audit), view)


def document(audit: Audit) -> dict[str, Any]:
    """Return the report as JSON values."""
    rules = rules_of(audit)
    return {
        "version": VERSION,
        "tool": {"name": "policytool", "version": version()},
        "models": [_model(audited, rules) for audited in audit.audited],
        "mended": [_mended(done) for done in audit.mended],
        "failures": [
            {"path": failure.path, "code": failure.code, "message": failure.message}
            for failure in audit.failures
        ],
        "summary": _summary(audit),
    }


def _model(audited: Audited, rules: Mapping[str, Rule]) -> dict[str, Any]:
    return {
        "path": audited.path,
        "format": audited.format,
        "generation": audited.generation,
        "layers": audited.layers,
        "findings": [
            _finding(finding, fingerprint, rules) for finding, fingerprint in marked(audited)
        ],
        "suppressed": [
            {**_finding(one.finding, one.fingerprint, rules), "by": one.by, "reason": one.reason}
            for one in audited.suppressed
        ],
    }


def _finding(finding: Finding, fingerprint: str, rules: Mapping[str, Rule]) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "name": rules[finding.rule].name,
        "severity": finding.severity.value,
        "message": finding.message,
        "path": finding.path,
        "detail": finding.detail,
        "address": {"part": finding.address.part, "pointer": finding.address.pointer}
        if finding.address
        else None,
        "remedy": _remedy(finding.remedy) if finding.remedy else None,
        "advice": finding.advice,
        "fingerprint": fingerprint,
    }


def _mended(done: Mended) -> dict[str, Any]:
    return {
        "path": done.path,
        "outcome": done.outcome.value,
        "arguments": list(done.arguments),
        "gone": [_short(finding) for finding in done.gone],
        "left": [{**_short(one.finding), "reason": one.reason} for one in done.left],
        "warnings": list(done.warnings),
        "backup": done.backup,
    }


def _short(finding: Finding) -> dict[str, Any]:
    return {"rule": finding.rule, "path": finding.path, "detail": finding.detail}


def _remedy(remedy: Remedy) -> dict[str, Any]:
    return {"fix": remedy.fix.value, "arguments": list(remedy.arguments)}


def _summary(audit: Audit) -> dict[str, Any]:
    count = totals(audit)
    return {
        "models": count.models,
        "clean": count.clean,
        "findings": {severity.value: number for severity, number in count.severities.items()},
        "fixable": {fix.value: number for fix, number in count.fixes.items()},
        "suppressed": count.suppressed,
        "failures": count.failures,
        "passed_over": audit.passed_over,
    }


REPORTER: Final = FindingReporter(name="json", render=render)
