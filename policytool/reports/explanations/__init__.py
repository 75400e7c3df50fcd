"""What ``explain`` found, as text: a page for people, and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.reports.explanations._page import PAGE, headline, page
from policytool.reports.explanations.fields import REPORT
from policytool.reports.reporter import Reporter, json_reporter, reporters_for_people

if TYPE_CHECKING:
    from policytool.troubleshooting.matching import Explanation

EXPLANATION_REPORTERS: Final[tuple[Reporter[Explanation], ...]] = (
    *reporters_for_people(page, "policytool explain"),
    json_reporter(REPORT, ascii_only=True),
)
"""The first is the default."""

__all__ = ["EXPLANATION_REPORTERS", "PAGE", "headline", "page"]
