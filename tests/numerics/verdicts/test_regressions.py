"""Comparing a check with the report of an earlier check."""

from __future__ import annotations

import contextlib
import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policytool.numerics.check_results.checks import InputKind
from policytool.numerics.check_results.verdicts import Change, Subject
from policytool.numerics.verdicts.regressions import compare, earlier_check
from policytool.numerics.verdicts.task_metric import metric_from_json
from policytool.reports import View
from policytool.reports.checks import CHECK_REPORTERS
from policytool.support.errors import ModelFileError
from tests.helpers.cases import for_each
from tests.helpers.example_checks import DRAWN, GPU, call, check, output, run

if TYPE_CHECKING:
    from collections.abc import Callable

    from policytool.numerics.check_results.checks import CheckRun
    from policytool.numerics.check_results.verdicts import Comparison
    from policytool.reports.checks import Checks

FILE = "before.json"


def report(found: Checks) -> bytes:
    """Return the JSON report of a check."""
    json_reporter = next(reporter for reporter in CHECK_REPORTERS if reporter.name == "json")
    return json_reporter.render(found, View()).encode()


def model(name: str, *layers: float, outputs: float = 1e-3, **other: Any) -> CheckRun:
    """Return a run with these errors of layers and output, and tolerances of 0.008 and 0.05."""
    calls = [call(f"{name}/dense_{place}", error) for place, error in enumerate(layers)]
    last = call(name, None, class_name="Functional", is_model=True, children=len(calls))
    return run(*calls, last, outputs=(output("probabilities", outputs),), **other)


def with_metric(found: CheckRun, candidate: float, *, name: str = "accuracy") -> CheckRun:
    """Return a run with a metric."""
    one = {"output": "probabilities", "reference": 0.9, "candidate": candidate}
    metric = metric_from_json({"name": name, "higher_is_better": True, "outputs": [one]}, None)
    return replace(found, verdict=replace(found.verdict, metric=metric))


def compared(before: CheckRun, now: CheckRun) -> Comparison:
    """Return the changes from one run to another."""
    result = check(now).check
    assert result is not None
    return compare(result, earlier_check(FILE, report(check(before))))


def changes(found: Comparison) -> list[tuple[str, str]]:
    """Return each change with its subject."""
    return [(difference.path, difference.change.value) for difference in found.differences]


@pytest.mark.parametrize(
    ("before", "now", "change"),
    [
        (0.004, 0.004, None),
        (0.0079, 0.0081, Change.EXCEEDS),
        (0.0081, 0.0079, Change.WITHIN),
        (0.001, 0.0021, Change.GREW),
        (0.001, 0.0019, None),
        (0.0001, 0.0019, None),
        (0.0, 0.0021, Change.GREW),
        (0.0021, 0.001, Change.SHRANK),
        (0.0019, 0.0, None),
        (0.01, 0.03, Change.GREW),
        (0.03, 0.01, Change.SHRANK),
        (0.01, 0.015, None),
    ],
)
def test_error_counts_if_twice_as_large_and_above_rounding(
    before: float, now: float, change: Change | None
) -> None:
    """Rounding explains a quarter of the tolerance, 0.002."""
    comparison = compared(model("net", before), model("net", now))
    assert comparison.paired == 2
    assert [difference.change for difference in comparison.differences] == (
        [] if change is None else [change]
    )
    assert comparison.passed is (change not in {Change.EXCEEDS, Change.GREW})


def test_nan_in_one_of_the_two_is_a_change() -> None:
    """NaN in only one of two checks is a change, and NaN in both is not."""
    spoilt = run(
        call("net/dense_0", 1e-4, alone={"overflowed": 5}),
        call("net", None, is_model=True),
        outputs=(output("probabilities", 1e-3),),
    )
    clean = model("net", 1e-4)
    assert changes(compared(clean, spoilt)) == [("net/dense_0", "exceeds")]
    assert changes(compared(spoilt, clean)) == [("net/dense_0", "within")]
    assert changes(compared(spoilt, spoilt)) == []
    assert compared(clean, spoilt).differences[0].now == math.inf


def test_outputs_are_compared_too() -> None:
    """Outputs are compared by their accumulated errors."""
    comparison = compared(model("net", 1e-4), model("net", 1e-4, outputs=0.06))
    (one,) = comparison.differences
    assert (one.about, one.path, one.change) == (Subject.OUTPUT, "probabilities", Change.EXCEEDS)
    assert (one.before, one.now, one.allowed) == pytest.approx((1e-3, 0.06, 0.05))


def test_models_with_other_names_have_the_same_layers() -> None:
    """Keras numbers unnamed models."""
    comparison = compared(model("sequential_1", 1e-4), model("sequential", 0.01))
    assert changes(comparison) == [("sequential/dense_0", "exceeds")]
    assert not comparison.only_before
    assert not comparison.only_now


def test_layers_of_only_one_check_are_listed() -> None:
    """Layers that only one check has are listed, and are no failure."""
    comparison = compared(model("net", 1e-4, 1e-4), model("net", 1e-4, 1e-4, 0.01))
    assert (comparison.only_before, comparison.only_now) == ((), ("net/dense_2",))
    assert comparison.passed
    comparison = compared(model("net", 1e-4, 1e-4), model("net", 1e-4))
    assert (comparison.only_before, comparison.only_now) == (("net/dense_1",), ())


def test_repeated_calls_of_a_layer_are_paired_by_number() -> None:
    """Repeated calls of a layer are paired by the number in their places."""

    def shared(first: float, second: float) -> CheckRun:
        calls = [call("net/a", first), call("net/a", second, number=1)]
        return run(*calls, call("net", None, is_model=True), outputs=(output("o", 1e-3),))

    comparison = compared(shared(1e-4, 1e-4), shared(1e-4, 0.01))
    assert changes(comparison) == [("net/a (call 2)", "exceeds")]


@pytest.mark.parametrize(
    ("before", "now", "change"),
    [
        (0.9, 0.9, None),
        (0.9, 0.895, None),
        (0.9, 0.88, "worse"),
        (0.88, 0.9, "better"),
        (0.9, math.nan, "worse"),
        (math.nan, 0.9, "better"),
        (math.nan, math.nan, None),
    ],
)
def test_a_metric_that_dropped_is_a_regression(
    before: float, now: float, change: str | None
) -> None:
    """A candidate metric that drops by more than the run allows is a regression."""
    plain = model("net", 1e-4)
    comparison = compared(with_metric(plain, before), with_metric(plain, now))
    assert changes(comparison) == ([] if change is None else [("accuracy", change)])
    assert comparison.passed is (change != "worse")


def test_different_conditions_are_reported() -> None:
    """Differences in policies, devices, inputs and metrics are reported."""
    plain = model("net", 1e-4)
    given_inputs = replace(DRAWN, kind=InputKind.GIVEN, seed=None)
    comparison = compared(
        with_metric(plain, 0.9, name="auc"), model("net", 1e-4, device=GPU, inputs=given_inputs)
    )
    assert comparison.notes == (
        "the earlier check ran on cpu:0, and this check ran on gpu:0",
        "the earlier check used different inputs, which also changes the errors",
        "the earlier check used the metric auc, and this check uses no metric",
    )
    assert compared(plain, plain).notes == ()


def test_runs_are_paired_by_signature_and_device() -> None:
    """Runs are paired by signature, and by device if possible."""
    before = check(model("net", 1e-4), model("net", 0.01, device=GPU))
    earlier = earlier_check(FILE, report(before))
    now = check(model("net", 0.01, device=GPU)).check
    assert now is not None
    assert compare(now, earlier).passed
    now = check(model("net", 1e-4, signature="other")).check
    assert now is not None
    with pytest.raises(ModelFileError, match="no output or layer call of this model"):
        compare(now, earlier)


def test_a_check_of_another_model_cannot_be_compared() -> None:
    """Without common layers nothing could fail."""
    first, second = (
        run(call(f"{name}/{name}", 1e-4), outputs=(output(name, 1e-3), output(f"{name}2", 1e-3)))
        for name in ("a", "b")
    )
    with pytest.raises(ModelFileError) as caught:
        compared(first, second)
    assert caught.value.code == "not-comparable"


def edited(change: Callable[[Any], object]) -> bytes:
    """Return a report with a change."""
    values = json.loads(report(check(with_metric(model("net", 1e-4), 0.9))))
    change(values)
    return json.dumps(values).encode()


FOREIGN = {
    "empty": b"",
    "text": b"hello",
    "not UTF-8": b"\xff\xfe{",
    "null": b"null",
    "list": b"[]",
    "object": b"{}",
    "number": b"1e999",
    "deep": b"[" * 100_000,
    "digits": b'{"version": ' + b"9" * 100_000 + b"}",
    "other report": b'{"version": 1, "tool": {"name": "policytool"}, "models": []}',
    "later version": edited(lambda values: values.update(version=2)),
    "no check": edited(lambda values: values.update(check=None)),
    "check of text": edited(lambda values: values.update(check="x")),
    "no runs": edited(lambda values: values["check"].pop("runs")),
    "runs of text": edited(lambda values: values["check"].update(runs=["x"])),
    "no candidate": edited(lambda values: values["check"].pop("candidate")),
    "policy of numbers": edited(lambda values: values["check"]["candidate"].update(policy=[1])),
    "no device": edited(lambda values: values["check"]["runs"][0].pop("device")),
    "no inputs": edited(lambda values: values["check"]["runs"][0].pop("inputs")),
    "no outputs": edited(lambda values: values["check"]["runs"][0].pop("outputs")),
    "calls of null": edited(lambda values: values["check"]["runs"][0].update(calls=[None])),
    "path of numbers": edited(
        lambda values: values["check"]["runs"][0]["calls"][0].update(path={"a": 1})
    ),
    "error of text": edited(
        lambda values: values["check"]["runs"][0]["calls"][0]["verdict"].update(error="large")
    ),
    "error of truth": edited(
        lambda values: values["check"]["runs"][0]["calls"][0]["verdict"].update(error=True)
    ),
    "metric of text": edited(lambda values: values["check"]["runs"][0].update(metric="auc")),
    "metric without value": edited(
        lambda values: values["check"]["runs"][0]["metric"].pop("candidate")
    ),
}


@for_each("name", FOREIGN)
def test_anything_else_is_one_sentence(name: str) -> None:
    """A file that is not a check report is a one-line error with the expected content."""
    with pytest.raises(ModelFileError) as caught:
        earlier_check(FILE, FOREIGN[name])
    assert "expected the output of `policytool check --format json`" in caught.value.message
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 300


def test_numbers_that_json_lacks_are_read() -> None:
    """Numbers that JSON lacks, such as NaN, are read from strings in a report."""
    text = edited(
        lambda values: values["check"]["runs"][0]["calls"][0]["verdict"].update(error="Infinity")
    )
    (result,) = earlier_check(FILE, text).runs
    assert result.findings[Subject.LAYER, "/dense_0"].error == math.inf


def test_reports_without_the_later_keys_are_read() -> None:
    """Reports of earlier versions of policytool, which have no metric, are read."""
    text = edited(lambda values: values["check"]["runs"][0].pop("metric"))
    assert earlier_check(FILE, text).runs[0].metric is None


_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["version", "check", "runs", "path", "verdict", "error"]), inner
        )
    ),
)


@given(value=_JSON, key=st.sampled_from(["device", "inputs", "outputs", "calls", "metric"]))
def test_any_value_is_read_or_refused(value: object, key: str) -> None:
    """Any value in a report is read or is an error of policytool."""
    for text in (
        json.dumps(value).encode(),
        edited(lambda values: values["check"]["runs"][0].update({key: value})),
    ):
        with contextlib.suppress(ModelFileError):
            earlier_check(FILE, text)
