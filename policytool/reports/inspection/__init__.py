"""What ``inspect`` found, as reports: a page for people, JSON, CSV and Parquet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.reports.inspection import csv_report, json_report
from policytool.reports.inspection._headline import headline
from policytool.reports.inspection._page import page
from policytool.reports.reporter import Reporter, reporters_for_people

if TYPE_CHECKING:
    from policytool.commands.inspect import Selected

REPORTERS: Final[tuple[Reporter[Selected], ...]] = (
    *reporters_for_people(page, "policytool inspect"),
    csv_report.REPORTER,
    json_report.REPORTER,
)
"""The first is the default."""

PARQUET_REPORTER: Final = csv_report.PARQUET_REPORTER

__all__ = ["PARQUET_REPORTER", "REPORTERS", "headline", "page"]
