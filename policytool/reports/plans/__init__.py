"""
Every way in which migrations are shown, one module each.

To add a report, write its module and add one line to :data:`PLAN_REPORTERS`.
"""

from __future__ import annotations

from typing import Final

from policytool.reports.plans import diff, json_report, markdown, table
from policytool.reports.plans._base import Migrations, PlanReporter

PLAN_REPORTERS: Final[tuple[PlanReporter, ...]] = (
    table.REPORTER,  # first: the default
    markdown.REPORTER,
    json_report.REPORTER,
    diff.REPORTER,
)

__all__ = ["PLAN_REPORTERS", "Migrations", "PlanReporter"]
