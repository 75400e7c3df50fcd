"""What ``migrate`` planned and did, as text: a page for people, JSON, and the config as a diff."""

from __future__ import annotations

from typing import Final

from policytool.reports.plans import diff
from policytool.reports.plans._changes import LayerChange, layer_changes
from policytool.reports.plans._page import headline, page
from policytool.reports.plans.fields import REPORT, Migrations, plan_values
from policytool.reports.reporter import Reporter, json_reporter, reporters_for_people

PLAN_REPORTERS: Final[tuple[Reporter[Migrations], ...]] = (
    *reporters_for_people(page, "policytool migrate"),
    json_reporter(REPORT, ascii_only=True),
    diff.REPORTER,
)
"""The first is the default."""

__all__ = [
    "PLAN_REPORTERS",
    "LayerChange",
    "Migrations",
    "headline",
    "layer_changes",
    "page",
    "plan_values",
]
