"""
Every way in which a check is shown, one module each.

To add a report, write its module and add one line to :data:`CHECK_REPORTERS`.
"""

from __future__ import annotations

from typing import Final

from policytool.reports.checks import json_report, markdown, table
from policytool.reports.checks._base import CheckReporter, Checks
from policytool.reports.checks._facts import device as described

CHECK_REPORTERS: Final[tuple[CheckReporter, ...]] = (
    table.REPORTER,  # first: the default
    markdown.REPORTER,
    json_report.REPORTER,
)

__all__ = ["CHECK_REPORTERS", "CheckReporter", "Checks", "described"]
