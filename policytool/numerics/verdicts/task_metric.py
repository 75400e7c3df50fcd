"""The options for the metric of the task, and the verdict on its values."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from policytool.numerics.check_results.metrics import OutputMetric, TaskMetric
from policytool.numerics.check_sides import UserFunction, function_named
from policytool.numerics.verdicts import safety
from policytool.releases.keras_objects import snake_case
from policytool.support.errors import UsageError, short

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MAX_DROP: Final = 0.01
"""
The default for how much worse a metric may get: one percentage point of an accuracy, or this number
of nats of a likelihood. For errors, whose size depends on the task, it is this share of the
reference's error.
"""

_LIKELIHOOD: Final = re.compile(
    r"cross_?entropy|likelihood|log_?loss|poisson|kullback|(^|_)(kld|kl_divergence|nll)($|_)"
)
"""Names of metrics that are differences of logarithms of probabilities, in nats."""

_BLOCKS: Final = 10
_T: Final = 1.8331129326536335
"""The one-sided 95 % quantile of Student's t-distribution for ten blocks."""

_ROUNDING: Final = 2.0**-20
"""The relative rounding error of a metric, because libraries compute it in float32."""


class MetricOptions(Struct, frozen=True, kw_only=True):
    """The values of ``--labels`` and ``--metric``."""

    labels: Path | None
    """The file with labels; None if the outputs of the reference replace them."""

    metric: str | UserFunction
    """The name of a metric of the library, or a user function."""

    max_drop: float | None = None
    """How much worse the metric may get; None for the default."""


def metric_and_drop(text: str | None) -> tuple[str | None, float | None]:
    """
    Return the metric of ``--metric``, and the drop after ``=``, or None for each that is missing.

    :raises UsageError: if the text after ``=`` is not a number.
    """
    name, equals, number = (text or "").rpartition("=")
    if not equals:
        return text, None
    try:
        return name, float(number)
    except ValueError as error:
        raise UsageError(
            f"--metric {short(text or '')!r} has no number after =, such as accuracy=0.002"
        ) from error


def metric_options(
    labels: Path | None, metric: str | None, max_drop: float | None, *, has_inputs: bool
) -> MetricOptions | None:
    """
    Return the options of the metric; None if the user sets neither labels nor a metric.

    :raises UsageError: if an option lacks another option that it needs, or has an invalid value.
    """
    if labels is None and metric is None:
        return None
    if labels is None:
        raise UsageError("--metric requires labels; add --labels FILE")
    if metric is None:
        raise UsageError(
            "--labels needs a metric; add --metric NAME, such as --metric accuracy, or --metric "
            "MODULE:FUNCTION"
        )
    if not has_inputs:
        raise UsageError("--labels requires --inputs, because synthetic inputs have no labels")
    check_max_drop(max_drop)
    return MetricOptions(labels=labels, metric=_metric(metric), max_drop=max_drop)


def check_max_drop(value: float | None) -> None:
    """
    Check that the allowed drop of a metric is valid.

    :raises UsageError: if it is negative, infinite or NaN.
    """
    if value is not None and not (value >= 0 and math.isfinite(value)):
        raise UsageError(f"--metric has the drop {value}, which must be a non-negative number")


def _metric(text: str) -> str | UserFunction:
    function = function_named(text)
    if function is None and not text.isidentifier():
        raise UsageError(
            f"--metric {short(text)!r} must be the name of a metric, such as accuracy, or "
            "MODULE:FUNCTION"
        )
    return text if function is None else function


def metric_from_json(
    metric_json: Mapping[str, Any] | None, max_drop: float | None
) -> TaskMetric | None:
    """Return the metric of a run with its verdict; None if none was computed."""
    if metric_json is None:
        return None
    higher = metric_json["higher_is_better"]
    is_likelihood = _LIKELIHOOD.search(snake_case(metric_json["name"])) is not None
    outputs = [
        _judge_output(output_json, max_drop, higher=higher, is_likelihood=is_likelihood)
        for output_json in metric_json["outputs"]
    ]
    return TaskMetric(
        name=metric_json["name"], higher_is_better=higher, outputs=tuple(sorted(outputs, key=_rank))
    )


def drop(before: float, after: float, *, higher: bool) -> float | None:
    """Return by how much a metric gets worse; None if one of the two values is NaN."""
    if before == after:
        return 0.0
    difference = before - after if higher else after - before
    return None if math.isnan(difference) else difference


def is_worse(before: float, after: float, allowed: float, *, higher: bool) -> bool:
    """Return whether a metric gets worse by more than is allowed, or by an unknown amount."""
    decline = drop(before, after, higher=higher)
    if decline is None or math.isinf(decline):
        return decline != -math.inf
    return decline > allowed + _ROUNDING * max(abs(before), abs(after))


def _judge_output(
    output_json: Mapping[str, Any], max_drop: float | None, *, higher: bool, is_likelihood: bool
) -> OutputMetric:
    """Return the metric of an output, and whether it drops by more than is allowed."""
    reference, candidate = output_json["reference"], output_json["candidate"]
    is_absolute = higher or is_likelihood or not math.isfinite(reference)
    default = MAX_DROP if is_absolute else MAX_DROP * abs(reference)
    allowed = default if max_drop is None else max_drop
    return OutputMetric(
        output=output_json["output"],
        reference=reference,
        candidate=candidate,
        drop=drop(reference, candidate, higher=higher),
        max_drop=allowed,
        passed=not is_worse(reference, candidate, allowed, higher=higher),
        names=tuple(output_json.get("names", ())),
        rows=output_json.get("rows", 0),
        bounds=_bounds(output_json, higher=higher),
    )


def _bounds(output_json: Mapping[str, Any], *, higher: bool) -> tuple[float, float] | None:
    """
    Return the bounds of a drop; None if there are too few blocks.

    The drop is computed again without each block of rows. The spread of these drops shows how much
    the drop varies between samples (the jackknife). A change that occurs in no row could still
    occur in three rows of as many others (the rule of three).
    """
    drops = [
        drop(block["reference"], block["candidate"], higher=higher)
        for block in output_json.get("without", ())
    ]
    known = [
        block_drop for block_drop in drops if block_drop is not None and math.isfinite(block_drop)
    ]
    total_drop = drop(output_json["reference"], output_json["candidate"], higher=higher)
    if total_drop is not None and math.isinf(total_drop):
        return total_drop, total_drop
    if len(known) < _BLOCKS or len(known) < len(drops) or total_drop is None:
        return None
    mean = sum(known) / len(known)
    squares = sum((block_drop - mean) ** 2 for block_drop in known)
    margin = _T * math.sqrt((len(known) - 1) / len(known) * squares)
    scale = 1.0 if higher else abs(output_json["reference"])
    return total_drop - margin, max(
        total_drop + margin, safety.UNSEEN * scale / output_json["rows"]
    )


def _rank(metric: OutputMetric) -> tuple[bool, float]:
    return metric.passed, metric.max_drop - metric.drop if metric.drop is not None else -math.inf
