"""
The versioned JSON of ``explain``; its schema is ``policytool/reports/schemas/explain.schema.json``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from policytool.reports.explanations._page import PAGE, link
from policytool.reports.reporter import Reporter
from policytool.support import project

if TYPE_CHECKING:
    from policytool.reports.layout import View
    from policytool.troubleshooting.entry import Step
    from policytool.troubleshooting.matching import Explanation, Match

VERSION: Final = 1
"""Additive changes keep it; anything else raises it."""


def render(found: Explanation, _view: View) -> str:
    """Return the report as JSON text; escapes keep it valid whatever the message contains."""
    from policytool.reports.json_writing import json_text, with_version  # and the models with it

    values = {"matches": [_match(match) for match in found.matches], "page": project.page(PAGE)}
    return json_text(with_version(VERSION, values), unicode=False)


def _match(match: Match) -> dict[str, Any]:
    entry = match.entry
    return {
        "id": entry.id,
        "title": entry.title,
        "confidence": match.confidence,
        "line": match.line,
        "text": match.text,
        "releases": entry.releases,
        "cause": entry.cause,
        "check": _step(entry.check),
        "fix": [_step(step) for step in entry.fix],
        "url": link(match),
    }


def _step(step: Step) -> dict[str, Any]:
    return {"text": step.text, "command": step.command or None}


REPORTER: Final = Reporter(name="json", render=render)
