"""Reports of ``check``: a page for people, and JSON."""

from __future__ import annotations

from typing import Final

from policytool.reports.checks._layers import has_narrow_range, overflow_reasons
from policytool.reports.checks._page import (
    device_caveats,
    device_words,
    input_caveats,
    input_words,
    page,
    side_caveats,
    side_words,
)
from policytool.reports.checks._tables import metric_sentence, metric_value
from policytool.reports.checks._verdict import (
    Checks,
    bound_words,
    headline,
    migrate_command,
    rounded_rows,
)
from policytool.reports.checks.fields import REPORT
from policytool.reports.reporter import Reporter, json_reporter, reporters_for_people

CHECK_REPORTERS: Final[tuple[Reporter[Checks], ...]] = (
    *reporters_for_people(page, "policytool check"),
    json_reporter(REPORT),
)
"""The first is the default."""

__all__ = [
    "CHECK_REPORTERS",
    "Checks",
    "bound_words",
    "device_caveats",
    "device_words",
    "has_narrow_range",
    "headline",
    "input_caveats",
    "input_words",
    "metric_sentence",
    "metric_value",
    "migrate_command",
    "overflow_reasons",
    "page",
    "rounded_rows",
    "side_caveats",
    "side_words",
]
