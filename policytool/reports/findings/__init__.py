"""
What ``audit`` found, as reports: a page for people, CSV and Parquet, JSON, SARIF, JUnit, and
annotations of GitHub.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.reports.findings import csv_report, github, json_report, junit, sarif
from policytool.reports.findings._content import headline
from policytool.reports.findings._page import page
from policytool.reports.findings.json_report import finding_values
from policytool.reports.reporter import Reporter, reporters_for_people

if TYPE_CHECKING:
    from policytool.commands.audit import Audit

FINDING_REPORTERS: Final[tuple[Reporter[Audit], ...]] = (
    *reporters_for_people(page, "policytool audit"),
    csv_report.REPORTER,
    json_report.REPORTER,
    sarif.REPORTER,
    junit.REPORTER,
    github.REPORTER,
)
"""The first is the default."""

PARQUET_REPORTER: Final = csv_report.PARQUET_REPORTER

__all__ = ["FINDING_REPORTERS", "PARQUET_REPORTER", "finding_values", "headline", "page"]
