"""
The versioned JSON of ``check``, with everything that was measured; its schema is
``policytool/reports/schemas/check.schema.json``.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from policytool.numerics.check_results.verdicts import JudgementSubject
from policytool.reports.checks._base import CheckReporter
from policytool.reports.checks._measured import gradients, metrics
from policytool.reports.checks._verdict import passes, verdict
from policytool.reports.json_writing import strict, written
from policytool.support.version import version

if TYPE_CHECKING:
    from policytool.numerics.check_results.checks import Check, CheckRun, CheckSide
    from policytool.numerics.check_results.inputs import CheckInputs
    from policytool.numerics.check_results.layers import CheckedOutput, LayerCall
    from policytool.numerics.check_results.verdicts import Judgement
    from policytool.reports.checks._base import Checks
    from policytool.reports.layout import View

VERSION: Final = 1
"""Additive changes keep it; anything else raises it."""


def render(found: Checks, view: View) -> str:
    """Return the report as JSON text, with every call of every layer whatever the view shows."""
    return written(document(found), view)


def document(found: Checks) -> dict[str, Any]:
    """Return the report as JSON values; numbers that JSON lacks are strings."""
    return {
        "version": VERSION,
        "tool": {"name": "policytool", "version": version()},
        "check": strict(_check(found.check)) if found.check is not None else None,
        "failures": [
            {"path": failure.path, "code": failure.code, "message": failure.message}
            for failure in found.failures
        ],
    }


def _check(check: Check) -> dict[str, Any]:
    return {
        "passed": check.passed,
        "reference": _side(check.reference),
        "candidate": _side(check.candidate),
        "versions": dict(check.versions),
        "runs": [_run(check, run) for run in check.runs],
        "notes": [{"code": note.code, "message": note.message} for note in check.notes],
    }


def _side(side: CheckSide) -> dict[str, Any]:
    return {
        "path": side.path,
        "policy": side.policy,
        "policies": dict(side.policies),
        "kept": [{"path": path, "reason": reason} for path, reason in side.kept.items()],
        "library": side.library,
        "weights": side.weights,
    }


def _run(check: Check, run: CheckRun) -> dict[str, Any]:
    judged = {(one.about, one.path): one for one in run.verdict.judgements}
    return {
        "device": asdict(run.device),
        "signature": run.signature,
        "inputs": _inputs(run.inputs),
        "verdict": {
            "passed": passes(run),
            "sentence": verdict(check, run),
            "first_not_finite": run.verdict.first_not_finite,
            "would_pass": run.verdict.would_pass,
        },
        "outputs": [
            {
                "name": one.name,
                **_output(one),
                "top_1": one.top_1,
                **_judged(judged.get((JudgementSubject.OUTPUT, one.name or ""))),
            }
            for one in run.outputs
        ],
        "calls": [
            _call(call, judged.get((JudgementSubject.LAYER, call.place))) for call in run.calls
        ],
        "rewrite": asdict(run.rewrite) if run.rewrite is not None else None,
        "missing": [asdict(one) for one in run.missing],
        "fallbacks": [asdict(one) for one in run.fallbacks],
        "gradients": gradients(run.gradients) if run.gradients is not None else None,
        "timings": {
            name: {**asdict(one), "spread": list(one.spread)} for name, one in run.timings.items()
        },
        "unmatched": list(run.unmatched),
    }


def _inputs(found: CheckInputs) -> dict[str, Any]:
    return {
        "kind": found.kind.value,
        "seed": found.seed,
        "batches": found.batches,
        "batch_size": found.batch_size,
        "inputs": [
            {
                "name": one.name,
                "shape": list(one.shape) if one.shape is not None else None,
                "dtype": one.dtype,
                "how": one.how,
            }
            for one in found.inputs
        ],
        "notes": list(found.notes),
    }


def _call(call: LayerCall, judgement: Judgement | None) -> dict[str, Any]:
    return {
        "path": call.path,
        "number": call.number,
        "class_name": call.class_name,
        "compute_reference": call.compute_reference,
        "compute_candidate": call.compute_candidate,
        "inputs": list(call.inputs),
        "depth": call.depth,
        "children": call.children,
        "is_model": call.is_model,
        **_judged(judgement),
        "outputs": [
            {**_output(output), "isolated": metrics(output.isolated)} for output in call.outputs
        ],
    }


def _output(output: CheckedOutput) -> dict[str, Any]:
    return {
        "shape": list(output.shape),
        "dtype_reference": output.dtype_reference,
        "dtype_candidate": output.dtype_candidate,
        "accumulated": metrics(output.accumulated),
        "tf32": metrics(output.tf32),
    }


def _judged(judgement: Judgement | None) -> dict[str, Any]:
    """Return how something was judged; nothing where it was not."""
    if judgement is None:
        return {"judgement": None}
    return {
        "judgement": {
            "ruling": judgement.ruling.value,
            "error": judgement.error,
            "tolerance": judgement.tolerance,
            "given": judgement.given,
        }
    }


REPORTER: Final = CheckReporter(name="json", render=render)
