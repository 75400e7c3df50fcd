"""
The versioned JSON of ``inspect --summary``; its schema is
``policytool/reports/schemas/summary.schema.json``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from policytool.commands.summary import (
    ModelRecord,
    PolicyCount,
    ReasonCount,
    ReleaseCount,
    Saving,
)
from policytool.reports.json_writing import FAILURES, json_text, with_version
from policytool.reports.reporter import Reporter
from policytool.support.text.codec import attributes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.commands.summary import FleetSummary
    from policytool.reports.layout import View
    from policytool.support.text.codec import Forms

VERSION: Final = 1
"""Additive changes keep it; anything else raises it."""


def render(summary: FleetSummary, view: View) -> str:
    """Return the report as JSON text."""
    values = {
        "models": summary.models,
        "layers": summary.layers,
        "parameters": summary.parameters,
        "bytes": summary.bytes,
        "formats": _counts("format", "models", summary.formats),
        "written_by": _counts("written_by", "models", summary.generations),
        "policies": summary.policies,
        "releases": summary.releases,
        "stored_dtypes": _counts("dtype", "bytes", summary.stored),
        "savings": summary.savings,
        "largest": summary.largest,
        "failures": summary.failures,
        "skipped": summary.passed_over,
    }
    return json_text(with_version(VERSION, values), _FORMS, unicode=view.unicode)


def _counts(name: str, amount: str, counts: Mapping[Any, int]) -> list[dict[str, Any]]:
    return [{name: key, amount: count} for key, count in counts.items()]


_FORMS: Final[Forms] = {
    **FAILURES,
    ModelRecord: attributes(
        *("path", "format", "layers", "parameters", "bytes"), written_by="generation"
    ),
    PolicyCount: attributes("policy", "models", "layers"),
    ReasonCount: attributes("cause", "reason", "models", verdict="loading"),
    ReleaseCount: attributes(
        *("release", "loads", "incompatible", "unknown", "not_applicable", "reasons")
    ),
    Saving: attributes("policy", "models", "bytes"),
}

REPORTER: Final = Reporter(name="json", render=render)
