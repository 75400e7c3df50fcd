"""What the child process answers, as values."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from policytool.numerics.check_results import checks, gradients, metrics
from policytool.numerics.check_results.checks import CheckRun
from policytool.numerics.check_results.metrics import CheckedOutput, LayerCall
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
    records: Sequence[Mapping[str, Any]],
    tolerances: Tolerances,
    rule: Rule,
    max_drop: float | None = None,
) -> tuple[CheckRun, ...]:
    """
    Return the judged measurements of each device and signature.

    :raises UsageError: if a tolerance matches nothing in any run, or two tolerances match the same
        name.
    """
    if not all(record["missing"] for record in records):  # runs that could not start have no names
        tolerances.check(
            [
                name
                for record in records
                for name in (
                    *(output["name"] for output in record["outputs"]),
                    *(call["path"] for call in record["calls"]),
                )
            ]
        )
        check_names(
            rule.kinds, [output["name"] or "" for record in records for output in record["outputs"]]
        )
    return tuple(
        _with_metric(_run(record, tolerances), record.get("metric"), rule, max_drop)
        for record in records
    )


def _with_metric(
    run: CheckRun, record: Mapping[str, Any] | None, rule: Rule, max_drop: float | None
) -> CheckRun:
    """Return the run, judged with the metric of the task."""
    metric = metric_from_json(record, max_drop)
    return replace(
        run,
        verdict=replace(run.verdict, metric=metric),
        answers=safety.answer_outputs(run.outputs, rule, metric),
    )


def _run(record: Mapping[str, Any], tolerances: Tolerances) -> CheckRun:
    calls = tuple(_call(call) for call in record["calls"])
    outputs = tuple(_output(output) for output in record["outputs"])
    return CheckRun(
        device=codec.read(checks.TensorFlowDevice, record["device"]),
        signature=record["signature"],
        inputs=codec.read(checks.CheckInputs, record["inputs"]),
        calls=calls,
        outputs=outputs,
        verdict=judgements.judge_run(calls, outputs, tolerances),
        rewrite=codec.read(checks.GraphRewrite, record["rewrite"])
        if record.get("rewrite") is not None
        else None,
        fallbacks=tuple(codec.read(checks.MissingKernel, kernel) for kernel in record["fallbacks"]),
        missing=tuple(codec.read(checks.MissingKernel, kernel) for kernel in record["missing"]),
        gradients=gradients.gradients_from_json(record["gradients"])
        if record["gradients"] is not None
        else None,
        timings={
            name: codec.read(checks.Timing, timing) for name, timing in record["timings"].items()
        },
        unmatched=tuple(record["unmatched"]),
        random=tuple(record.get("random", ())),
        aliases=tuple(record.get("aliases", ())),
        overflow_probe=codec.read(checks.OverflowProbe, record["overflow_probe"])
        if record.get("overflow_probe") is not None
        else None,
    )


def _call(record: Mapping[str, Any]) -> LayerCall:
    return replace(
        codec.read(LayerCall, {**record, "outputs": ()}),
        outputs=tuple(_output(output) for output in record["outputs"]),
    )


def _output(record: Mapping[str, Any]) -> CheckedOutput:
    """Return the measurements of a tensor; the TF32 error is measured on the reference."""
    dtype = record["dtype_candidate"]
    return replace(
        codec.read(CheckedOutput, {**record, **dict.fromkeys(_ERRORS)}),
        accumulated=_metrics(record["accumulated"], dtype),
        isolated=_metrics(record["isolated"], dtype),
        own=_metrics(record.get("own"), dtype),
        rounding=_metrics(record.get("rounding"), dtype),
        tf32=_metrics(record["tf32"], record["dtype_reference"]),
    )


def _metrics(record: Mapping[str, Any] | None, dtype: str) -> metrics.Metrics | None:
    return (
        None
        if record is None
        else metrics.metrics(codec.read(metrics.TensorReductions, record), dtype)
    )
