"""
What ``inspect --summary`` counted, as reports: a page for people, a row for each model as CSV and
Parquet, and JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.reports.reporter import Reporter, reporters_for_people
from policytool.reports.summaries import csv_report, json_report
from policytool.reports.summaries._page import page

if TYPE_CHECKING:
    from policytool.commands.summary import FleetSummary

SUMMARY_REPORTERS: Final[tuple[Reporter[FleetSummary], ...]] = (
    *reporters_for_people(page, "policytool inspect --summary"),
    csv_report.REPORTER,
    json_report.REPORTER,
)
"""The first is the default."""

PARQUET_REPORTER: Final = csv_report.PARQUET_REPORTER

WITH_ROWS: Final = frozenset({csv_report.REPORTER.name, PARQUET_REPORTER.name})
"""The reports that need the record of each model."""

__all__ = ["PARQUET_REPORTER", "SUMMARY_REPORTERS", "WITH_ROWS", "page"]
