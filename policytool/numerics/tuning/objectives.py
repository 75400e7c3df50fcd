"""
The objective of a tuned model, and the excess of a run: its error as a multiple of what the
objective allows. A run meets the objective if its excess is at most 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policytool.numerics.check_results.verdicts import (
    JudgementSubject,
    NotComparable,
    Ruling,
    excess,
    ratio,
)
from policytool.numerics.check_sides import function_named
from policytool.numerics.verdicts.task_metric import (
    MetricOptions,
    check_max_drop,
    metric_options,
)
from policytool.numerics.verdicts.tolerances import ToleranceOption, Tolerances
from policytool.support.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from policytool.numerics.check_results.checks import CheckRun
    from policytool.numerics.check_results.gradients import Gradients
    from policytool.numerics.check_results.metrics import TaskMetric
    from policytool.numerics.check_results.verdicts import Judgement

TOLERANCE: Final = 0.01
"""The allowed relative error of outputs, if the options set no objective."""

_AGREEMENT: Final = "agreement"
AGREEMENT_DROP: Final = 0.01
"""The share of rows whose class may change, unless ``--metric agreement=DROP`` sets it."""

GRADIENT_ERROR: Final = 0.1
"""The allowed relative error of all gradients together, at the best loss scale."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Objective:
    """The requirements for the tuned model, which must meet all of them."""

    tolerances: Tolerances | None
    """The allowed relative error of each output; None if there are only other requirements."""

    agreement: float | None = None
    """The share of rows whose largest output must be the same class."""

    metric: MetricOptions | None = None
    gradients: bool = False
    """Whether gradients must be finite, and near the gradients of the reference."""


def objective(
    tolerances: tuple[ToleranceOption, ...] = (),
    *,
    labels: Path | None = None,
    metric: str | None = None,
    max_drop: float | None = None,
    gradients: bool = False,
    has_inputs: bool = True,
) -> Objective:
    """
    Return the objective of the options; by default, outputs must stay within :data:`TOLERANCE`.

    A user-defined metric needs no labels: it uses the outputs of the reference instead.

    :raises UsageError: if an option lacks another option that it needs, or has an invalid value.
    """
    agreement = None
    if metric == _AGREEMENT:
        agreement, metric, max_drop = agreement_share(max_drop), None, None
    function = function_named(metric) if metric is not None else None
    if labels is None and function is not None:
        check_max_drop(max_drop)
        task: MetricOptions | None = MetricOptions(labels=None, metric=function, max_drop=max_drop)
    else:
        task = metric_options(labels, metric, max_drop, has_inputs=has_inputs)
    if not tolerances and agreement is None and task is None:
        tolerances = (ToleranceOption(pattern=None, value=TOLERANCE),)
    elif tolerances and all(tolerance.pattern is not None for tolerance in tolerances):
        tolerances = (*tolerances, ToleranceOption(pattern=None, value=TOLERANCE))
    return Objective(
        tolerances=Tolerances(given=tolerances) if tolerances else None,
        agreement=agreement,
        metric=task,
        gradients=gradients,
    )


def agreement_share(max_drop: float | None) -> float:
    """
    Return the share of rows whose largest output must stay the same.

    :raises UsageError: if the allowed share of changed rows is negative, or not below 1.
    """
    drop = AGREEMENT_DROP if max_drop is None else max_drop
    if not 0 <= drop < 1:
        raise UsageError(f"--metric agreement={drop:g}: the drop must be at least 0 and below 1")
    return 1 - drop


def objective_excess(run: CheckRun, objective: Objective) -> float:
    """
    Return the error of a run as a multiple of what the objective allows; infinity if the candidate,
    but not the reference, computes NaN or infinity.

    :raises UsageError: if the objective is an agreement, but no output contains class scores.
    """
    excesses = [_outputs_excess(run, only_finite=objective.tolerances is None)]
    if objective.agreement is not None:
        excesses.append(_agreement_excess(run, objective.agreement))
    if run.verdict.metric is not None:
        excesses.append(_metric_excess(run.verdict.metric))
    if objective.gradients and run.gradients is not None:
        excesses.append(_gradients_excess(run.gradients))
    return max(excesses)


def largest_error(run: CheckRun) -> float | None:
    """Return the largest relative error of an output; None if an output is not finite."""
    judgements = _output_judgements(run)
    errors = [
        judgement.error
        for judgement in judgements
        if judgement.ruling is not Ruling.NOT_FINITE and judgement.error is not None
    ]
    return max(errors, default=0.0) if len(errors) == len(judgements) else None


def _output_judgements(run: CheckRun) -> list[Judgement]:
    """Return the judgements of outputs that have comparable values."""
    return [
        judgement
        for judgement in run.verdict.judgements
        if judgement.about is JudgementSubject.OUTPUT and judgement.ruling is not Ruling.NOTHING
    ]


def not_comparable(runs: Sequence[CheckRun]) -> NotComparable | None:
    """Return why no output of any run is comparable; None if some output is."""
    reasons = [
        judgement.not_comparable
        for run in runs
        for judgement in run.verdict.judgements
        if judgement.about is JudgementSubject.OUTPUT
    ]
    return reasons[0] if reasons and all(reason is not None for reason in reasons) else None


def smallest_agreement(run: CheckRun) -> float | None:
    """Return the smallest share of rows with the same class, over all outputs with classes."""
    return min(
        (
            1 - output.changes.class_changes.mean
            for output in run.outputs
            if output.changes is not None and output.changes.class_changes is not None
        ),
        default=None,
    )


def gradient_error(gradients: Gradients) -> float | None:
    """
    Return the relative error of all gradients at the best loss scale that was tried; None if every
    scale causes an overflow.
    """
    return min(
        (total.relative_error for trial in gradients.trials if not (total := trial.total).overflow),
        default=None,
    )


def _outputs_excess(run: CheckRun, *, only_finite: bool) -> float:
    return max(
        (
            excess(judgement)
            for judgement in _output_judgements(run)
            if not only_finite or judgement.ruling is Ruling.NOT_FINITE
        ),
        default=0.0,
    )


def _agreement_excess(run: CheckRun, agreement: float) -> float:
    share = smallest_agreement(run)
    if share is None:
        raise UsageError(
            "--metric agreement needs an output with a score for each class, which this model does "
            "not have; use --tolerance or another --metric"
        )
    return ratio(1 - share, 1 - agreement)


def _metric_excess(metric: TaskMetric) -> float:
    return max(
        (0.0 if output.passed else math.inf)
        if output.drop is None
        else max(
            ratio(output.drop, output.max_drop), 0.0 if output.passed else math.nextafter(1, 2)
        )
        for output in metric.outputs
    )


def _gradients_excess(gradients: Gradients) -> float:
    if not gradients.trials:
        return 0.0
    error = gradient_error(gradients)
    return math.inf if error is None else ratio(error, GRADIENT_ERROR)
