"""What ``inspect`` found, as text: a page for people, JSON and CSV."""

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

__all__ = ["REPORTERS", "headline", "page"]
