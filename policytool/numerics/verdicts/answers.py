"""What the child process answers, as values."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from policytool.numerics.check_results import (
    devices,
    gradients,
    graphs,
    inputs,
    metrics,
)
from policytool.numerics.check_results.checks import CheckRun
from policytool.numerics.check_results.layers import CheckedOutput, LayerCall
from policytool.numerics.verdicts import judgements, safety
from policytool.numerics.verdicts.output_kinds import check_names
from policytool.numerics.verdicts.task_metric import metric_from_json
from policytool.support.text import codec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policytool.numerics.verdicts.safety import Rule
    from policytool.numerics.verdicts.tolerances import Tolerances

_ERRORS: Final = ("accumulated", "isolated", "own", "rounding", "tf32")
"""The errors of a tensor, which the child answers as sums and counts."""


def runs_from_json(
    found: Sequence[Mapping[str, Any]],
    tolerances: Tolerances,
    rule: Rule,
    max_drop: float | None = None,
) -> tuple[CheckRun, ...]:
    """
    Return what was measured on each device and of each signature, judged.

    :raises UsageError: for a tolerance that names nothing in any of them, or two that name the
        same.
    """
    if not all(one["missing"] for one in found):  # of what did not run no names are known
        tolerances.check(
            [
                name
                for one in found
                for name in (
                    *(output["name"] for output in one["outputs"]),
                    *(call["path"] for call in one["calls"]),
                )
            ]
        )
        check_names(
            rule.kinds, [output["name"] or "" for one in found for output in one["outputs"]]
        )
    return tuple(
        _with_metric(_run(one, tolerances), one.get("metric"), rule, max_drop) for one in found
    )


def _with_metric(
    run: CheckRun, found: Mapping[str, Any] | None, rule: Rule, max_drop: float | None
) -> CheckRun:
    """Return a run that is judged with the task's own metric."""
    metric = metric_from_json(found, max_drop)
    return replace(
        run,
        verdict=replace(run.verdict, metric=metric),
        answers=safety.answer_outputs(run.outputs, rule, metric),
    )


def _run(found: Mapping[str, Any], tolerances: Tolerances) -> CheckRun:
    calls = tuple(_call(call) for call in found["calls"])
    outputs = tuple(_output(output) for output in found["outputs"])
    return CheckRun(
        device=codec.read(devices.TensorFlowDevice, found["device"]),
        signature=found["signature"],
        inputs=codec.read(inputs.CheckInputs, found["inputs"]),
        calls=calls,
        outputs=outputs,
        verdict=judgements.judge_run(calls, outputs, tolerances),
        rewrite=codec.read(graphs.GraphRewrite, found["rewrite"])
        if found.get("rewrite") is not None
        else None,
        fallbacks=tuple(codec.read(devices.MissingKernel, one) for one in found["fallbacks"]),
        missing=tuple(codec.read(devices.MissingKernel, one) for one in found["missing"]),
        gradients=gradients.gradients_from_json(found["gradients"])
        if found["gradients"] is not None
        else None,
        timings={name: codec.read(devices.Timing, one) for name, one in found["timings"].items()},
        unmatched=tuple(found["unmatched"]),
        random=tuple(found.get("random", ())),
        aliases=tuple(found.get("aliases", ())),
        overflow_probe=codec.read(inputs.OverflowProbe, found["overflow_probe"])
        if found.get("overflow_probe") is not None
        else None,
    )


def _call(found: Mapping[str, Any]) -> LayerCall:
    return replace(
        codec.read(LayerCall, {**found, "outputs": ()}),
        outputs=tuple(_output(output) for output in found["outputs"]),
    )


def _output(found: Mapping[str, Any]) -> CheckedOutput:
    """Return what was measured of a tensor; the error of TF32 is that of the reference."""
    dtype = found["dtype_candidate"]
    return replace(
        codec.read(CheckedOutput, {**found, **dict.fromkeys(_ERRORS)}),
        accumulated=_metrics(found["accumulated"], dtype),
        isolated=_metrics(found["isolated"], dtype),
        own=_metrics(found.get("own"), dtype),
        rounding=_metrics(found.get("rounding"), dtype),
        tf32=_metrics(found["tf32"], found["dtype_reference"]),
    )


def _metrics(found: Mapping[str, Any] | None, dtype: str) -> metrics.Metrics | None:
    return (
        None
        if found is None
        else metrics.metrics(codec.read(metrics.TensorReductions, found), dtype)
    )
