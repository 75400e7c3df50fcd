"""
Renders the results of every command: for terminals, as Markdown, HTML, JSON, CSV and Parquet,
and for CI.

Each command fills a page (:mod:`policytool.reports.page`), which
:mod:`~policytool.reports.terminal` and :mod:`~policytool.reports.markdown` render. JSON, rows (CSV
and Parquet), SARIF, JUnit, annotations and diffs are made from the values themselves. To add a
command's report, write its page; to add an output, write its renderer.
"""

from __future__ import annotations

from policytool.reports.layout import View
from policytool.reports.reporter import Reporter

__all__ = ["Reporter", "View"]
