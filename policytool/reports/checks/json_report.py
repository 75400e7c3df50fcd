"""
The versioned JSON of ``check``, with everything that was measured; its schema is
``policytool/reports/schemas/check.schema.json``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from policytool.numerics.check_results.answers import KindAnswer, OutputAnswer
from policytool.numerics.check_results.checks import CheckSide
from policytool.numerics.check_results.gradients import (
    GradientReductions,
    Gradients,
    OutputLoss,
    TrainedVariable,
    Trial,
)
from policytool.numerics.check_results.graphs import GraphRewrite
from policytool.numerics.check_results.metrics import Metrics
from policytool.numerics.check_results.regressions import Comparison, Difference
from policytool.numerics.check_results.verdicts import Judgement, JudgementSubject
from policytool.numerics.verdicts import loss_scales
from policytool.releases.policy import Dynamic, Fixed, loss_scale_values
from policytool.reports.checks import _kept_scopes as kept_scopes
from policytool.reports.checks._advice import command
from policytool.reports.checks._caveats import run_caveats
from policytool.reports.checks._verdict import origin, verdict
from policytool.reports.json_writing import FAILURES, json_text, with_version
from policytool.reports.reporter import Reporter
from policytool.support.text.codec import attributes

if TYPE_CHECKING:
    from policytool.numerics.check_results.checks import Check, CheckRun
    from policytool.numerics.check_results.layers import LayerCall
    from policytool.numerics.check_results.task_metrics import TaskMetric
    from policytool.reports.checks._base import Checks
    from policytool.reports.layout import View
    from policytool.support.text.codec import Forms

VERSION: Final = 1
"""Additive changes keep it; anything else raises it."""


def render(found: Checks, view: View) -> str:
    """
    Return the report as JSON text, with every call of every layer whatever the view shows; numbers
    that JSON lacks are strings.
    """
    values = {"check": found.check and _check(found.check), "failures": found.failures}
    return json_text(with_version(VERSION, values), _FORMS, unicode=view.unicode)


_CHECK: Final = attributes("answer", "reference", "candidate", "versions", "runs", "notes")
_SIDE: Final = attributes(
    *("path", "policy", "policies", "kept", "library", "backend", "weights", "dequantized"),
)
_CALL: Final = attributes(
    *("path", "number", "class_name", "compute_reference", "compute_candidate", "inputs", "depth"),
    *("children", "is_model"),
)
_OUTPUT: Final = attributes("shape", "dtype_reference", "dtype_candidate", "accumulated", "tf32")
_METRIC: Final = attributes("reference", "candidate", "drop", "max_drop", "passed")
_METRICS: Final = attributes(*Metrics.__dataclass_fields__)
_ORIGIN: Final = attributes(
    "path", "class_name", "seen_in", "nonfinite", "in_reference", code_of="in_code"
)
_REWRITE: Final = attributes(
    *("option", "ops", "total", "casts", "narrow_before", "by_type", "unchanged"),
    description="said",
)
_ANSWER: Final = attributes("answer", "kinds", "samples", "spoiled", "why")
_KEPT: Final = attributes("scope", "ops", whole="is_whole")
_GRADIENTS: Final = attributes(
    *("recorded", "outputs", "reference_loss", "variables", "trials", "dynamic", "workable"),
    *("random", "unconnected"),
    inference_mode="quiet",
    custom_methods="own",
)


def _check(check: Check) -> dict[str, Any]:
    return {
        **_CHECK(check),
        "command": list(command(check)) or None,
        "advice": _advice(check),
        "comparison": check.comparison,
        "runs": [_run(check, run) for run in check.runs],
    }


def _advice(check: Check) -> dict[str, Any] | None:
    if check.advice is None:
        return None
    return {
        "layers": check.advice.layers,
        "trials": check.advice.trials,
        "verified": bool(check.advice.layers),
        "unfit": check.advice.is_unfit,
        "policy": check.advice.policy,
    }


def _origin(run: CheckRun) -> dict[str, Any] | None:
    found = run.origin
    return None if found is None else {**_ORIGIN(found), "reason": origin(run, found)}


def _side(side: CheckSide) -> dict[str, Any]:
    kept = [{"path": path, "reason": reason} for path, reason in side.kept.items()]
    return {**_SIDE(side), "kept": kept}


def _run(check: Check, run: CheckRun) -> dict[str, Any]:
    answered = {one.name: one for one in run.answers}
    judged = {(one.about, one.path): one for one in run.verdict.judgements}
    return {
        "device": run.device,
        "signature": run.signature,
        "inputs": run.inputs,
        "verdict": {
            "answer": run.answer,
            "sentence": verdict(check, run),
            "caveats": list(run_caveats(check, run)),
            "first_not_finite": run.verdict.first_not_finite,
            "nonfinite_reference": run.verdict.nonfinite_reference,
        },
        "origin": _origin(run),
        "metric": metric_values(run.verdict.metric) if run.verdict.metric is not None else None,
        "outputs": [
            {
                "name": one.name,
                **_OUTPUT(one),
                "activation": one.activation,
                "changes": one.changes,
                "answer": answered.get(one.name or ""),
                "verdict": judged.get((JudgementSubject.OUTPUT, one.name or "")),
            }
            for one in run.outputs
        ],
        "calls": [
            _call(call, judged.get((JudgementSubject.LAYER, call.place))) for call in run.calls
        ],
        "aliases": run.aliases,
        "overflow_probe": run.overflow_probe,
        "rewrite": run.rewrite,
        "missing": run.missing,
        "fallbacks": run.fallbacks,
        "gradients": run.gradients,
        "timings": run.timings,
        "unmatched": run.unmatched,
    }


def _rewrite(found: GraphRewrite) -> dict[str, Any]:
    kept = [
        {**_KEPT(one), "reason": kept_scopes.reason(found, one)}
        for one in kept_scopes.computing(found)
    ]
    return {**_REWRITE(found), "kept": kept}


def metric_values(found: TaskMetric) -> dict[str, Any]:
    """Return the metric of the output for which it gets worse by most, and that of each output."""
    return {
        "name": found.name,
        "higher_is_better": found.higher_is_better,
        **_METRIC(found.worst),
        "outputs": [{"output": one.output, **_METRIC(one)} for one in found.outputs],
    }


def _call(call: LayerCall, judgement: Judgement | None) -> dict[str, Any]:
    return {
        **_CALL(call),
        "verdict": judgement,
        "outputs": [{**_OUTPUT(output), "isolated": output.isolated} for output in call.outputs],
    }


def _metrics(found: Metrics) -> dict[str, Any]:
    return {
        **_METRICS(found),
        "nan": _sides(found.nan),
        "infinite": _sides(found.infinite),
        "pair": _sides(found.pair),
    }


def _sides(found: tuple[float, float] | None) -> dict[str, float] | None:
    return found and {"reference": found[0], "candidate": found[1]}


def _gradients(found: Gradients) -> dict[str, Any]:
    """
    Return what a backward step gave under every scale that was tried, and what follows from it.
    """
    lowest, highest = found.workable or (None, None)
    return {
        **_GRADIENTS(found),
        "workable": found.workable and {"lowest": lowest, "highest": highest},
        "decision": loss_scales.decision(found),
    }


SIDE: Final[Forms] = {CheckSide: _side}
"""The form that the two models have in every report."""

_FORMS: Final[Forms] = {
    Comparison: attributes(
        *("file", "passed", "paired", "only_before", "only_now", "notes"), changes="differences"
    ),
    Difference: attributes(
        *("device", "signature", "about", "path", "before", "now", "allowed", "change"),
        regression="is_regression",
    ),
    **FAILURES,
    Dynamic: loss_scale_values,
    Fixed: loss_scale_values,
    Gradients: _gradients,
    Judgement: attributes(*("error", "tolerance", "given", "not_comparable"), outcome="ruling"),
    Metrics: _metrics,
    KindAnswer: attributes("kind", "answer", "change", "samples", "why", "needed", "channel"),
    OutputAnswer: lambda found: {**_ANSWER(found), "by_labels": found.labels is not None},
    GradientReductions: attributes(*GradientReductions.__dataclass_fields__, "relative_error"),
    **SIDE,
    GraphRewrite: _rewrite,
    OutputLoss: attributes("output", "loss", "source", "targets", "weight", reason="why"),
    TrainedVariable: attributes("layer", "name", "shape", "dtype", gradient_dtype="flow"),
    Trial: attributes("scale", "loss", "total", "variables"),
}

REPORTER: Final = Reporter(name="json", render=render)
