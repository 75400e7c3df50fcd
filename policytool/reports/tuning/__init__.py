"""The reports of ``tune``: a page for people, and JSON, which ``migrate --plan`` applies."""

from __future__ import annotations

from typing import Final

from policytool.reports.reporter import Reporter, json_reporter, reporters_for_people
from policytool.reports.tuning._page import page
from policytool.reports.tuning._verdict import Tunings, headline
from policytool.reports.tuning.fields import REPORT

TUNE_REPORTERS: Final[tuple[Reporter[Tunings], ...]] = (
    *reporters_for_people(page, "policytool tune"),
    json_reporter(REPORT),
)
"""The reporters; the first is the default."""

__all__ = ["TUNE_REPORTERS", "Tunings", "headline", "page"]
