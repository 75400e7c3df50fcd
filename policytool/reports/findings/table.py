"""Findings for terminals, grouped by file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.reports._layout import clean, wrapped
from policytool.reports.findings._base import FindingReporter

if TYPE_CHECKING:
    from policytool.operations.auditing import Audit
    from policytool.reports._layout import View

_STYLES: Final = {"error": "bad", "warning": "half", "note": "dim"}


def render(audit: Audit, view: View) -> str:
    """Return the findings of each file."""
    lines: list[str] = []
    for audited in audit.audited:
        lines.append(view.paint(clean(audited.path), "title"))
        for finding in audited.findings:
            label = f"{finding.rule} {finding.severity.value:8}"
            lines += wrapped(label, clean(finding.message), view, _STYLES[finding.severity.value])
    return "".join(f"{line}\n" for line in lines)


REPORTER: Final = FindingReporter(name="table", render=render)
