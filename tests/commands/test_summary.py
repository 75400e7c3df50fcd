"""``inspect --summary``: counts over fixtures and over any models."""

from __future__ import annotations

import json
import tracemalloc
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from policytool.commands import inspect as inspection
from policytool.commands.inspect import Failure
from policytool.commands.summary import (
    DISTINCT,
    LARGEST,
    OTHER,
    POLICIES,
    FleetSummary,
    ModelRecord,
    ReleaseOutcome,
    SummaryRequest,
    model_record,
    saved_bytes,
    summarize,
)
from policytool.formats import discovery
from policytool.model.compatibility import file_names
from policytool.model.model import Model, Obstacle, Outcome
from policytool.releases.releases import CURRENT, LOADERS
from policytool.reports import View
from policytool.reports.inspection.fields import REPORT as INSPECTION
from policytool.reports.reporter import json_reporter
from policytool.reports.summaries import REPORT as SUMMARY
from tests.contracts.reporter_contract import inspected
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES
from tests.helpers.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Iterable

REQUEST: Final = SummaryRequest()
_SIZES: Final = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}


@cache
def _reports() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the report on a sample of the fixtures, and their summary with all releases."""
    paths = [str(path) for path in FIXTURES.iterdir() if (path / "truth.json").is_file()]
    inputs = sampled("summarized fixtures", discovery.inputs(sorted(paths)), share=5)
    results = [inspection.attempt(found) for found in inputs]
    selected = inspection.select(inspection.collect(results), inspection.Selection())
    request = SummaryRequest(every_release=True)
    summary = summarize(
        (
            model_record(result, request) if isinstance(result, Model) else result
            for result in results
        ),
        request,
    )
    return (
        json.loads(json_reporter(INSPECTION).render(selected, View())),
        json.loads(json_reporter(SUMMARY).render(summary, View())),
    )


@THOROUGH
def test_every_number_is_the_sum_over_the_models_of_the_json_report() -> None:
    """Each number of a summary is the sum over the models in the JSON report of ``inspect``."""
    each, summary = _reports()
    models = each["models"]
    assert len(models) > 100
    assert summary["models"] == len(models)
    assert summary["failures"] == each["failures"]
    for key in ("layers", "parameters", "bytes"):
        assert summary[key] == sum(model["summary"][key] for model in models)
    for key, name in (("formats", "format"), ("written_by", "written_by")):
        assert {item[name]: item["models"] for item in summary[key]} == Counter(
            model[name] for model in models
        )
    policies: dict[str | None, list[int]] = {}
    for model in models:
        for policy, count in Counter(layer["policy"] for layer in model["layers"]).items():
            policies.setdefault(policy, []).append(count)
    assert {
        policy["policy"]: (policy["models"], policy["layers"]) for policy in summary["policies"]
    } == {policy: (len(counts), sum(counts)) for policy, counts in policies.items()}
    sizes = sorted((-model["summary"]["bytes"], model["path"]) for model in models)[:LARGEST]
    assert [(-item["bytes"], item["path"]) for item in summary["largest"]] == sizes


@THOROUGH
def test_savings_are_those_of_each_stored_variable() -> None:
    """
    The saved bytes count each floating-point variable that is wider than the policy's variable
    dtype.
    """
    each, summary = _reports()
    for saving in summary["savings"]:
        size = _SIZES[dict(POLICIES)[saving["policy"]]]
        saved = [
            sum(
                max(0, _SIZES[variable["dtype"]] - size) * _parameters(variable["shape"])
                for layer in model["layers"]
                for variable in layer["variables"]
                if variable["dtype"] in _SIZES
            )
            for model in each["models"]
        ]
        assert (saving["bytes"], saving["models"]) == (sum(saved), sum(map(bool, saved)))
        assert saving["bytes"]


def _parameters(shape: list[int] | None) -> int:
    found = 1
    for size in [0] if shape is None or -1 in shape else shape:
        found *= size
    return found


@THOROUGH
def test_verdicts_are_those_of_each_model() -> None:
    """
    The verdicts of a summary equal those of the models, and the reasons of a release add up to the
    models that may not load.
    """
    each, summary = _reports()
    assert [release["release"] for release in summary["releases"]] == list(LOADERS)
    for release in summary["releases"]:
        verdicts = [
            (verdict["verdict"], file_names.without_path(verdict["reason"] or ""))
            for model in each["models"]
            for verdict in model["releases"]
            if verdict["release"] == release["release"]
        ]
        counts = Counter(verdict for verdict, _ in verdicts)
        assert {name: release[name] for name in Outcome} == {name: counts[name] for name in Outcome}
        assert release["not_applicable"] == len(each["models"]) - len(verdicts)
        reasons = Counter[tuple[str, str]]()
        for item in release["reasons"]:
            assert item["cause"] is not None
            reasons[item["verdict"], item["reason"]] += item["models"]
        assert reasons == Counter(found for found in verdicts if found[0] != "loads")


def test_current_releases_are_counted_by_default() -> None:
    """Without an option the newest releases of Keras 2 and Keras 3 are counted."""
    assert tuple(release.release for release in summarize([], REQUEST).releases) == CURRENT


# sums

_AMOUNTS: Final = st.dictionaries(
    st.sampled_from([*_SIZES, "int8", "string"]), st.integers(1, 99).map(lambda n: 8 * n)
)


@st.composite
def records(draw: st.DrawFn) -> ModelRecord:
    """Return the record of a model."""
    policies = draw(st.dictionaries(st.sampled_from(["float32", "float16"]), st.integers(1, 9)))
    loading = draw(st.sampled_from([None, *Outcome]))
    doubtful = loading in {Outcome.INCOMPATIBLE, Outcome.UNKNOWN}
    outcome = loading and ReleaseOutcome(
        release=CURRENT[1],
        loading=loading,
        cause=draw(st.sampled_from(Obstacle)) if doubtful else None,
        reason=draw(st.sampled_from(["one", "two"])) if doubtful else None,
    )
    return ModelRecord(
        path=draw(st.text(max_size=3)),
        format=draw(st.sampled_from(["h5", "keras"])),
        generation=draw(st.sampled_from([None, "tf2.15"])),
        layers=sum(policies.values()) + draw(st.integers(0, 2)),
        parameters=draw(st.integers(0, 99)),
        policies=policies,
        stored=draw(_AMOUNTS),
        outcomes=(outcome,) if outcome else (),
    )


def _numbers(summary: FleetSummary) -> Counter[object]:
    """Return each number of a summary by its subject."""
    found: dict[object, int] = {
        "models": summary.models,
        "layers": summary.layers,
        "parameters": summary.parameters,
        **{("format", key): count for key, count in summary.formats.items()},
        **{("generation", key): count for key, count in summary.generations.items()},
        **{("stored", key): count for key, count in summary.stored.items()},
    }
    for policy in summary.policies:
        found[policy.policy, "models"] = policy.models
        found[policy.policy, "layers"] = policy.layers
    for saving in summary.savings:
        found[saving.policy, "saving"] = saving.models
        found[saving.policy, "saved"] = saving.bytes
    for one in summary.releases:
        for key in ("loads", "incompatible", "unknown", "not_applicable"):
            found[one.release, key] = getattr(one, key)
        for why in one.reasons:
            found[one.release, why.loading, why.cause, why.reason] = why.models
    return Counter(found)


@THOROUGH
@given(st.lists(records(), max_size=15), st.lists(records(), max_size=15))
def test_a_summary_of_all_is_the_sum_of_the_summaries_of_parts(
    first: list[ModelRecord], second: list[ModelRecord]
) -> None:
    parts = [summarize(part, REQUEST) for part in (first, second)]
    whole = summarize(first + second, REQUEST)
    assert _numbers(whole) == _numbers(parts[0]) + _numbers(parts[1])
    largest = sorted(first + second, key=lambda one: (-one.bytes, one.path))[:LARGEST]
    assert list(whole.largest) == largest
    for release in whole.releases:
        counts = (release.loads, release.incompatible, release.unknown, release.not_applicable)
        assert sum(counts) == whole.models
        assert sum(why.models for why in release.reasons) == release.incompatible + release.unknown


@given(_AMOUNTS)
def test_policy_saves_at_most_the_bytes_of_floats(stored: dict[str, int]) -> None:
    """A wider variable dtype never saves more bytes, and only floats count."""
    half, single = (saved_bytes(stored, dtype) for dtype in ("float16", "float32"))
    assert 0 <= single <= half <= sum(stored.get(dtype, 0) for dtype in ("float32", "float64"))
    assert half == stored.get("float32", 0) // 2 + stored.get("float64", 0) * 3 // 4
    assert single == stored.get("float64", 0) // 2


# what is held


@cache
def _real_record() -> ModelRecord:
    (model,) = inspected("tf2.3/exp_mf16_fixed128.h5").inspection.models
    return model_record(model, REQUEST)


def _record(**changed: Any) -> ModelRecord:
    return replace(_real_record(), **changed)


def test_failures_and_skipped_files_are_counted() -> None:
    failure = Failure(path="a.h5", code="empty", message="empty")
    summary = summarize([None, failure, _record(), None], REQUEST)
    assert (summary.models, summary.failures, summary.passed_over) == (1, (failure,), 2)


def test_records_are_kept_only_on_request() -> None:
    """A summary does not grow with the number of models."""
    assert summarize([_record()] * 50, REQUEST).records == ()
    assert summarize([_record()] * 50, REQUEST, keeps_records=True).records == (_record(),) * 50
    assert len(summarize([_record()] * 50, REQUEST).largest) == LARGEST


@THOROUGH
def test_memory_does_not_grow_with_the_number_of_models() -> None:
    """Records are counted as they arrive."""

    def peak(count: int) -> int:
        tracemalloc.start()
        summarize((_record(path=f"models/{number}.h5") for number in range(count)), REQUEST)
        result = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return result

    peak(10)  # what is allocated once
    assert peak(2_000) < peak(100) + 50_000


def _with_names(count: int) -> Iterable[ModelRecord]:
    """Yield models that each have their own policy, dtype and reason."""
    for number in range(count):
        outcome = ReleaseOutcome(
            release=CURRENT[1],
            loading=Outcome.UNKNOWN,
            cause=Obstacle.CLASS,
            reason=f"reason {number}",
        )
        yield _record(
            layers=1,
            policies={f"int4/{number}_from_float32": 1},
            stored={f"dtype{number}": 8},
            outcomes=(outcome,),
        )


def test_names_above_the_limit_are_counted_together() -> None:
    """Files can contain any names, and each model still counts."""
    summary = summarize(_with_names(DISTINCT + 5), REQUEST)
    assert len(summary.policies) == len(summary.stored) == DISTINCT + 1
    assert (summary.policies[0].policy, summary.policies[0].models) == (OTHER, 5)
    assert summary.stored[OTHER] == 40
    reasons = summary.releases[1].reasons
    assert len(reasons) == DISTINCT + 1
    assert (reasons[0].reason, reasons[0].cause, reasons[0].models) == (OTHER, None, 5)
    assert sum(item.models for item in reasons) == summary.models


def test_models_that_load_nowhere_are_not_applicable() -> None:
    """
    Models without verdicts count as not applicable: a separate keras_metadata.pb, and a
    TensorFlow.js model.
    """
    (model,) = inspected("tfjs4.22/global_mixed_float16/model.json").inspection.models
    summary = summarize([model_record(model, REQUEST)], REQUEST)
    assert [release.not_applicable for release in summary.releases] == [1, 1]
