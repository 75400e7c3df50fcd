"""
The reports of ``tune``: a page for people, JSON, which ``migrate --plan`` applies, and Python for
training code.
"""

from __future__ import annotations

from typing import Final

from policytool.reports.reporter import Reporter, json_reporter, reporters_for_people
from policytool.reports.tuning import training_code
from policytool.reports.tuning._page import page
from policytool.reports.tuning._verdict import Tunings, headline
from policytool.reports.tuning.fields import REPORT

TUNE_REPORTERS: Final[tuple[Reporter[Tunings], ...]] = (
    *reporters_for_people(page, "policytool tune"),
    json_reporter(REPORT),
    training_code.REPORTER,
)
"""The reporters; the first is the default."""

__all__ = ["TUNE_REPORTERS", "Tunings", "headline", "page", "training_code"]
