"""The versioned JSON of ``diff``; its schema is ``policytool/reports/schemas/diff.schema.json``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from policytool.comparison.result import (
    ComparisonVerdict,
    Presence,
    Side,
    ValueChange,
    VariablePair,
)
from policytool.reports.json_writing import FAILURES, json_text, with_version
from policytool.reports.reporter import Reporter
from policytool.support.text.codec import attributes

if TYPE_CHECKING:
    from policytool.comparison.result import Comparison, LayerPair, Section
    from policytool.reports.differences._base import Differences
    from policytool.reports.layout import View
    from policytool.support.text.codec import Forms

VERSION: Final = 1
"""Additive changes keep it; anything else raises it."""


def render(found: Differences, _view: View) -> str:
    """Return the report as JSON text; escapes keep it valid whatever names the files hold."""
    comparison = found.outcome.comparison
    values = {
        "comparison": comparison and _comparison(comparison, everything=found.everything),
        "failures": found.outcome.failures,
    }
    return json_text(with_version(VERSION, values), _FORMS, unicode=False)


_LAYER: Final = attributes("a", "b", "class_name", "presence", "paired", "listed", "differs")
_SECTION: Final = attributes("name", "presence", "differs")


def _comparison(comparison: Comparison, *, everything: bool) -> dict[str, Any]:
    optimizer = comparison.optimizer
    return {
        "a": comparison.a,
        "b": comparison.b,
        "differs": comparison.differs,
        "summary": _summary(comparison),
        "layers": [
            {**_LAYER(layer), **_contents(layer, everything=everything)}
            for layer in comparison.layers
            if layer.differs or everything
        ],
        "optimizer": _section(optimizer, everything=everything)
        if optimizer and (optimizer.differs or everything)
        else None,
        "signatures": [
            _section(section, everything=everything)
            for section in comparison.signatures
            if section.differs or everything
        ],
        "notes": comparison.notes,
    }


def _summary(comparison: Comparison) -> dict[str, Any]:
    variables = comparison.variables
    both = [variable for variable in variables if variable.presence is Presence.BOTH]
    one = [variable for variable in variables if variable.presence is not Presence.BOTH]
    verdicts = Counter(variable.values.verdict for variable in both)
    sides = Counter(variable.presence for variable in one if variable.differs)
    return {
        "layers": len(comparison.layers),
        "differing": sum(layer.differs for layer in comparison.layers),
        "format_only": comparison.spellings,
        "variables": {
            "total": len(variables),
            **{verdict.value.replace("-", "_"): verdicts[verdict] for verdict in ComparisonVerdict},
            **{f"only_{side.value}": sides[side] for side in (Presence.A, Presence.B)},
            "unsupported": sum(not variable.differs for variable in one),
        },
    }


def _section(section: Section, *, everything: bool) -> dict[str, Any]:
    return {**_SECTION(section), **_contents(section, everything=everything)}


def _contents(found: LayerPair | Section, *, everything: bool) -> dict[str, Any]:
    """Return the changes and variables to report; a change lacks a side that says nothing."""
    return {
        "changes": [one for one in found.changes if everything or not one.spelling],
        "variables": [one for one in found.variables if everything or one.differs],
    }


_FORMS: Final[Forms] = {
    **FAILURES,
    ValueChange: attributes("aspect", "key", "a", "b", format_only="spelling"),
    Side: attributes("path", "format", "writer", written_by="generation"),
    VariablePair: attributes("a", "b", "presence", "paired", "differs", "values"),
}

REPORTER: Final = Reporter(name="json", render=render)
