"""From what was measured to the verdict."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from policytool.numerics.check_results.verdicts import (
    CheckVerdict,
    Judgement,
    JudgementSubject,
    NotComparable,
    Ruling,
)
from policytool.numerics.verdicts import tolerances

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from policytool.numerics.check_results.metrics import CheckedOutput, LayerCall, Metrics
    from policytool.numerics.verdicts.tolerances import Tolerances


def judge_run(
    calls: Sequence[LayerCall],
    outputs: Sequence[CheckedOutput],
    given_tolerances: Tolerances,
) -> CheckVerdict:
    """
    Return the verdict on a run: outputs are judged by their accumulated error, layer calls by their
    isolated error.

    :raises UsageError: if two tolerances match the same name.
    """
    first = next(
        (call for call in calls if any(_spoils(output.accumulated) for output in call.outputs)),
        None,
    )
    return CheckVerdict(
        judgements=(
            *_outputs(calls, outputs, given_tolerances),
            *_layers(calls, first, given_tolerances),
        ),
        first_not_finite=first.place if first is not None else None,
        nonfinite_reference=_nonfinite_reference(calls),
    )


def _outputs(
    calls: Sequence[LayerCall], outputs: Sequence[CheckedOutput], given_tolerances: Tolerances
) -> Iterator[Judgement]:
    default = tolerances.outputs_tolerance(calls)
    for output in outputs:
        if output.accumulated is not None:
            name = output.name or ""
            judged = _judgement(
                JudgementSubject.OUTPUT,
                name,
                [output.accumulated],
                given_tolerances.of(name),
                default,
            )
            yield _compared(judged, output)


def _compared(judged: Judgement, output: CheckedOutput) -> Judgement:
    """Return the judgement of an output, with why nothing can be seen in it if so."""
    why = _not_comparable(output)
    if why is NotComparable.NOT_FINITE:
        return replace(judged, ruling=Ruling.NOTHING, not_comparable=why)
    return replace(judged, not_comparable=why)


def _not_comparable(output: CheckedOutput) -> NotComparable | None:
    """Return why an output shows nothing of the candidate; None where it does."""
    if output.accumulated is not None and _has_no_finite_values(output.accumulated):
        return NotComparable.NOT_FINITE
    ends = output.changes.range if output.changes is not None else None
    if ends is None or ends[0] != ends[1]:
        return None
    return NotComparable.CONSTANT if ends[0] else NotComparable.ZERO


def _nonfinite_reference(calls: Sequence[LayerCall]) -> str | None:
    """Return the first call in which the reference computes NaN, or else infinity."""
    for kind in ("nan", "infinite"):
        for call in calls:
            counts = [getattr(output.accumulated, kind, None) for output in call.outputs]
            if any(pair is not None and pair[0] for pair in counts):
                return call.place
    return None


def _layers(
    calls: Sequence[LayerCall], first: LayerCall | None, given_tolerances: Tolerances
) -> Iterator[Judgement]:
    for call in calls:
        alone = [output.isolated for output in call.outputs if output.isolated is not None]
        if not alone and call is first:
            alone = [
                output.accumulated for output in call.outputs if output.accumulated is not None
            ]
        if alone:
            judged = _judgement(
                JudgementSubject.LAYER,
                call.place,
                alone,
                given_tolerances.of(call.path),
                tolerances.layer_tolerance(call),
            )
            differs = not (judged.given or call.inputs) and any(
                metrics.differing for metrics in alone
            )
            yield replace(judged, ruling=Ruling.DIFFERING) if differs else judged


def _judgement(
    about: JudgementSubject,
    path: str,
    all_metrics: Sequence[Metrics],
    given_tolerance: float | None,
    default: float,
) -> Judgement:
    tolerance = default if given_tolerance is None else given_tolerance
    errors = [
        error
        for metrics in all_metrics
        if (error := _error(metrics, is_given=given_tolerance is not None)) is not None
    ]
    error = max(errors, default=None)
    ruling = Ruling.PASSED
    if any(_spoils(metrics) for metrics in all_metrics):
        ruling = Ruling.NOT_FINITE
    elif error is not None and error > tolerance:
        ruling = Ruling.MISSED
    return Judgement(
        about=about,
        path=path,
        ruling=ruling,
        error=error,
        tolerance=tolerance,
        given=given_tolerance is not None,
    )


def _error(metrics: Metrics, *, is_given: bool) -> float | None:
    """
    Return what is held against a tolerance: integers have one only where the user gives it, because
    roundings explain no share of values that differ.
    """
    if metrics.differing is not None and metrics.elements and is_given:
        return metrics.differing / metrics.elements
    return metrics.relative


def _has_no_finite_values(metrics: Metrics) -> bool:
    """Return whether the reference has values, and none of them is finite."""
    reference = (metrics.nan or (0, 0))[0] + (metrics.infinite or (0, 0))[0]
    return bool(metrics.elements) and reference == metrics.elements


def _spoils(metrics: Metrics | None) -> bool:
    """Return whether an element is finite in the reference, but not in the candidate."""
    return metrics is not None and bool(metrics.overflow)
