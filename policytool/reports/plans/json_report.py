"""
The versioned JSON of ``migrate``, which ``--plan`` reads again; its schema is
``policytool/reports/schemas/migrate.schema.json``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from policytool.formats.discovery import shown
from policytool.reports.json_writing import strict
from policytool.reports.plans._base import PlanReporter
from policytool.support.text.jsontext import ABSENT
from policytool.support.version import version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policytool.commands.migrate import Migration
    from policytool.formats.edits import Cast, Edit, Slot
    from policytool.migration.plan import Conversion
    from policytool.model.model import Verdict
    from policytool.numerics.predictions import PredictedOutput, PredictionComparison
    from policytool.numerics.tensorflow_run import Reexport
    from policytool.reports.layout import View
    from policytool.reports.plans._base import Migrations

VERSION: Final = 1
"""Additive changes keep it; anything else raises it."""


def render(found: Migrations, _view: View) -> str:
    """Return the report as JSON text; escapes keep it valid whatever names the files hold."""
    return json.dumps(strict(document(found)), indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def document(found: Migrations) -> dict[str, Any]:
    """Return the report as JSON values."""
    return {
        "version": VERSION,
        "tool": {"name": "policytool", "version": version()},
        "plans": [_plan(migration) for migration in found.migrations],
        "failures": [
            {"path": failure.path, "code": failure.code, "message": failure.message}
            for failure in found.failures
        ],
    }


def _plan(migration: Migration) -> dict[str, Any]:
    plan, written = migration.plan, migration.written
    return {
        "path": plan.path,
        "output": shown(migration.target) if migration.target else None,
        "backup": shown(written.backup) if written and written.backup else None,
        "status": migration.status.value,
        "format": plan.format,
        "generation": plan.generation,
        "suffix": plan.suffix,
        "base_policy": plan.base_policy,
        "edits": [_edit(edit) for edit in plan.edits],
        "casts": [_cast(cast, migration) for cast in plan.casts],
        "state": None if plan.state is None else [_slot(slot) for slot in plan.state],
        "kept": [
            {"path": kept.path, "policy": kept.policy, "reason": kept.reason} for kept in plan.kept
        ],
        "notes": [
            {
                "severity": note.severity.value,
                "code": note.code,
                "message": note.message,
                "path": note.path,
            }
            for note in plan.notes
        ],
        "refusals": [
            {"code": refusal.code, "message": refusal.message, "path": refusal.path}
            for refusal in plan.refusals
        ],
        "loaders": {
            "before": _verdicts(plan.loaders_before),
            "after": _verdicts(plan.loaders_after),
        },
        "conversion": None if plan.conversion is None else _conversion(plan.conversion),
        "retrace": plan.retrace,
        "retraced": None if migration.retraced is None else _retraced(migration.retraced),
        "verification": None
        if migration.comparison is None
        else _verification(migration.comparison),
    }


def _conversion(conversion: Conversion) -> dict[str, Any]:
    return {
        "target": conversion.target,
        "container": conversion.content.container,
        "variables": len(conversion.content.placements),
        "optimizer_variables": len(conversion.content.state),
        "changes": [
            {"code": change.code, "path": change.path, "text": change.text}
            for change in conversion.changes
        ],
        "proofs": [
            {"class_name": class_name, "proof": proof.value}
            for class_name, proof in conversion.proofs
        ],
    }


def _edit(edit: Edit) -> dict[str, Any]:
    """Return an edit; ``before`` is missing for an addition and ``after`` for a removal."""
    found: dict[str, Any] = {
        "kind": edit.kind.value,
        "part": edit.address.part,
        "pointer": edit.address.pointer,
        "path": edit.path,
    }
    if edit.before is not ABSENT:
        found["before"] = edit.before
    if edit.after is not ABSENT:
        found["after"] = edit.after
    return {**found, "reason": edit.reason}


def _cast(cast: Cast, migration: Migration) -> dict[str, Any]:
    counts = migration.counts.get(cast.tensor)
    return {
        "tensor": list(cast.tensor),
        "path": cast.path,
        "before": cast.before,
        "after": cast.after,
        "through": cast.through,
        "reason": cast.reason,
        "values": counts.values if counts else None,
        "overflow": counts.overflow if counts else None,
        "subnormal": counts.subnormal if counts else None,
        "flushed": counts.flushed if counts else None,
    }


def _retraced(retraced: Reexport) -> dict[str, Any]:
    held = retraced.held
    return {
        "versions": dict(retraced.versions),
        "traces": retraced.traces,
        "signatures": list(retraced.signatures),
        "variables": held.variables,
        "identical": held.identical,
        "judged_layers": held.judged,
        "optimizer_state": None
        if retraced.optimizer is None
        else {"restored": retraced.optimizer["restored"], "lost": retraced.optimizer["lost"]},
    }


def _verification(comparison: PredictionComparison) -> dict[str, Any]:
    return {
        "tolerance": comparison.tolerance,
        "samples": comparison.samples,
        "versions": dict(comparison.versions),
        "versions_after": None
        if comparison.versions_after is None
        else dict(comparison.versions_after),
        "missed": list(comparison.missed),
        "calls": [
            {"signature": call.signature, "outputs": [_output(output) for output in call.outputs]}
            for call in comparison.calls
        ],
    }


def _output(output: PredictedOutput) -> dict[str, Any]:
    return {
        "name": output.name,
        "dtype_before": output.dtype_before,
        "dtype_after": output.dtype_after,
        "values": output.values,
        "equal": output.equal,
        "max_abs": output.max_abs,
        "relative": output.relative,
        "differing": output.differing,
        "not_finite": list(output.not_finite),
    }


def _slot(slot: Slot) -> dict[str, Any]:
    return {
        "tensor": list(slot.tensor),
        "source": list(slot.source) if slot.source else None,
        "dtype": slot.dtype,
        "value": slot.value,
    }


def _verdicts(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    return [
        {"loader": verdict.loader, "reason": verdict.reason, "not_judged": verdict.not_judged}
        for verdict in verdicts
    ]


REPORTER: Final = PlanReporter(name="json", render=render)
