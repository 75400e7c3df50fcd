"""
What ``inspect --summary`` counted, as reports: a page for people, a row for each model as CSV and
Parquet, and JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.reports.reporter import Reporter, json_reporter, reporters_for_people
from policytool.reports.rows import csv_reporter, parquet_reporter
from policytool.reports.summaries._page import page
from policytool.reports.summaries.fields import REPORT, ROW_COLUMNS, rows

if TYPE_CHECKING:
    from policytool.commands.summary import FleetSummary

SUMMARY_REPORTERS: Final[tuple[Reporter[FleetSummary], ...]] = (
    *reporters_for_people(page, "policytool inspect --summary"),
    csv_reporter(ROW_COLUMNS, rows),
    json_reporter(REPORT),
)
"""The first is the default."""

PARQUET_REPORTER: Final = parquet_reporter(ROW_COLUMNS, rows)

WITH_ROWS: Final = frozenset({"csv", PARQUET_REPORTER.name})
"""The reports that need the record of each model."""

__all__ = ["PARQUET_REPORTER", "SUMMARY_REPORTERS", "WITH_ROWS", "page"]
