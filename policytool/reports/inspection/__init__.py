"""The results of ``inspect`` as reports: a page for people, JSON, CSV and Parquet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.reports.inspection._page import headline, page
from policytool.reports.inspection.fields import (
    REPORT,
    ROW_COLUMNS,
    every_row,
    model_values,
    rows,
)
from policytool.reports.reporter import Reporter, json_reporter, reporters_for_people
from policytool.reports.rows import csv_reporter, parquet_reporter

if TYPE_CHECKING:
    from policytool.commands.inspect import Selected

REPORTERS: Final[tuple[Reporter[Selected], ...]] = (
    *reporters_for_people(page, "policytool inspect"),
    csv_reporter(ROW_COLUMNS, every_row),
    json_reporter(REPORT),
)
"""The first is the default."""

PARQUET_REPORTER: Final = parquet_reporter(ROW_COLUMNS, every_row)

__all__ = [
    "PARQUET_REPORTER",
    "REPORTERS",
    "ROW_COLUMNS",
    "headline",
    "model_values",
    "page",
    "rows",
]
