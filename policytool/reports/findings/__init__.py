"""
Every way in which an audit is shown, one module each.

To add a report, write its module and add one line to :data:`FINDING_REPORTERS`.
"""

from __future__ import annotations

from typing import Final

from policytool.reports.findings import github, json_report, junit, markdown, sarif, table
from policytool.reports.findings._base import FindingReporter

FINDING_REPORTERS: Final[tuple[FindingReporter, ...]] = (
    table.REPORTER,  # first: the default
    markdown.REPORTER,
    json_report.REPORTER,
    sarif.REPORTER,
    junit.REPORTER,
    github.REPORTER,
)

__all__ = ["FINDING_REPORTERS", "FindingReporter"]
