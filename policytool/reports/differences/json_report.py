"""The versioned JSON of ``diff``; its schema is ``policytool/reports/schemas/diff.schema.json``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from policytool.comparison.result import Presence, Verdict
from policytool.reports.differences._base import DifferenceReporter
from policytool.reports.json_writing import strict
from policytool.support.text.jsontext import ABSENT
from policytool.support.version import version

if TYPE_CHECKING:
    from collections.abc import Iterable

    from policytool.comparison.result import (
        Change,
        Comparison,
        LayerPair,
        Section,
        Side,
        Values,
        VariablePair,
    )
    from policytool.model.model import Variable
    from policytool.reports.differences._base import Differences
    from policytool.reports.layout import View

VERSION: Final = 1
"""Additive changes keep it; anything else raises it."""


def render(found: Differences, _view: View) -> str:
    """Return the report as JSON text; escapes keep it valid whatever names the files hold."""
    return json.dumps(document(found), indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def document(found: Differences) -> dict[str, Any]:
    """Return the report as JSON values."""
    comparison = found.outcome.comparison
    return {
        "version": VERSION,
        "tool": {"name": "policytool", "version": version()},
        "comparison": _comparison(comparison, everything=found.everything)
        if comparison is not None
        else None,
        "failures": [
            {"path": failure.path, "code": failure.code, "message": failure.message}
            for failure in found.outcome.failures
        ],
    }


def _comparison(comparison: Comparison, *, everything: bool) -> dict[str, Any]:
    return {
        "a": _side(comparison.a),
        "b": _side(comparison.b),
        "differs": comparison.differs,
        "summary": _summary(comparison),
        "layers": [
            _layer(layer, everything=everything)
            for layer in comparison.layers
            if layer.differs or everything
        ],
        "optimizer": _section(comparison.optimizer, everything=everything)
        if comparison.optimizer and (comparison.optimizer.differs or everything)
        else None,
        "signatures": [
            _section(section, everything=everything)
            for section in comparison.signatures
            if section.differs or everything
        ],
        "notes": [{"code": note.code, "message": note.message} for note in comparison.notes],
    }


def _side(side: Side) -> dict[str, Any]:
    writer = {
        "keras": side.writer.keras,
        "tensorflow": side.writer.tensorflow,
        "backend": side.writer.backend,
    }
    return {
        "path": side.path,
        "format": side.format,
        "generation": side.generation,
        "writer": writer,
    }


def _summary(comparison: Comparison) -> dict[str, Any]:
    variables = comparison.variables
    both = [variable for variable in variables if variable.presence is Presence.BOTH]
    one = [variable for variable in variables if variable.presence is not Presence.BOTH]
    counts = {
        verdict.value.replace("-", "_"): sum(
            variable.values.verdict is verdict for variable in both
        )
        for verdict in Verdict
    }
    return {
        "layers": len(comparison.layers),
        "differing": sum(layer.differs for layer in comparison.layers),
        "spellings": comparison.spellings,
        "variables": {
            "total": len(variables),
            **counts,
            **{
                f"only_{side.value}": sum(
                    variable.presence is side and variable.differs for variable in one
                )
                for side in (Presence.A, Presence.B)
            },
            "not_held": sum(not variable.differs for variable in one),
        },
    }


def _layer(layer: LayerPair, *, everything: bool) -> dict[str, Any]:
    return {
        "a": layer.a,
        "b": layer.b,
        "class_name": layer.class_name,
        "presence": layer.presence.value,
        "paired": layer.paired.value if layer.paired else None,
        "listed": layer.listed,
        "differs": layer.differs,
        "changes": _changes(layer.changes, everything=everything),
        "variables": _variables(layer.variables, everything=everything),
    }


def _section(section: Section, *, everything: bool) -> dict[str, Any]:
    return {
        "name": section.name,
        "presence": section.presence.value,
        "differs": section.differs,
        "changes": _changes(section.changes, everything=everything),
        "variables": _variables(section.variables, everything=everything),
    }


def _changes(changes: Iterable[Change], *, everything: bool) -> list[dict[str, Any]]:
    return [_change(change) for change in changes if everything or not change.spelling]


def _change(change: Change) -> dict[str, Any]:
    """Return a change; ``a`` is missing where A says nothing, and ``b`` where B does."""
    found: dict[str, Any] = {"aspect": change.aspect.value, "key": change.key}
    if change.a is not ABSENT:
        found["a"] = strict(change.a)
    if change.b is not ABSENT:
        found["b"] = strict(change.b)
    return {**found, "spelling": change.spelling}


def _variables(variables: Iterable[VariablePair], *, everything: bool) -> list[dict[str, Any]]:
    return [
        {
            "a": _variable(variable.a),
            "b": _variable(variable.b),
            "presence": variable.presence.value,
            "paired": variable.paired,
            "differs": variable.differs,
            "values": _values(variable.values),
        }
        for variable in variables
        if variable.differs or everything
    ]


def _variable(variable: Variable | None) -> dict[str, Any] | None:
    if variable is None:
        return None
    return {
        "name": variable.name,
        "shape": None if variable.shape is None else list(variable.shape),
        "dtype": variable.dtype,
    }


def _values(values: Values) -> dict[str, Any]:
    return {
        "verdict": values.verdict.value,
        "rounded": values.rounded.value if values.rounded else None,
        "elements": values.elements,
        "differing": values.differing,
        "largest": None if values.largest is None else strict(values.largest),
        "reason": values.reason,
    }


REPORTER: Final = DifferenceReporter(name="json", render=render)
