"""
The versioned JSON of ``tune``, with every trial, and with the plan that ``migrate --plan`` applies;
its schema is ``policytool/reports/schemas/tune.schema.json``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from policytool.formats.discovery import display_path
from policytool.numerics.tuning.results import Trial, TunedLayer
from policytool.reports.checks import json_report as check_report
from policytool.reports.json_writing import json_text, with_version
from policytool.reports.plans import json_report as plan_report
from policytool.reports.reporter import Reporter
from policytool.reports.tuning._command import command
from policytool.reports.tuning._page import caveats
from policytool.reports.tuning._verdict import headline
from policytool.support.text.codec import attributes

if TYPE_CHECKING:
    from policytool.numerics.tuning.objectives import Objective
    from policytool.numerics.tuning.results import Tuning
    from policytool.reports.layout import View
    from policytool.reports.tuning._base import Tunings
    from policytool.support.text.codec import Forms

VERSION: Final = 1
"""Additive changes keep it; anything else raises it."""


def render(found: Tunings, view: View) -> str:
    """Return the report as JSON text; numbers that JSON lacks are strings."""
    values = {
        "tuning": found.tuning and _tuning(found, found.tuning),
        "plans": [plan_report.plan_values(found.migration)] if found.migration is not None else [],
        "failures": found.failures,
    }
    return json_text(with_version(VERSION, values), _FORMS, unicode=view.unicode)


_TUNING: Final = attributes(
    *("passed", "policy", "reference", "device", "inputs", "versions", "split", "layers", "trials"),
    *("resumed", "best", "closest", "ending", "preference", "seconds", "seed", "curve"),
    "notes",
    minimum="is_minimum",
)
_LAYER: Final = attributes(
    *("path", "class_name", "kept", "rule", "error", "largest", "headroom", "flushed", "cost"),
    *("excess_if_converted", "excess_by_itself", "decides"),
    finite="is_finite",
)


def _tuning(found: Tunings, tuning: Tuning) -> dict[str, Any]:
    return {
        **_TUNING(tuning),
        "sentence": headline(tuning),
        "caveats": list(caveats(tuning)),
        "objective": _objective(tuning.objective),
        "kept": [layer.path for layer in tuning.kept],
        "fixed": [{"path": path, "reason": reason} for path, reason in tuning.fixed.items()],
        "metric": tuning.metric and check_report.metric_values(tuning.metric),
        "command": list(command(found)) or None,
    }


def _objective(objective: Objective) -> dict[str, Any]:
    wanted = objective.metric
    return {
        "tolerances": objective.tolerances and objective.tolerances.given,
        "agreement": objective.agreement,
        "metric": wanted
        and {
            "name": str(wanted.metric),
            "labels": display_path(wanted.labels) if wanted.labels is not None else None,
            "max_drop": wanted.max_drop,
        },
        "gradients": objective.gradients,
    }


_FORMS: Final[Forms] = {
    **plan_report.FORMS,
    **check_report.SIDE,
    Trial: attributes(*Trial.__dataclass_fields__),
    TunedLayer: _LAYER,
}

REPORTER: Final = Reporter(name="json", render=render)
