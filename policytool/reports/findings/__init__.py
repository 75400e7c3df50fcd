"""
What ``audit`` found, as text: a page for people, JSON, SARIF, JUnit, and annotations of GitHub.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.reports.findings import github, json_report, junit, sarif
from policytool.reports.findings._content import headline
from policytool.reports.findings._page import page
from policytool.reports.findings.json_report import finding_values
from policytool.reports.reporter import Reporter, reporters_for_people

if TYPE_CHECKING:
    from policytool.commands.audit import Audit

FINDING_REPORTERS: Final[tuple[Reporter[Audit], ...]] = (
    *reporters_for_people(page, "policytool audit"),
    json_report.REPORTER,
    sarif.REPORTER,
    junit.REPORTER,
    github.REPORTER,
)
"""The first is the default."""

__all__ = ["FINDING_REPORTERS", "finding_values", "headline", "page"]
