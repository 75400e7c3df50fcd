"""The three answers of a check: safe, not safe and undecided."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from policytool.numerics.check_results import metrics
from policytool.numerics.check_results.metrics import CheckedOutput, OutputMetric, TaskMetric
from policytool.numerics.check_results.verdicts import Answer, Open, OutputKind
from policytool.numerics.verdicts import safety
from policytool.numerics.verdicts.output_kinds import (
    OutputFacts,
    losses_by_output,
    parse_output_kinds,
    possible_readings,
)
from policytool.reports.checks._verdict import answer_reason
from policytool.runtime.engine.output_changes import OutputChanges
from policytool.support.errors import UsageError
from policytool.support.text import codec


def changes(one: Any, other: Any) -> metrics.OutputChanges:
    """Return the changes of an output with one batch."""
    result = OutputChanges()
    result.update(np.asarray(one), np.asarray(other))
    return codec.read(metrics.OutputChanges, result.to_json())


def checked_output(name: str, one: Any, other: Any) -> CheckedOutput:
    """Return an output of a run."""
    return CheckedOutput(
        shape=(None, *one.shape[1:]),
        dtype_reference="float32",
        dtype_candidate="float32",
        accumulated=None,
        name=name,
        changes=changes(one, other),
    )


def normal(*shape: int, seed: int = 1) -> Any:
    """Return normally distributed numbers."""
    return np.random.default_rng(seed).normal(size=shape)


def answer(one: Any, other: Any, kind: OutputKind) -> tuple[Answer, Open | None]:
    """Return the answer for an output of a known kind, and the reason if it is undecided."""
    result = safety.answer_output("y", changes(one, other), (frozenset({kind}),))
    return result.answer, result.why


def test_shares_name_predictions_and_rows() -> None:
    """A row may have several predictions; of several labels, a row changes if any does."""
    one = np.eye(2)[(np.arange(64)[:, None] + np.arange(32)) % 2]
    other = one.copy()
    other[:11, 0] = other[:11, 0, ::-1]
    counted = {
        OutputKind.CLASSES: "0.537% of 2,048 predictions change class in 64 rows (",
        OutputKind.BINARY: "17.2% of 64 rows get another yes/no prediction (",
    }
    for kind, words in counted.items():
        result = safety.answer_output("y", changes(one, other), (frozenset({kind}),))
        assert answer_reason(result, "").startswith(words)


@pytest.mark.parametrize(
    ("changed", "rows", "expected"),
    [
        (0, 299, Answer.SAFE),
        (0, 298, Answer.UNDECIDED),
        (0, 8, Answer.UNDECIDED),
        (3, 1000, Answer.SAFE),
        (9, 1000, Answer.UNDECIDED),
        (15, 1000, Answer.UNDECIDED),
        (40, 1000, Answer.NOT_SAFE),
        (1, 8, Answer.UNDECIDED),
        (3, 8, Answer.NOT_SAFE),
        (100, 10_000, Answer.UNDECIDED),
    ],
)
def test_classes_may_change_in_one_of_a_hundred_rows(
    changed: int, rows: int, expected: Answer
) -> None:
    """
    A classifier is safe if at most one of a hundred rows changes class, decided by the bounds, so
    that few rows rarely suffice.
    """
    first = np.eye(3)[np.arange(rows) % 3]
    second = first.copy()
    second[:changed] = np.roll(first[:changed], 1, 1)
    assert answer(first, second, OutputKind.CLASSES)[0] is expected


@pytest.mark.parametrize(
    ("error", "rows", "expected"),
    [
        (0.002, 1000, Answer.SAFE),
        (0.002, 100, Answer.UNDECIDED),
        (0.03, 1000, Answer.UNDECIDED),
        (0.2, 1000, Answer.NOT_SAFE),
        (0.5, 8, Answer.NOT_SAFE),
    ],
)
@pytest.mark.parametrize("offset", [0, 283])
def test_regression_is_safe_up_to_a_share_of_the_spread(
    error: float, rows: int, expected: Answer, offset: float
) -> None:
    """
    A regression is safe if errors are a small share of the spread of the values; an offset does not
    count as spread.
    """
    one = normal(rows, 1) + offset
    assert answer(one, one + error * normal(rows, 1, seed=2), OutputKind.REGRESSION)[0] is expected


def test_one_channel_is_enough() -> None:
    """One channel with large errors is not safe, even if other channels have larger values."""
    one = normal(1000, 3) * [100, 1, 100]
    result = safety.answer_output(
        "y",
        changes(one, one + [0, 0.3, 0] * normal(1000, 3, seed=2)),
        (frozenset({OutputKind.REGRESSION}),),
    )
    assert result.answer is Answer.NOT_SAFE
    assert result.deciding is not None
    assert result.deciding.channel == 1


def test_a_seldom_error_is_not_overlooked() -> None:
    """One of 1,000 rows has a large error; the true share may be three rows."""
    first = normal(1000, 1)
    second = first.copy()
    second[7] += 0.25
    assert answer(first, second, OutputKind.REGRESSION)[0] is Answer.UNDECIDED


def test_new_nan_is_never_safe() -> None:
    """New NaN values are never safe, even in a single row."""
    first = normal(5000, 2)
    second = first.copy()
    second[4999, 1] = np.inf
    result = safety.answer_output(
        "y", changes(first, second), (frozenset({OutputKind.REGRESSION}),)
    )
    assert (result.answer, result.spoiled) == (Answer.NOT_SAFE, 1)


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (np.ones((1000, 4)), Open.CONSTANT),
        (np.full((1000, 4), np.nan), Open.NOT_FINITE),
    ],
)
def test_output_without_information_is_undecided(one: Any, why: Open) -> None:
    """An output without information is undecided, with the reason."""
    assert answer(one, one, OutputKind.CLASSES) == (Answer.UNDECIDED, why)


def test_a_value_that_only_rounding_changes_is_constant() -> None:
    """An output whose spread is only the rounding of float32 is constant."""
    one = 1000 + 1e-5 * normal(1000, 1)
    assert answer(one, one + 0.01, OutputKind.REGRESSION) == (Answer.UNDECIDED, Open.CONSTANT)


def test_answer_covers_every_possible_kind_of_an_output() -> None:
    """Changed classes are not safe. Negligible errors are safe for classes and for embeddings."""
    first = normal(2000, 3) * [1, 1, 1] + [10, 10, 10]
    second = first + 0.005 * first.std()
    second[:100] = second[:100, [1, 2, 0]]
    possible = (frozenset({OutputKind.CLASSES}), frozenset({OutputKind.VALUES}))
    result = safety.answer_output("y", changes(first, second), possible[:1])
    assert result.answer is Answer.NOT_SAFE
    both = (frozenset({OutputKind.CLASSES}), frozenset({OutputKind.EMBEDDING}))
    result = safety.answer_output("y", changes(first, first + 1e-9), both)
    assert result.answer is Answer.SAFE


SOFTMAX = np.exp(normal(50, 4)) / np.exp(normal(50, 4)).sum(1, keepdims=True)
SIGMOID = 1 / (1 + np.exp(-normal(50, 1)))


@pytest.mark.parametrize(
    ("values", "activation", "loss", "expected"),
    [
        (SOFTMAX, "softmax", None, [{"classes"}]),
        (SOFTMAX, None, None, [{"classes"}]),
        (SIGMOID, "sigmoid", None, [{"binary", "probability"}]),
        (SIGMOID, None, None, [{"binary", "probability"}]),
        (SIGMOID, "linear", "mse", [{"regression"}]),
        (normal(50, 1), "linear", None, [{"regression"}]),
        (normal(50, 1), "linear", "BinaryCrossentropy", [{"binary"}]),
        (normal(50, 9), "linear", "SparseCategoricalCrossentropy", [{"classes"}]),
        (normal(50, 9), "linear", "mean_squared_error", [{"regression"}]),
        (normal(50, 9), "linear", "Huber", [{"regression"}]),
        (normal(50, 9), "linear", None, [{"regression"}, {"classes"}]),
        (normal(50, 32), "linear", None, [{"regression"}, {"classes"}, {"embedding"}]),
        (normal(50, 32), "linear", "CosineSimilarity", [{"embedding"}]),
        (normal(50, 9), "tanh", None, [{"regression"}]),
        (normal(50, 8, 8, 3), "linear", None, [{"regression"}]),
        (np.eye(4)[np.arange(50) % 4].reshape(50, 2, 2, 1), "sigmoid", None, [{"mask"}]),
        (
            np.full((50, 2, 2, 1), 0.5) + 0.1 * normal(50, 2, 2, 1),
            "sigmoid",
            "mse",
            [{"regression"}],
        ),
        (np.arange(50), None, None, [{"values"}]),
        (
            normal(50, 4) / np.linalg.norm(normal(50, 4), axis=1)[:, None],
            None,
            None,
            [{"embedding"}],
        ),
    ],
)
def test_kinds_are_recognised(
    values: Any, activation: str | None, loss: str | None, expected: list[set[str]]
) -> None:
    """The kind of an output is detected from activation, loss, shape and values."""
    facts = OutputFacts(shape=(None, *values.shape[1:]), activation=activation, loss=loss)
    assert list(possible_readings(facts, changes(values, values))) == [
        frozenset(item) for item in expected
    ]


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        ("mse", {"a": "mse", "b": "mse"}),
        (["mse", "mae"], {"a": "mse", "b": "mae"}),
        ({"b": "mae"}, {"b": "mae"}),
        ({"class_name": "Huber", "config": {}}, {"a": "Huber", "b": "Huber"}),
        (
            {"module": "builtins", "class_name": "function", "config": "mse"},
            {"a": "mse", "b": "mse"},
        ),
        (None, {}),
    ],
)
def test_losses_of_files_are_read(recorded: object, expected: dict[str, str]) -> None:
    """The loss in a file is read in each form that Keras writes."""
    assert losses_by_output(recorded, ["a", "b"]) == expected


def test_kinds_that_the_user_names() -> None:
    """The user can specify the kind of an output; an unknown kind is an error."""
    assert parse_output_kinds(["y=classes", "a=b=mask"]) == {
        "y": OutputKind.CLASSES,
        "a=b": OutputKind.MASK,
    }
    for text in ("classes", "y=class"):
        with pytest.raises(UsageError, match="must be NAME=KIND"):
            parse_output_kinds([text])


LABELLED = OutputMetric(
    output="y", reference=0.57, candidate=0.57, drop=0.0, max_drop=0.01, passed=True, rows=1000
)


@pytest.mark.parametrize(
    ("kind", "changed", "bounds", "expected"),
    [
        (OutputKind.REGRESSION, 0.3, (0.0, 0.001), Answer.SAFE),
        (OutputKind.REGRESSION, 0.001, (0.02, 0.03), Answer.NOT_SAFE),
        (OutputKind.REGRESSION, 0.001, (0.0, 0.02), Answer.UNDECIDED),
        (OutputKind.BINARY, 0.3, (0.0, 0.001), Answer.UNDECIDED),
        (OutputKind.BINARY, 1e-9, (0.0, 0.001), Answer.SAFE),
        (OutputKind.BINARY, 1e-9, (0.02, 0.03), Answer.NOT_SAFE),
        (OutputKind.CLASSES, 0.3, (0.0, 0.001), Answer.NOT_SAFE),
        (OutputKind.CLASSES, 1e-9, (0.02, 0.03), Answer.NOT_SAFE),
        (OutputKind.CLASSES, 1e-9, (0.0, 0.001), Answer.SAFE),
        (OutputKind.REGRESSION, 0.3, None, Answer.NOT_SAFE),
        (OutputKind.REGRESSION, 0.001, None, Answer.SAFE),
    ],
)
def test_labels_decide_for_numbers_and_count_for_all(
    kind: OutputKind, changed: float, bounds: tuple[float, float] | None, expected: Answer
) -> None:
    """
    Labels decide for numbers; for other kinds changed predictions count too, because a metric does
    not show them, and too few rows with labels are undecided.
    """
    values = normal(1000, 3)
    output = checked_output("y", values, values + changed * normal(1000, 3, seed=2))
    metric = TaskMetric(
        name="accuracy", higher_is_better=True, outputs=(replace(LABELLED, bounds=bounds),)
    )
    (result,) = safety.answer_outputs([output], safety.SafetyRule(kinds={"y": kind}), metric)
    assert result.answer is expected
    assert result.deciding is not None
    assert result.deciding.kind is kind


def test_channel_that_is_constant_in_the_reference_counts() -> None:
    """The errors of such a channel are relative to the spread of the other channels."""
    one = normal(1000, 4) * [1, 1, 1, 0]
    for size, expected in ((5.0, Answer.NOT_SAFE), (1e-4, Answer.SAFE)):
        assert answer(one, one + np.array([0, 0, 0, size]), OutputKind.REGRESSION)[0] is expected


def test_bounds_of_probabilities_are_those_of_the_mean_change() -> None:
    """Differences in few samples may be more frequent in others."""
    first = np.full((1000, 1), 0.5) + 0.1 * normal(1000, 1)
    second = first.copy()
    second[:20] += 0.24
    result = safety.answer_output(
        "y", changes(first, second), (frozenset({OutputKind.PROBABILITY}),)
    )
    assert result.deciding is not None
    change = result.deciding.change
    assert change.value == pytest.approx(20 * 0.24 / first.sum(), rel=1e-3)
    assert change.lower < change.value < 0.0145 < change.upper
    assert result.answer is Answer.UNDECIDED


def test_unsuitable_kind_of_an_output_is_reported() -> None:
    """The message does not call the output constant."""
    values = normal(1000, 1)
    assert answer(values, values, OutputKind.CLASSES) == (Answer.UNDECIDED, Open.UNFIT)


def test_percentages_are_checked() -> None:
    """Percentages are checked; NaN is an error."""
    assert safety.share_of(1) == 0.01
    for percent in (0, -1, 101, float("nan")):
        with pytest.raises(UsageError, match="--max-change"):
            safety.share_of(percent)


@pytest.mark.parametrize(("drop", "expected"), [(math.inf, Answer.NOT_SAFE), (None, None)])
def test_a_metric_that_is_not_finite_is_no_pass(drop: float | None, expected: Answer) -> None:
    """A metric that is not finite does not pass: infinity is worse, and NaN is undecided."""
    values = normal(1000, 3)
    output = checked_output("y", values, values)
    bounds = None if drop is None else (drop, drop)
    metric = TaskMetric(
        name="nll",
        higher_is_better=False,
        outputs=(replace(LABELLED, drop=drop, bounds=bounds, passed=False),),
    )
    rule = safety.SafetyRule(kinds={"y": OutputKind.REGRESSION})
    (result,) = safety.answer_outputs([output], rule, metric)
    assert result.answer is (expected or Answer.UNDECIDED)
    assert result.why is (None if expected else Open.BETWEEN)


def test_undecided_change_between_the_limits_names_the_limit() -> None:
    """Half of ``--max-change`` is the limit for numbers."""
    values = normal(1000, 3)
    output = checked_output("y", values, values * 1.007)
    rule = safety.SafetyRule(kinds={"y": OutputKind.REGRESSION})
    (result,) = safety.answer_outputs([output], rule, None)
    assert (result.answer, result.why) == (Answer.UNDECIDED, Open.BETWEEN)
    assert result.kinds[0].limit == safety.MAX_CHANGE / 2
    assert answer_reason(result, "").endswith("confidence); up to 0.5% is safe")


def test_metric_decides_only_for_outputs_with_labels() -> None:
    """A metric decides only for outputs with labels; other outputs are decided by their values."""
    values = normal(1000, 3)
    outputs = [checked_output(name, values, -values) for name in ("a", "b", "c")]
    labelled = replace(LABELLED, output=None, names=("a", "b"), bounds=(0.0, 0.001))
    metric = TaskMetric(name="mine", higher_is_better=True, outputs=(labelled,))
    rule = safety.SafetyRule(kinds=dict.fromkeys("abc", OutputKind.REGRESSION))
    result = safety.answer_outputs(outputs, rule, metric)
    assert [item.answer for item in result] == [Answer.SAFE, Answer.SAFE, Answer.NOT_SAFE]


def test_outputs_without_information_are_undecided_despite_labels() -> None:
    """Classes of NaN are equally often correct in both models."""
    for item in (np.full((1000, 4), np.nan), np.ones((1000, 4))):
        output = checked_output("y", item, item)
        metric = TaskMetric(
            name="accuracy",
            higher_is_better=True,
            outputs=(replace(LABELLED, bounds=(0.0, 0.0)),),
        )
        (result,) = safety.answer_outputs([output], safety.SafetyRule(), metric)
        assert result.answer is Answer.UNDECIDED
