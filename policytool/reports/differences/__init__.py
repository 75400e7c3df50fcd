"""
Every way in which a comparison of two models is shown, one module each.

To add a report, write its module and add one line to :data:`DIFFERENCE_REPORTERS`.
"""

from __future__ import annotations

from typing import Final

from policytool.reports.differences import json_report, markdown, table
from policytool.reports.differences._base import DifferenceReporter, Differences

DIFFERENCE_REPORTERS: Final[tuple[DifferenceReporter, ...]] = (
    table.REPORTER,  # first: the default
    markdown.REPORTER,
    json_report.REPORTER,
)

__all__ = ["DIFFERENCE_REPORTERS", "DifferenceReporter", "Differences"]
