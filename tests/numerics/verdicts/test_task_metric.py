"""The options for the metric of the user's task, and the verdict on its values."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from policytool.numerics.check_sides import UserFunction
from policytool.numerics.verdicts.task_metric import (
    MAX_DROP,
    MetricOptions,
    metric_from_json,
    metric_options,
)
from policytool.support.errors import UsageError

if TYPE_CHECKING:
    from policytool.numerics.check_results.metrics import TaskMetric

LABELS = Path("y.npy")


def measured(
    *values: tuple[float, float], max_drop: float | None = None, higher: bool = True
) -> TaskMetric:
    """Return the metric of outputs with these reference and candidate values."""
    actual: dict[str, Any] = {
        "name": "accuracy",
        "higher_is_better": higher,
        "outputs": [
            {"output": f"output_{place}", "reference": one, "candidate": other}
            for place, (one, other) in enumerate(values)
        ],
    }
    metric = metric_from_json(actual, max_drop)
    assert metric is not None
    return metric


@pytest.mark.parametrize(
    ("reference", "candidate", "max_drop", "passed"),
    [
        (0.9, 0.9, None, True),
        (0.9, 0.95, None, True),
        (0.9, 0.89, None, True),
        (0.9, 0.889, None, False),
        (0.9, 0.889, 0.02, True),
        (0.9, 0.8999, 0.0, False),
        (0.9, math.nan, None, False),
        (math.nan, 0.9, None, False),
        (0.9, -math.inf, 1e9, False),
        (0.9, math.inf, None, True),
    ],
)
def test_a_metric_may_get_worse_by_the_largest_drop(
    reference: float, candidate: float, max_drop: float | None, *, passed: bool
) -> None:
    """The default is one percentage point; NaN always fails."""
    assert measured((reference, candidate), max_drop=max_drop).passed is passed


@pytest.mark.parametrize(
    ("reference", "candidate", "max_drop", "passed"),
    [
        (200.0, 150.0, None, True),
        (200.0, 201.9, None, True),
        (200.0, 202.1, None, False),
        (200.0, 202.1, 5.0, True),
        (0.02, 0.03, None, False),
        (0.02, 0.03, 0.01, True),
        (0.02, math.inf, None, False),
    ],
)
def test_an_error_may_grow_by_a_share_of_the_reference(
    reference: float, candidate: float, max_drop: float | None, *, passed: bool
) -> None:
    """
    An error metric can grow by a share of the reference, because its size depends on the task; a
    number of the user is absolute.
    """
    result = measured((reference, candidate), max_drop=max_drop, higher=False)
    assert result.passed is passed
    assert result.worst.max_drop == pytest.approx(max_drop or MAX_DROP * reference)


def test_rounding_of_the_metric_itself_is_no_drop() -> None:
    """The rounding of the metric itself is no drop: in float32, 0.9 - 0.89 is more than 0.01."""
    assert MAX_DROP < 0.9 - 0.89
    assert measured((0.8999999761581421, 0.8899999856948853)).passed


def test_the_worst_output_comes_first_and_decides() -> None:
    """The output with the worst metric comes first and decides the verdict."""
    result = measured((0.5, 0.6), (0.9, 0.7), (0.9, 0.85), (0.4, 0.4))
    assert [output.output for output in result.outputs] == [
        "output_1",
        "output_2",
        "output_3",
        "output_0",
    ]
    assert result.worst.drop == pytest.approx(0.2)
    assert not result.passed


def test_no_values_are_no_metric() -> None:
    """A run without metric values has no metric."""
    assert metric_from_json(None, 0.1) is None


def test_a_metric_has_a_name_or_is_a_function() -> None:
    """A metric is the name of a library metric or a function of the user."""
    assert metric_options(LABELS, "auc", None, has_inputs=True) == MetricOptions(
        labels=LABELS, metric="auc"
    )
    result = metric_options(LABELS, "my.metrics:top_5", 0.5, has_inputs=True)
    assert result is not None
    assert result.metric == UserFunction(module="my.metrics", name="top_5")
    assert result.max_drop == 0.5
    assert metric_options(None, None, None, has_inputs=False) is None


@pytest.mark.parametrize(
    ("labels", "metric", "max_drop", "has_inputs", "told"),
    [
        (None, "auc", None, True, "--metric requires labels; add --labels"),
        (LABELS, None, None, True, "--labels needs a metric; add --metric NAME"),
        (LABELS, "auc", None, False, "--labels requires --inputs"),
        (LABELS, "auc", -0.1, True, "drop -0.1, which must be a non-negative number"),
        (LABELS, "auc", math.nan, True, "drop nan, which must be"),
        (LABELS, "auc", math.inf, True, "drop inf, which must be"),
        (LABELS, "", None, True, "--metric '' must be the name of a metric"),
        (LABELS, "a.b", None, True, "--metric 'a.b' must be"),
        (LABELS, "a:", None, True, "must be the name of a metric, such as accuracy, or MODULE"),
        (LABELS, ":f", None, True, "--metric ':f' must be"),
        (LABELS, "a:b:c", None, True, "--metric 'a:b:c' must be"),
        (LABELS, "../a:f", None, True, "--metric '../a:f' must be"),
        (LABELS, "a\x1b[31m", None, True, "--metric 'a\\x1b[31m' must be"),
        (LABELS, "x" * 10_000 + "!", None, True, "x..."),
    ],
)
def test_contradicting_options_are_a_usage_error(
    labels: Path | None, metric: str | None, max_drop: float | None, told: str, *, has_inputs: bool
) -> None:
    """Contradicting options are a usage error that names the option to add or change."""
    with pytest.raises(UsageError) as caught:
        metric_options(labels, metric, max_drop, has_inputs=has_inputs)
    assert told in str(caught.value)
    assert len(str(caught.value)) < 300
