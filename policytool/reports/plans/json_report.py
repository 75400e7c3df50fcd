"""
The versioned JSON of ``migrate``, which ``--plan`` reads again; its schema is
``policytool/reports/schemas/migrate.schema.json``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from policytool.formats.discovery import display_path
from policytool.formats.edits import Edit
from policytool.migration.plan import ConversionChange
from policytool.numerics.predictions import PredictionComparison
from policytool.numerics.tensorflow_run import Reexport
from policytool.reports.json_writing import (
    FAILURES,
    VERDICTS,
    JsonItems,
    json_pieces,
    with_version,
)
from policytool.reports.plans._verification import verification_values
from policytool.reports.reporter import streaming_reporter
from policytool.support.text.codec import attributes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.commands.migrate import Migration
    from policytool.formats.edits import Cast
    from policytool.migration.plan import Conversion, Plan
    from policytool.reports.layout import View
    from policytool.reports.plans._base import Migrations
    from policytool.support.text.codec import Forms

VERSION: Final = 1
"""Additive changes keep it; anything else raises it."""


def pieces(found: Migrations, _view: View) -> Iterator[str]:
    """Yield the report as JSON text; escapes keep it valid whatever names the files hold."""
    values = {
        "plans": JsonItems(plan_values(migration) for migration in found.migrations),
        "failures": found.failures,
    }
    return json_pieces(with_version(VERSION, values), FORMS, unicode=False)


_PLAN: Final = attributes("format", "suffix", "base_policy", "edits", written_by="generation")
_NOTES: Final = attributes("state", "kept", "notes", blockers="refusals")
_CAST: Final = attributes("tensor", "path", "before", "after", "through", "reason")
_COUNTS: Final = ("values", "overflow", "subnormal", "flushed")
_EDIT: Final = attributes("path", "before", "after", "reason")


def plan_values(migration: Migration) -> dict[str, Any]:
    """Return one plan and what became of it, as ``--plan`` reads it."""
    plan, written = migration.plan, migration.written
    return {
        "path": plan.path,
        "output": display_path(migration.target) if migration.target else None,
        "backup": display_path(written.backup) if written and written.backup else None,
        "status": migration.status,
        **_PLAN(plan),
        "casts": [_cast(cast, migration) for cast in plan.casts],
        **_NOTES(plan),
        "releases": {"before": plan.loaders_before, "after": plan.loaders_after},
        "conversion": _conversion(plan, plan.conversion) if plan.conversion is not None else None,
        "retrace": plan.retrace,
        "reexport": migration.retraced,
        "verification": migration.comparison,
        "verified": verification_values(migration),
    }


def _conversion(plan: Plan, conversion: Conversion) -> dict[str, Any]:
    return {
        "target": conversion.target,
        "container": conversion.content.container,
        "variables": len(conversion.content.placements),
        "optimizer_variables": len(conversion.content.state),
        "changes": conversion.changes,
        "proofs": [
            {"class_name": class_name, "proof": proof} for class_name, proof in conversion.proofs
        ],
        "matching_releases": plan.matching_releases,
    }


def _edit(edit: Edit) -> dict[str, Any]:
    """Return an edit; ``before`` is missing for an addition and ``after`` for a removal."""
    address = edit.address
    return {
        "kind": edit.kind,
        "part": address.part,
        "pointer": address.pointer,
        **_EDIT(edit),
    }


def _cast(cast: Cast, migration: Migration) -> dict[str, Any]:
    counts = migration.counts.get(cast.tensor)
    return {**_CAST(cast), **{name: getattr(counts, name, None) for name in _COUNTS}}


def _retrace_values(retraced: Reexport) -> dict[str, Any]:
    held, state = retraced.held, retraced.optimizer
    return {
        "versions": retraced.versions,
        "traces": retraced.traces,
        "signatures": retraced.signatures,
        "variables": held.variables,
        "identical": held.identical,
        "checked_layers": held.judged,
        "optimizer_state": state and {"restored": state["restored"], "lost": state["lost"]},
    }


FORMS: Final[Forms] = {
    **FAILURES,
    **VERDICTS,
    ConversionChange: attributes("code", "path", "text"),
    PredictionComparison: attributes(
        "tolerance", "samples", "versions", "versions_after", "missed", "calls"
    ),
    Edit: _edit,
    Reexport: _retrace_values,
}
"""The forms of the values in a plan."""

REPORTER: Final = streaming_reporter("json", pieces)
