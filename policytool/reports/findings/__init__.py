"""
Reports of ``audit``: a page for people, CSV and Parquet, JSON, SARIF, JUnit, and annotations for
GitHub.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.reports.findings import github, junit, sarif
from policytool.reports.findings._page import headline, page
from policytool.reports.findings.fields import (
    REPORT,
    ROW_COLUMNS,
    finding_values,
    model_values,
    rows,
)
from policytool.reports.reporter import Reporter, json_reporter, reporters_for_people
from policytool.reports.rows import csv_reporter, parquet_reporter

if TYPE_CHECKING:
    from policytool.commands.audit import Audit

FINDING_REPORTERS: Final[tuple[Reporter[Audit], ...]] = (
    *reporters_for_people(page, "policytool audit"),
    csv_reporter(ROW_COLUMNS, rows),
    json_reporter(REPORT),
    sarif.REPORTER,
    junit.REPORTER,
    github.REPORTER,
)
"""The first is the default."""

PARQUET_REPORTER: Final = parquet_reporter(ROW_COLUMNS, rows)

__all__ = [
    "FINDING_REPORTERS",
    "PARQUET_REPORTER",
    "finding_values",
    "headline",
    "model_values",
    "page",
]
