"""The report on loss scales, and the search for a scale."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from policytool.formats import format_detection
from policytool.model import reading
from policytool.numerics import check_sides as recorded
from policytool.numerics.check_results import gradients
from policytool.numerics.check_results.gradients import GradientReductions
from policytool.numerics.verdicts import loss_scales
from policytool.numerics.verdicts.loss_scales import ScaleNeed
from policytool.releases.policy import Dynamic, Fixed
from policytool.runtime.gradients import backward
from policytool.runtime.gradients.training_step import FIELDS
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Callable

    from policytool.numerics.check_results.gradients import Gradients
    from policytool.numerics.verdicts.loss_scales import LossScaleDecision

ELEMENTS: Final = 1000
EXPONENTS: Final = st.integers(backward.LOWEST, backward.HIGHEST)


def row(
    underflow: float = 0, overflow: float = 0, error: float = 0.0, undefined: float = 0
) -> list[float]:
    """Return the reductions of one variable in the child's format; ``error`` is relative."""
    values = {
        "elements": ELEMENTS,
        "undefined": undefined,
        "nonzero": ELEMENTS,
        "underflow": underflow,
        "overflow": overflow,
        "squared_error": error**2,
        "squared_reference": 1.0,
        "largest": 2.0,
        "largest_reference": 1.0,
    }
    return [float(values.get(name, 0.0)) for name in FIELDS]


def answer(
    trials: dict[float, list[list[float]]], recorded: Any = None, **more: Any
) -> dict[str, Any]:
    """Return a child's answer with these rows under each scale, one row per variable."""
    count = len(next(iter(trials.values()), []))
    variables = [
        {
            "layer": f"net/layer_{place}",
            "variable": "kernel",
            "shape": [10, 100],
            "dtype": "float32",
            "flow": "float16",
        }
        for place in range(count)
    ]
    output = {
        "output": "out",
        "loss": "mse",
        "source": "recorded",
        "targets": "normal",
        "weight": None,
        "why": None,
    }
    actual = {
        "fields": list(FIELDS),
        "recorded": recorded,
        "outputs": [output],
        "reference_loss": 0.5,
        "variables": variables,
        "trials": [
            {"scale": scale, "loss": 0.5, "values": rows} for scale, rows in sorted(trials.items())
        ],
        "dynamic": {
            "initial": 2.0**15,
            "multiplier": 2.0,
            "floor": 1.0,
            "scale": 2.0**15,
            "skipped": 0,
        },
        "search": {"lowest": 1.0, "highest": 2.0**15},
        "quiet": [],
        "own": [],
        "random": [],
        "unconnected": [],
    }
    return {**actual, **more}


def decided(
    trials: dict[float, list[list[float]]], recorded: Any = None, **more: Any
) -> LossScaleDecision:
    """Return the decision on an answer."""
    return loss_scales.loss_scale_decision(
        gradients.gradients_from_json(answer(trials, recorded, **more))
    )


FIXED: Final = {"kind": "fixed", "value": 128.0}
DYNAMIC: Final = {"kind": "dynamic", "initial": 2.0**15, "growth_steps": 2000, "multiplier": 2.0}


def test_the_answer_becomes_values() -> None:
    """Counts are integers, shares are relative to them, and totals cover all variables."""
    result = gradients.gradients_from_json(
        answer(
            {1.0: [row(100, 0, 0.5), row(0, 50)], 128.0: [row(), row()], 2.0**15: [row(), row()]},
            FIXED,
        )
    )
    none = result.at(1.0)
    assert none is not None
    assert result.recorded == Fixed(value=128.0)
    assert result.recorded_scale == 128.0
    assert result.at(3.0) is None
    assert isinstance(none.variables[0].underflow, int)
    assert none.total.elements == 2 * ELEMENTS
    assert none.total.underflow_share == 0.05
    assert none.total.overflow_share == 0.025
    assert none.total.subnormal_share == 0
    assert none.total.relative_error == math.sqrt(0.25 / 2)
    assert none.total.largest == 2.0
    assert result.variables[1].path == "net/layer_1/kernel"
    assert result.workable == (1.0, 2.0**15)


def test_a_dynamic_scale_is_recorded_as_one() -> None:
    """A dynamic scale is reported as dynamic with the scale at which it settles."""
    result = gradients.gradients_from_json(answer({1.0: [row()]}, DYNAMIC))
    assert result.recorded == Dynamic()
    assert result.recorded_scale == 2.0**15


def test_nothing_has_no_shares() -> None:
    """A variable without elements has no shares; the distance from a zero reference is infinite."""
    nothing = GradientReductions()
    assert (
        nothing.underflow_share
        == nothing.overflow_share
        == nothing.subnormal_share
        == nothing.relative_error
        == 0
    )
    assert structs.replace(nothing, squared_error=1.0).relative_error == math.inf


def test_dropping_a_scale_that_keeps_gradients_matters() -> None:
    """
    Dropping a scale that preserves gradients is a finding with the share without and with the
    scale, and with the most affected variable.
    """
    result = decided(
        {1.0: [row(400, error=0.6), row(20)], 128.0: [row(1), row()], 2.0**15: [row(), row()]},
        FIXED,
    )
    assert result.matters
    assert result.need is ScaleNeed.SCALE
    assert result.losing == ("net/layer_0/kernel", "net/layer_1/kernel")
    assert result.suggested == 2.0**12
    assert result.sentences[0] == (
        "dropping the recorded loss scale (fixed 128) matters: 21.0% of the gradient elements "
        "underflow without it, less than 0.1% with it; most affected: net/layer_0/kernel 40.0% "
        "(error 0.6 instead of 0), net/layer_1/kernel 2.0% (error 0 instead of 0)"
    )
    assert result.sentences[1] == (
        "21.0% of the gradient elements underflow without a loss scale, and none underflow with "
        "a loss scale of 32768: use 4096; any value from 1 to 32768 works for these inputs"
    )


def test_dropping_a_scale_that_keeps_nothing_does_not() -> None:
    """Dropping a scale is no finding if the same gradients are zero under each scale."""
    result = decided({1.0: [row(30)], 128.0: [row(30)], 2.0**15: [row(30)]}, FIXED)
    assert not result.matters
    assert result.need is ScaleNeed.NONE
    assert result.suggested is None
    assert result.sentences[0] == (
        "dropping the recorded loss scale (fixed 128) does not matter: 3.0% of the gradient "
        "elements underflow without it, 3.0% with it"
    )
    assert result.sentences[1].startswith(
        "no loss scale is needed: 3.0% of the gradient elements underflow without one, 3.0% with "
        "32768"
    )


def test_one_variable_is_enough() -> None:
    """A small share of all elements is a finding if it is most of one variable."""
    quiet = [row() for _ in range(199)]
    result = decided({1.0: [row(900), *quiet], 2.0**15: [row(), *quiet]})
    assert result.need is ScaleNeed.SCALE
    assert result.losing == ("net/layer_0/kernel",)
    assert "most affected: net/layer_0/kernel 90.0%" in result.sentences[1]


def test_subnormal_gradients_are_lost_too() -> None:
    """No value is zero, but the gradient has an error of a tenth."""
    result = decided(
        {1.0: [row(error=0.1)], 128.0: [row(error=0.001)], 2.0**15: [row(error=0.001)]}, FIXED
    )
    assert result.matters
    assert result.need is ScaleNeed.SCALE


def test_a_recorded_scale_that_overflows_is_no_loss() -> None:
    """The report also mentions gradients that overflow without it."""
    result = decided({1.0: [row(500)], 128.0: [row(0, 10)], 2.0**15: [row()]}, FIXED)
    assert not result.matters
    assert result.need is ScaleNeed.SCALE
    assert result.sentences[0] == (
        "with the recorded loss scale (fixed 128), 1.0% of the gradient elements overflow, so "
        "dropping it is correct"
    )
    both = decided(
        {0.5: [row()], 1.0: [row(0, 10)], 128.0: [row(0, 10)]},
        FIXED,
        search={"lowest": 2.0**-24, "highest": 0.5},
    )
    assert both.sentences[0].endswith("overflow, and some also overflow without it")
    assert both.need is ScaleNeed.SCALE
    assert both.suggested == 1 / 16
    assert "1.0% of the gradient elements overflow without a loss scale" in both.sentences[1]
    assert "use 1/16; any value from 1/16777216 to 1/2 works" in both.sentences[1]


def test_dynamic_scaling_is_always_reported() -> None:
    """The report has the final scale and the number of skipped steps, if it settles."""
    rule = {"initial": 2.0**15, "multiplier": 2.0, "floor": 1.0, "scale": 2.0**13, "skipped": 2}
    trials = {1.0: [row(500)], 2.0**13: [row(5)], 2.0**15: [row()]}
    assert (
        decided(trials, dynamic=rule).sentences[2]
        == "dynamic scaling from 32768 settles at 8192 after 2 skipped steps, where 0.5% of the "
        "gradient elements underflow"
    )
    once = decided(trials, DYNAMIC, dynamic={**rule, "skipped": 1})
    assert once.matters
    assert once.sentences[2].startswith(
        "dynamic scaling as recorded settles at 8192 after 1 skipped step,"
    )
    never = decided(trials, DYNAMIC, dynamic={**rule, "scale": None})
    assert not never.matters
    assert (
        never.sentences[0]
        == "the recorded loss scale (dynamic) never reaches a value with finite gradients"
    )
    assert never.sentences[2] == (
        "dynamic scaling from 32768 never reaches a scale with finite gradients"
    )


@pytest.mark.parametrize(
    ("trials", "loss", "told"),
    [
        (
            {1.0: [row(undefined=1000)]},
            0.5,
            "100.0% of the gradient elements are not finite in the reference",
        ),
        ({1.0: [row(0, 1000)]}, math.inf, "the candidate's loss is inf (0.5 in the reference)"),
        (
            {1.0: [row(0, 500)]},
            0.5,
            "50.0% of the gradient elements overflow under every loss scale tried",
        ),
    ],
)
def test_values_that_no_scale_makes_finite_are_reported(
    trials: dict[float, list[list[float]]], loss: float, told: str
) -> None:
    """The cases are a reference, a loss and gradients that are not finite."""
    found = answer(trials, FIXED, search={"lowest": None, "highest": None})
    found["trials"][0]["loss"] = loss
    result = loss_scales.loss_scale_decision(gradients.gradients_from_json(found))
    assert result.need is ScaleNeed.NOT_FINITE
    assert not result.matters
    assert result.sentences[0].startswith(told)


def test_a_model_without_trainable_variables() -> None:
    """A model without trainable variables has a one-line report."""
    result = decided({}, FIXED)
    assert result.need is ScaleNeed.NOTHING_TO_TRAIN
    assert result.sentences == ("the model has no trainable variables, so no loss is scaled",)


def test_limits_of_the_measurement_are_reported() -> None:
    """Replaced losses, inactive layers, random ops, and missing gradients are limits."""
    output = {
        "output": "b",
        "loss": "MeanSquaredError",
        "source": "substitute",
        "targets": "normal",
        "weight": None,
        "why": "the file does not record a loss",
    }
    left = {
        "output": "c",
        "loss": None,
        "source": "none",
        "targets": None,
        "weight": None,
        "why": None,
    }
    result = decided(
        {1.0: [row()], 2.0**15: [row()]},
        outputs=[output, left],
        quiet=["net/drop"],
        own=["train_step"],
        random=["RandomUniform"],
        unconnected=["net/aside/bias"],
    )
    assert result.sentences[0] == "the file records no loss scale"
    assert result.sentences[3:] == (
        (
            "MeanSquaredError on synthetic targets replaces the loss of b: the file does "
            "not record a loss"
        ),
        (
            "the model class overrides train_step, but this check uses the default Keras "
            "training step, so training may behave differently"
        ),
        "layers that are random during training ran in inference mode: net/drop",
        (
            "RandomUniform used random numbers, so values and gradients may differ between the "
            "two models"
        ),
        "the loss does not depend on these trainable variables: net/aside/bias",
    )
    assert (
        "recorded loss on synthetic targets: mse (normal)"
        in decided({1.0: [row()], 2.0**15: [row()]}).sentences[3]
    )


def test_scale_that_is_not_a_power_of_two_is_printed_unchanged() -> None:
    """A recorded scale that is not a power of two is printed unchanged."""
    rule = {"initial": 1000.5, "multiplier": 2.0, "floor": 1.0, "scale": 1000.5, "skipped": 0}
    assert (
        decided({1.0: [row()], 1000.5: [row()], 2.0**15: [row()]}, dynamic=rule)
        .sentences[2]
        .startswith("dynamic scaling from 1000.5 settles at 1000.5 ")
    )


@pytest.mark.parametrize(
    ("name", "loss", "scale"),
    [
        ("tf2.3/exp_mf16_fixed128.h5", "mse", FIXED),
        ("tf2.3/exp_mf16_fixed128_uncompiled.h5", None, FIXED),
        ("tf2.3/exp_mf16_default.h5", "mse", DYNAMIC),
        ("tf2.3/exp_mf16_none.h5", "mse", None),
        ("tf2.3/global_mixed_float16.h5", None, None),
        ("tf2.4/exp_mf16_fixed128", "mse", FIXED),
        ("tf_keras2.21/lso_fixed128.keras", "mse", FIXED),
        ("keras3.15/loss_scale_factor128.keras", "mse", FIXED),
    ],
)
def test_training_settings_are_read_from_the_file(
    name: str, loss: str | None, scale: dict[str, Any] | None
) -> None:
    """
    The training settings are read from the file: the loss from its training configuration, and the
    loss scale from its optimizer or the model's policy.
    """
    result = recorded.recorded_training(
        reading.load_model(format_detection.document(FIXTURES / name, name))
    )
    assert result == {"loss": loss, "loss_weights": None, "recorded": scale}


COUNTS: Final = st.integers(0, ELEMENTS)


@st.composite
def measurements(draw: st.DrawFn) -> Gradients:
    """Return a measurement whose recorded scale is in the range that the search found."""
    number = draw(st.integers(1, 4))
    trials = {}
    for scale in (1.0, 128.0, 2.0**15):
        trials[scale] = [row(draw(COUNTS), 0, draw(st.floats(0, 2))) for _ in range(number)]
    return gradients.gradients_from_json(
        answer(trials, draw(st.sampled_from([None, FIXED, DYNAMIC])))
    )


@given(measurements())
def test_a_scale_is_suggested_where_one_is_needed_and_nowhere_else(found: Gradients) -> None:
    """A scale from the range is suggested only if a scale is needed and the file records none."""
    result = loss_scales.loss_scale_decision(found)
    assert (result.suggested is not None) == (result.need is ScaleNeed.SCALE)
    assert found.workable is not None
    assert result.suggested is None or found.workable[0] <= result.suggested <= found.workable[1]
    assert result.matters <= (found.recorded is not None)
    assert all(sentence for sentence in result.sentences)


@given(measurements())
def test_equal_gradients_under_every_scale_need_none(found: Gradients) -> None:
    """This includes gradients that are zero or wrong."""
    same = tuple(
        structs.replace(trial, variables=found.trials[0].variables) for trial in found.trials
    )
    result = loss_scales.loss_scale_decision(structs.replace(found, trials=same))
    assert result.need is ScaleNeed.NONE
    assert not result.matters


def below(limit: int) -> Callable[[float], bool]:
    """Return a function that is finite for scales up to a power of two."""
    return lambda scale: scale <= 2.0**limit


@given(EXPONENTS, st.integers(-2, 24))
def test_a_dynamic_scale_halves_until_gradients_are_finite(limit: int, start: int) -> None:
    """
    A dynamic scale is halved until gradients are finite, with one skipped step each; Keras 3
    continues below 1 and Keras 2 stops there.
    """
    rule = backward.dynamic(
        "keras3",
        {"kind": "dynamic", "initial": 2.0**start, "growth_steps": 2000, "multiplier": 4.0},
    )
    assert rule["multiplier"] == 2.0
    assert backward.settled_scale(below(limit), rule) == (
        2.0 ** min(start, limit),
        max(start - limit, 0),
    )
    old = backward.dynamic(
        "keras2",
        {
            "kind": "dynamic",
            "initial": 2.0 ** max(start, 0),
            "growth_steps": 2000,
            "multiplier": 2.0,
        },
    )
    expected = 2.0 ** min(max(start, 0), limit) if limit >= 0 else None
    assert backward.settled_scale(below(limit), old)[0] == expected


def test_a_scale_that_does_not_move_ends_the_search() -> None:
    """The search ends if the scale does not change, as with a multiplier of 1."""
    rule = backward.dynamic(
        "keras2", {"kind": "dynamic", "initial": 8.0, "growth_steps": 2000, "multiplier": 1.0}
    )
    assert backward.settled_scale(below(0), rule) == (None, 0)
    assert backward.dynamic("keras2", FIXED)["initial"] == 2.0**15


@given(EXPONENTS, EXPONENTS, st.sampled_from([0.0, 0.2]))
def test_range_of_scales_is_the_widest_that_passes(limit: int, enough: int, always: float) -> None:
    """Both ends pass and their neighbours fail, with few trials."""
    tried = set()

    def finite(scale: float) -> bool:
        tried.add(scale)
        return scale <= 2.0**limit

    def lost(scale: float) -> float:
        tried.add(scale)
        return always if scale >= 2.0**enough else always + 0.5

    lowest, highest = backward.range_of_scales(finite, lost)
    start = 0 if limit >= 0 else backward.LOWEST
    assert highest == 2.0**limit
    assert lowest == 2.0 ** (max(start, enough) if enough <= limit else start)
    assert len(tried) <= 14


def test_range_is_empty_if_every_scale_overflows() -> None:
    """There is no range if the gradients overflow even at the lowest scale."""
    assert backward.range_of_scales(lambda _: False, lambda _: 0.0) == (None, None)
