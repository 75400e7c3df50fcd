"""The share of the allowed error that a run uses, as one number."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from policytool.numerics.check_results.gradients import GradientReductions
from policytool.numerics.check_results.metrics import OutputMetric, TaskMetric
from policytool.numerics.tuning.results import (
    GRADIENT_ERROR,
    TOLERANCE,
    Objective,
    gradient_error,
    largest_error,
    objective,
    objective_excess,
)
from policytool.numerics.verdicts.tolerances import ToleranceOption, Tolerances, parse_tolerance
from policytool.support.errors import UsageError
from tests.helpers import example_checks
from tests.helpers.example_checks import changes, output, run

GIVEN = (ToleranceOption(pattern=None, value=0.01),)


def errors(*found: float, **along: Any) -> Any:
    """Return a run with outputs that have these errors."""
    outputs = tuple(output(f"y{number}", one, **along) for number, one in enumerate(found))
    return run(outputs=outputs, tolerances=GIVEN)


def test_output_with_the_largest_relative_error_decides() -> None:
    """The output with the largest error relative to its tolerance decides."""
    result = errors(0.001, 0.025)
    assert objective_excess(result, objective(GIVEN)) == pytest.approx(2.5)
    assert largest_error(result) == pytest.approx(0.025)


def test_nan_breaks_every_objective() -> None:
    """NaN fails each objective, even one that allows any error."""
    result = errors(0.001, overflowed=3)
    for wanted in (objective(GIVEN), Objective(tolerances=None, agreement=0.5)):
        assert objective_excess(result, wanted) == math.inf
    assert largest_error(result) is None


@pytest.mark.parametrize(("share", "excess"), [(1.0, 0.0), (0.99, 1.0), (0.95, 5.0)])
def test_agreement_counts_the_rows_that_differ(share: float, excess: float) -> None:
    """The agreement objective is the share of the allowed differing rows, regardless of errors."""
    result = errors(0.9, changed=changes(round(1000 * (1 - share))))
    expected = objective(metric="agreement")
    assert expected.tolerances is None
    assert objective_excess(result, expected) == pytest.approx(excess)


def test_full_agreement_allows_no_row() -> None:
    """An agreement of 100 % allows no differing row."""
    assert (
        objective_excess(
            errors(0.1, changed=changes(1)), objective(metric="agreement", max_drop=0.0)
        )
        == math.inf
    )
    assert objective_excess(errors(0.1), objective(metric="agreement", max_drop=0.0)) == 0


def test_agreement_needs_scores_of_classes() -> None:
    """The agreement objective needs class scores and rejects outputs of a regression."""
    with pytest.raises(UsageError, match="an output with a score for each class"):
        objective_excess(
            errors(0.1, changed=changes(class_changes=None)),
            objective(metric="agreement", max_drop=0.1),
        )


def metric(drop: float | None, allowed: float, *, passed: bool) -> TaskMetric:
    """Return the metric of an output."""
    return TaskMetric(
        name="accuracy",
        higher_is_better=True,
        outputs=(
            OutputMetric(
                output="y",
                reference=0.9,
                candidate=0.9 - (drop or 0.0),
                drop=drop,
                max_drop=allowed,
                passed=passed,
            ),
        ),
    )


@pytest.mark.parametrize(
    ("found", "excess"),
    [
        (metric(0.005, 0.01, passed=True), 0.5),
        (metric(-0.3, 0.01, passed=True), 0.0),
        (metric(0.03, 0.01, passed=False), 3.0),
        (metric(None, 0.01, passed=False), math.inf),
        (metric(0.01, 0.0, passed=False), math.inf),
    ],
)
def test_excess_of_a_metric_is_relative_to_the_allowed_drop(
    found: TaskMetric, excess: float
) -> None:
    """A metric that is NaN always fails."""
    measured = errors(0.3)
    measured = replace(measured, verdict=replace(measured.verdict, metric=found))
    objective_wanted = Objective(tolerances=None)
    assert objective_excess(measured, objective_wanted) == pytest.approx(excess)


def test_a_metric_that_fails_by_a_hair_fails() -> None:
    """A metric that drops slightly more than allowed fails, despite rounding in the report."""
    measured = errors(0.3)
    result = metric(0.01, 0.01, passed=False)
    measured = replace(measured, verdict=replace(measured.verdict, metric=result))
    assert objective_excess(measured, Objective(tolerances=None)) > 1


def gradients(*totals: GradientReductions) -> Any:
    """Return gradients at several loss scales."""
    check = example_checks.CASES["training"].check
    assert check is not None
    (checked,) = check.runs
    assert checked.gradients is not None
    trial = checked.gradients.trials[0]
    trials = tuple(
        replace(trial, scale=float(number), variables=(total,))
        for number, total in enumerate(totals)
    )
    return replace(checked.gradients, trials=trials)


def reductions(error: float, overflow: int = 0) -> GradientReductions:
    """Return the reductions of gradients with a relative error."""
    return GradientReductions(
        elements=10, overflow=overflow, squared_error=error**2, squared_reference=1.0
    )


def test_gradients_count_at_the_best_scale() -> None:
    """Gradients are compared at the best of the loss scales at which they are finite."""
    result = gradients(reductions(0.0, overflow=1), reductions(0.5), reductions(0.05))
    assert gradient_error(result) == pytest.approx(0.05)
    measured = replace(errors(0.001), gradients=result)
    expected = objective(GIVEN, gradients=True)
    assert objective_excess(measured, expected) == pytest.approx(0.05 / GRADIENT_ERROR)
    assert objective_excess(measured, replace(expected, gradients=False)) == pytest.approx(0.1)


def test_gradients_that_are_never_finite_break_the_objective() -> None:
    """A model without trainable variables passes."""
    expected = objective(GIVEN, gradients=True)
    spoilt = replace(errors(0.001), gradients=gradients(reductions(0.0, overflow=1)))
    assert objective_excess(spoilt, expected) == math.inf
    untrained = replace(errors(0.001), gradients=gradients())
    assert objective_excess(untrained, expected) == pytest.approx(0.1)


def test_defaults() -> None:
    """The default objective is the tolerance, also for outputs that no pattern matches."""
    assert objective().tolerances == Tolerances(
        given=(ToleranceOption(pattern=None, value=TOLERANCE),)
    )
    assert objective(metric="agreement", max_drop=0.1).tolerances is None
    named = objective((parse_tolerance("y=0.5"),)).tolerances
    assert named is not None
    assert (named.of("y"), named.of("z")) == (0.5, TOLERANCE)


def test_a_function_needs_no_labels() -> None:
    """A metric function of the user needs no labels, and a metric of the library does."""
    expected = objective(metric="own:score", max_drop=0.5).metric
    assert expected is not None
    assert (expected.labels, str(expected.metric), expected.max_drop) == (None, "own:score", 0.5)
    labelled = objective(metric="own:score", labels=Path("y.npy")).metric
    assert labelled is not None
    assert labelled.labels == Path("y.npy")
    for more in ({"metric": "accuracy"}, {"labels": Path("y.npy")}):
        with pytest.raises(UsageError, match=r"requires|needs"):
            objective(**more)
