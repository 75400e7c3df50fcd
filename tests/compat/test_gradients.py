"""
Gradients under loss scales, of small live models of both libraries and of files that record a loss
scale.
"""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

from policytool.commands.destinations import Destination
from policytool.commands.migrate import Migration
from policytool.commands.migrate_all import migrate_all
from policytool.formats import discovery, format_detection
from policytool.migration.planning.options import Options
from policytool.model import reading
from policytool.numerics import check_sides as recorded
from policytool.numerics.check_results import gradients
from policytool.numerics.verdicts import loss_scales
from policytool.numerics.verdicts.loss_scales import ScaleNeed
from tests.compat.asking import run_script
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Callable

    from policytool.numerics.check_results.gradients import Gradients

pytestmark = pytest.mark.compat

CHILD: Final = Path(__file__).with_name("backward.py")
FAMILIES: Final = ("keras2", "keras3")
Job = dict[str, Any]


def wanted(
    loss: object = "sparse_categorical_crossentropy",
    recorded: object = None,
    weights: object = None,
) -> Job:
    """Return what ``gradients`` is asked for."""
    return {"loss": loss, "loss_weights": weights, "recorded": recorded, "seed": 5}


def fixed(value: float) -> Job:
    """Return a fixed loss scale as files record it."""
    return {"kind": "fixed", "value": value}


def dynamic(initial: float) -> Job:
    """Return a dynamic loss scale as files record it."""
    return {"kind": "dynamic", "initial": initial, "growth_steps": 2000, "multiplier": 2.0}


AWKWARD: Final = [
    0.0,
    -0.0,
    1e-3,
    -1e-3,
    1e-9,
    -1e-9,
    2.0**-24,
    2.0**-25,
    3e-6,
    -3e-6,
    6.2e-5,
    1.0,
    70000.0,
    math.inf,
    math.nan,
    -math.inf,
    5.0,
    7.0,
]
MET: Final = [
    0.0,
    1e-9,
    1e-3,
    -2e-3,
    0.0,
    -1e-9,
    2.0**-24,
    2.0**-25,
    3e-6,
    -3e-6,
    6.2e-5,
    1.0,
    70000.0,
    1.0,
    2.0,
    math.nan,
    math.nan,
    -math.inf,
]
CROSSENTROPY: Final = {
    "class_name": "CategoricalCrossentropy",
    "config": {"reduction": "sum_over_batch_size", "name": "x", "label_smoothing": 0.1},
}

JOBS: Final[dict[str, Job]] = {
    "awkward": {"reference": AWKWARD, "scaled": [4 * value for value in MET], "scale": 4.0},
    "every loss": {"spelled": []},
    "short names": {
        "spelled": [
            "mse",
            "MAE",
            "mape",
            "msle",
            "bce",
            "kld",
            "logcosh",
            {"class_name": "function", "config": "hinge"},
        ]
    },
    "float32": {"model": "dropping", "policy": "float32", "wanted": wanted(recorded=fixed(128.0))},
    "bfloat16": {
        "model": "dropping",
        "policy": "mixed_bfloat16",
        "wanted": wanted(recorded=fixed(128.0)),
    },
    "plain": {
        "model": "dropping",
        "policy": "mixed_float16",
        "wanted": wanted(recorded=fixed(128.0)),
    },
    "tiny": {
        "model": "dense",
        "policy": "mixed_float16",
        "wanted": wanted(CROSSENTROPY, dynamic(2.0**15), [1e-6]),
    },
    "large": {
        "model": "dense",
        "policy": "mixed_float16",
        "wanted": wanted(recorded=fixed(2.0**24)),
    },
    "settling": {
        "model": "dense",
        "policy": "mixed_float16",
        "wanted": wanted(recorded=dynamic(2.0**24)),
        "train": 24,
    },
    "two": {
        "model": "two",
        "policy": "mixed_float16",
        "wanted": wanted(
            {"a": "mse", "b": {"class_name": "BinaryCrossentropy", "config": {}}},
            weights={"a": 0.5, "b": 2.0},
        ),
    },
    "subclassed": {
        "model": "subclassed",
        "policy": "mixed_float16",
        "wanted": wanted({"score": "mae"}),
    },
    "custom": {
        "model": "dense",
        "policy": "mixed_float16",
        "wanted": wanted({"class_name": "function", "config": "theirs"}),
    },
    "code": {
        "model": "dense",
        "policy": "mixed_float16",
        "wanted": wanted(
            {"class_name": "Huber", "config": {"delta": {"class_name": "__lambda__"}}}
        ),
    },
    "unfit": {
        "model": "two",
        "policy": "mixed_float16",
        "wanted": wanted(["mse", {"class_name": "CategoricalCrossentropy", "config": {"axis": 7}}]),
    },
    "frozen": {
        "model": "frozen",
        "policy": "mixed_float16",
        "wanted": wanted(recorded=fixed(128.0)),
    },
    "hue": {"model": "hue", "policy": "mixed_float16", "wanted": wanted(None)},
    "huge": {"model": "huge", "policy": "mixed_float16", "wanted": wanted(None, fixed(128.0))},
}


@pytest.fixture(scope="module")
def asked(
    compat_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], dict[str, Any]]:
    """Return a function that gives a library's answers to all jobs, asking it the first time."""

    @cache
    def answers(family: str) -> dict[str, Any]:
        return dict(
            zip(
                JOBS,
                ask(compat_python, family, list(JOBS.values()), tmp_path_factory.mktemp(family)),
                strict=True,
            )
        )

    return answers


def ask(python: Path, family: str, jobs: list[Job], scratch: Path) -> list[Any]:
    """Return what a library makes of jobs."""
    listed, results = scratch / "jobs.json", scratch / "results.json"
    listed.write_text(json.dumps(jobs), encoding="utf-8")
    run_script(python, CHILD, family, listed, results)
    result: list[Any] = json.loads(results.read_text(encoding="utf-8"))
    return result


@pytest.fixture(params=FAMILIES)
def answers(
    request: pytest.FixtureRequest, asked: Callable[[str], dict[str, Any]]
) -> dict[str, Any]:
    """Return the answers of each library in turn."""
    return asked(request.param)


def measured(answers: dict[str, Any], name: str) -> Gradients:
    """Return what was measured in a job."""
    assert "result" in answers[name], answers[name]
    return gradients.gradients_from_json(answers[name]["result"])


def test_reductions_are_numpys(answers: dict[str, Any]) -> None:
    """
    Zeros of both signs, subnormal numbers of float16, NaN and infinities on either side are counted
    as NumPy counts them.
    """
    actual = dict(zip(answers["awkward"]["fields"], answers["awkward"]["values"], strict=True))
    reference = np.array(AWKWARD, dtype="float32")
    with np.errstate(over="ignore"):
        scaled = (4 * np.array(MET)).astype("float16").astype("float32")
    given, defined = scaled / 4, np.isfinite(reference)
    both, lost = defined & np.isfinite(scaled), defined & (reference != 0) & (given == 0)
    expected = {
        "elements": reference.size,
        "undefined": (~defined).sum(),
        "nonzero": (defined & (reference != 0)).sum(),
        "underflow": lost.sum(),
        "overflow": (defined & ~np.isfinite(scaled)).sum(),
        "subnormal": (defined & (scaled != 0) & (np.abs(scaled) < np.finfo("float16").tiny)).sum(),
        "squared_error": ((reference[both].astype("float64") - given[both]) ** 2).sum(),
        "squared_reference": (reference[both].astype("float64") ** 2).sum(),
        "squared_lost": (reference[lost].astype("float64") ** 2).sum(),
        "largest": np.abs(scaled[np.isfinite(scaled)]).max(),
        "largest_reference": np.abs(reference[defined]).max(),
    }
    assert actual == pytest.approx(
        {name: float(value) for name, value in expected.items()}, rel=1e-6
    )


@pytest.mark.parametrize("name", [name for name, job in JOBS.items() if "model" in job])
def test_variables_are_unchanged_and_each_model_is_traced_once(
    answers: dict[str, Any], name: str
) -> None:
    """
    Weights, moving statistics and states are unchanged, and the number of scales has no effect on
    the traces.
    """
    assert answers[name]["kept"]
    several = {
        "two": 4,
        "subclassed": 4,
        "unfit": 5,
    }
    # Keras 2 makes a metric for each of several losses as it is traced: tf.function traces twice.
    assert answers[name]["traces"] <= several.get(name, 2)


def test_float32_is_the_reference_exactly(answers: dict[str, Any]) -> None:
    """
    The same numbers under every power of two, with a Dropout in the model; nothing is lost, and no
    scale is needed.
    """
    result = measured(answers, "float32")
    assert result.quiet
    assert not result.random
    for trial in result.trials:
        assert trial.total.squared_error == 0
        assert trial.total.underflow == trial.total.overflow == trial.total.subnormal == 0
        assert trial.loss == result.reference_loss
    decision = loss_scales.loss_scale_decision(result)
    assert decision.need is ScaleNeed.NONE
    assert not decision.matters
    assert decision.suggested is None


def test_measured_gradients_in_bfloat16_need_no_loss_scale(answers: dict[str, Any]) -> None:
    """A loss scale does not reduce the rounding errors of bfloat16."""
    result = measured(answers, "bfloat16")
    first, second = result.trials[0].total, result.trials[-1].total
    assert 2.0**-10 < first.relative_error < 0.05
    assert first.underflow == second.underflow
    assert loss_scales.loss_scale_decision(result).need is ScaleNeed.NONE


def test_small_gradients_underflow_without_a_scale_and_not_with_the_usual_one(
    answers: dict[str, Any],
) -> None:
    """
    A loss weight of 1e-6 brings gradients below float16; dynamic scaling from 2**15 brings them
    back at once.
    """
    result = measured(answers, "tiny")
    none, usual = result.at(1.0), result.at(2.0**15)
    assert none is not None
    assert usual is not None
    assert none.total.underflow_share > 0.2
    assert none.total.subnormal_share > 0.2
    assert usual.total.underflow_share < 0.01
    assert usual.total.overflow == 0
    assert result.dynamic.scale == 2.0**15
    decision = loss_scales.loss_scale_decision(result)
    assert decision.matters
    assert decision.need is ScaleNeed.SCALE
    assert decision.suggested == 2.0**15
    assert decision.losing
    assert "dense" in decision.losing[0]
    assert result.outputs[0].weight == 1e-6


def test_a_scale_that_is_too_high_overflows(answers: dict[str, Any]) -> None:
    """2**24 leaves hardly a finite gradient, and a search finds the highest that does."""
    result = measured(answers, "large")
    large = result.at(2.0**24)
    assert large is not None
    assert large.total.overflow_share > 0.5
    assert result.workable is not None
    highest, above = (result.at(scale * result.workable[1]) for scale in (1.0, 2.0))
    assert highest is not None
    assert above is not None
    assert highest.total.overflow == 0
    assert above.total.overflow > 0
    assert not loss_scales.loss_scale_decision(result).matters


def test_a_dynamic_scale_settles_where_the_librarys_own_does(answers: dict[str, Any]) -> None:
    """Training with a LossScaleOptimizer comes to the same scale."""
    result = measured(answers, "settling")
    assert result.dynamic.skipped > 2
    assert result.dynamic.scale == answers["settling"]["trained"]


def test_each_output_has_its_loss_and_targets(answers: dict[str, Any]) -> None:
    """
    Outputs are named, the gradient of an embedding is dense, and layers with dropout are reported.
    """
    result = measured(answers, "two")
    assert [
        (output.output, output.source, output.targets, output.weight) for output in result.outputs
    ] == [
        ("a", "recorded", "normal", 0.5),
        ("b", "recorded", "binary", 2.0),
    ]
    embedding = next(variable for variable in result.variables if variable.name == "embeddings")
    assert embedding.flow == "float16"
    assert embedding.dtype == "float32"
    assert all("lstm" in path for path in result.quiet)
    assert not result.random


def test_outputs_of_a_subclassed_model_are_named_by_keys(answers: dict[str, Any]) -> None:
    """An output without a loss has none, and variables without an effect are reported."""
    result = measured(answers, "subclassed")
    assert [(output.output, output.loss, output.source) for output in result.outputs] == [
        ("hidden", None, "none"),
        ("score", "mean_absolute_error", "recorded"),
    ]
    assert {path.rpartition("/")[2] for path in result.unconnected} == {"kernel", "bias"}
    assert {variable.layer.rpartition("/")[2] for variable in result.variables} == {
        "first",
        "second",
    }


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("custom", "has no loss theirs"),
        ("code", "values other than numbers"),
        ("unfit", "the recorded loss cannot be computed"),
    ],
)
def test_mean_squared_error_replaces_an_unavailable_loss(
    answers: dict[str, Any], name: str, told: str
) -> None:
    """
    The reasons are a missing loss, a loss whose config contains code, and a loss that does not
    accept the outputs.
    """
    output = measured(answers, name).outputs[-1]
    assert output.source == "substitute"
    assert output.loss == "MeanSquaredError"
    assert output.why is not None
    assert told in output.why


def test_every_loss_of_the_library_has_suitable_targets(answers: dict[str, Any]) -> None:
    """
    Each loss is built from its config and is finite on class probabilities. Only CTC needs other
    outputs.
    """
    result = answers["every loss"]["losses"]
    assert {"MeanSquaredError", "SparseCategoricalCrossentropy", "KLDivergence", "Poisson"} <= set(
        result
    )
    assert [
        name
        for name, (_, value) in result.items()
        if not isinstance(value, float) or not math.isfinite(value)
    ] in ([], ["CTC"])
    kinds = {kind for kind, _ in result.values()}
    assert kinds == {"classes", "one-hot", "distribution", "binary", "counts", "positive", "normal"}
    assert all(math.isfinite(value) for _, value in answers["short names"]["losses"].values())
    assert {"mean_squared_error", "binary_crossentropy", "log_cosh", "hinge"} <= set(
        answers["short names"]["losses"]
    )


def test_a_frozen_model_has_nothing_to_scale(answers: dict[str, Any]) -> None:
    """The decision reports this, and nothing runs."""
    result = measured(answers, "frozen")
    assert not result.variables
    assert loss_scales.loss_scale_decision(result).need is ScaleNeed.NOTHING_TO_TRAIN


def test_missing_gradient_is_an_error_with_the_op(answers: dict[str, Any]) -> None:
    """The code of the error is stable."""
    code, message = answers["hue"]["refused"]
    assert code == "no-gradients"
    assert "AdjustHue" in message


def test_infinite_loss_stops_the_search_for_a_scale(answers: dict[str, Any]) -> None:
    result = measured(answers, "huge")
    decision = loss_scales.loss_scale_decision(result)
    assert decision.need is ScaleNeed.NOT_FINITE
    assert "loss" in decision.sentences[0]
    assert result.workable is None


REAL: Final = (
    ("keras2", "tf2.3/exp_mf16_fixed128.h5", 128.0),
    ("keras2", "tf2.3/lso_exp_customdyn.h5", None),
    ("keras2", "tf2.4/exp_mf16_fixed128.h5", 128.0),
    ("keras3", "keras3.15/lso_custom_1024_50.keras", None),
    ("keras3", "keras3.15/loss_scale_factor128.keras", 128.0),
)


@pytest.mark.parametrize("family", FAMILIES)
def test_files_that_record_a_loss_scale(compat_python: Path, tmp_path: Path, family: str) -> None:
    """Each is measured under its own, with its own loss, against itself in float32."""
    chosen = [(name, value) for one, name, value in REAL if one == family]
    jobs = []
    for number, (name, _) in enumerate(chosen):
        files = []
        for options in (Options(to="float32"), Options(to="mixed_float16")):
            target = tmp_path / f"{number}-{options.to}{Path(name).suffix}"
            (result,) = migrate_all(
                list(discovery.inputs([str(FIXTURES / name)])), options, Destination(output=target)
            )
            assert isinstance(result, Migration), result
            files.append(str(target if target.exists() else FIXTURES / name))
        asked = recorded.recorded_training(
            reading.load_model(format_detection.document(FIXTURES / name, name))
        )
        jobs.append({"files": files, "wanted": {**asked, "seed": 5}})
    for (name, value), answer in zip(
        chosen, ask(compat_python, family, jobs, tmp_path), strict=True
    ):
        assert answer["kept"], name
        outcome = measured({name: answer}, name)
        assert [output.source for output in outcome.outputs] == ["recorded"], name
        decision = loss_scales.loss_scale_decision(outcome)
        scale = outcome.recorded_scale
        assert value is None or scale == value, name
        trial = outcome.at(scale)
        assert trial is not None, name
        assert trial.total.overflow == 0, name
        assert decision.sentences[0].startswith("dropping the recorded loss scale"), decision
