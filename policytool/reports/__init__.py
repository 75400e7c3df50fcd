"""
Values of every command as text: terminal, Markdown, JSON, CSV, SARIF, JUnit and diffs.

To add a report, write its module and add one line to :data:`REPORTERS`.
"""

from __future__ import annotations

from typing import Final

from policytool.reports import csv_report, json_report, markdown, table, tree
from policytool.reports._base import Reporter
from policytool.reports.layout import View

REPORTERS: Final[tuple[Reporter, ...]] = (
    table.REPORTER,  # first: the default
    tree.REPORTER,
    markdown.REPORTER,
    csv_report.REPORTER,
    json_report.REPORTER,
)

__all__ = ["REPORTERS", "Reporter", "View"]
