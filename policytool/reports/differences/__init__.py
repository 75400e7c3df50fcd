"""What ``diff`` found, as text: a page for people, and JSON."""

from __future__ import annotations

from typing import Final

from policytool.reports.differences._page import Differences, headline, page
from policytool.reports.differences.fields import REPORT
from policytool.reports.reporter import Reporter, json_reporter, reporters_for_people

DIFFERENCE_REPORTERS: Final[tuple[Reporter[Differences], ...]] = (
    *reporters_for_people(page, "policytool diff"),
    json_reporter(REPORT, ascii_only=True),
)
"""The first is the default."""

__all__ = ["DIFFERENCE_REPORTERS", "Differences", "headline", "page"]
