"""What generations spell differently and mean the same, and what only looks like it."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policytool.comparison import layers, normalization
from policytool.support.text.jsontext import ABSENT
from tests.helpers.cases import for_each
from tests.helpers.paths import ROOT
from tests.helpers.small_models import instance, instance3

if TYPE_CHECKING:
    from policytool.comparison.result import ValueChange

WRAPPED: Final[dict[str, Any]] = instance3("Zeros", "keras.initializers")

SAME: Final[dict[str, tuple[dict[str, Any], dict[str, Any]]]] = {
    "batch_input_shape": ({"batch_input_shape": [None, 6]}, {"batch_shape": [None, 6]}),
    "learning rates": ({"lr": 0.5}, {"learning_rate": 0.5}),
    "a wrapper": (
        {"bias_initializer": {"class_name": "Zeros", "config": {}}},
        {"bias_initializer": WRAPPED},
    ),
    "a shared object": (
        {"bias_initializer": {"class_name": "Zeros", "config": {}, "shared_object_id": 3}},
        {"bias_initializer": WRAPPED},
    ),
    "a bare name": ({"bias_initializer": "Zeros"}, {"bias_initializer": WRAPPED}),
    "unsaid inside": (
        {"k": {"class_name": "GlorotUniform", "config": {"seed": None}}},
        {"k": {"class_name": "GlorotUniform", "config": {}}},
    ),
    "a function": (
        {
            "activation": {
                "module": "builtins",
                "class_name": "function",
                "config": "relu",
                "registered_name": "function",
            }
        },
        {"activation": "relu"},
    ),
    "an initialiser's dtype": (
        {"k": {"class_name": "Zeros", "config": {"dtype": "float32"}}},
        {"k": WRAPPED},
    ),
    "a scaling": (
        {
            "k": instance(
                "VarianceScaling", scale=1.0, mode="fan_avg", distribution="uniform", seed=None
            )
        },
        {"k": {"class_name": "GlorotUniform", "config": {"seed": None}}},
    ),
    "a renamed class": (
        {"k": {"class_name": "OrthogonalInitializer", "config": {"gain": 1.0}}},
        {"k": {"class_name": "Orthogonal", "config": {"gain": 1.0}}},
    ),
    "a tuple": ({"strides": {"class_name": "__tuple__", "items": [1, 1]}}, {"strides": [1, 1]}),
    "a shape": ({"shape": {"class_name": "TensorShape", "items": [None, 3]}}, {"shape": [None, 3]}),
    "one axis": ({"axis": [3]}, {"axis": 3}),
    "a policy inside": (
        {"output": {"class_name": "Policy", "config": {"name": "mixed_float16"}}},
        {"output": "mixed_float16"},
    ),
    "float32": ({"learning_rate": 0.001}, {"learning_rate": 0.0010000000474974513}),
    "an integer": ({"rate": 1}, {"rate": 1.0}),
    "null": ({"bias_regularizer": None}, {}),
    "a default": ({"ragged": False, "sparse": False}, {}),
    "a momentum": ({"renorm_momentum": 0.99}, {}),
    "derived": ({"build_input_shape": [None, 4]}, {}),
}
OTHER: Final[dict[str, tuple[dict[str, Any], dict[str, Any]]]] = {
    "a value": ({"units": 3}, {"units": 4}),
    "a boolean is no number": ({"rate": True}, {"rate": 1}),
    "a package": ({"k": {"class_name": "mine>Zeros", "config": {}}}, {"k": WRAPPED}),
    "a module": ({"k": {**WRAPPED, "module": "mine.initializers"}}, {"k": WRAPPED}),
    "two packages": (
        {"k": {"class_name": "mine>Zeros", "config": {}}},
        {"k": {"class_name": "yours>Zeros", "config": {}}},
    ),
    "a config": (
        {"k": {"class_name": "Constant", "config": {"value": 1.0}}},
        {"k": {"class_name": "Constant", "config": {"value": 2.0}}},
    ),
    "a loss scale": (
        {"k": {"class_name": "Policy", "config": {"name": "mixed_float16", "loss_scale": None}}},
        {"k": {"class_name": "Policy", "config": {"name": "mixed_float16"}}},
    ),
    "not the default": ({"ragged": True}, {}),
    "another number": ({"learning_rate": 0.001}, {"learning_rate": 0.0010001}),
    "two axes": ({"axis": [1, 2]}, {"axis": 1}),
    "an unknown key": ({"mystery": 0}, {}),
    "a scaling of its own": (
        {"k": instance("VarianceScaling", scale=3.0, mode="fan_avg", distribution="uniform")},
        {"k": {"class_name": "GlorotUniform", "config": {}}},
    ),
    "NaN and a number": ({"rate": float("nan")}, {"rate": 1.0}),
}


def changes(a: dict[str, Any], b: dict[str, Any]) -> list[ValueChange]:
    """Return the changes between two configs of a Dense layer."""
    return list(layers.configs(a, b, ("Dense", "Dense")))


@for_each("case", SAME)
def test_equivalent_configs_differ_only_in_the_format(case: str) -> None:
    """The differences are reported as differences of the format, in both directions."""
    a, b = SAME[case]
    for one, other in ((a, b), (b, a)):
        result = changes(one, other)
        assert all(change.is_format_only for change in result)
        assert result or one == other


@pytest.mark.parametrize("case", OTHER)
def test_similar_configs_with_other_meanings_differ(case: str) -> None:
    """The difference is reported in both directions."""
    a, b = OTHER[case]
    for one, other in ((a, b), (b, a)):
        assert [change for change in changes(one, other) if not change.is_format_only]


def test_layers_in_a_config_are_compared_as_layers() -> None:
    """A wrapper's config does not repeat what its layer says."""
    inner = {"class_name": "Dense", "config": {"name": "inner", "trainable": True, "units": 3}}
    other = {"class_name": "Dense", "config": {"name": "inner", "trainable": True, "units": 4}}
    assert not changes({"layer": inner, "merge_mode": "sum"}, {"layer": other, "merge_mode": "sum"})
    assert not changes({"activation": inner}, {"activation": other})


def test_a_layer_in_a_list_of_other_things_is_left_out_too() -> None:
    """A list keeps what is no layer."""
    inner = {"class_name": "Dense", "config": {"name": "inner", "trainable": True}}
    assert [change.key for change in changes({"parts": [inner, 1]}, {"parts": [inner, 2]})] == [
        "parts"
    ]


def test_batch_input_shape_of_an_input_layer_is_its_shape() -> None:
    """On another layer, ``batch_input_shape`` replaces an input layer of the other file."""
    assert all(
        change.is_format_only
        for change in layers.configs({"batch_input_shape": [None, 6]}, {}, ("Dense", "Dense"))
    )
    assert not all(
        change.is_format_only
        for change in layers.configs(
            {"batch_input_shape": [None, 6]}, {}, ("InputLayer", "InputLayer")
        )
    )


def test_a_key_of_one_class_is_not_renamed_in_others() -> None:
    """``alpha`` is LeakyReLU's ``negative_slope``, and ELU's ``alpha``."""
    assert not [
        change
        for change in layers.configs(
            {"alpha": 0.3}, {"negative_slope": 0.3}, ("LeakyReLU", "LeakyReLU")
        )
        if not change.is_format_only
    ]
    assert [
        change
        for change in layers.configs({"alpha": 0.3}, {"negative_slope": 0.3}, ("ELU", "ELU"))
        if not change.is_format_only
    ]


def test_key_of_only_one_model_is_absent_and_not_null() -> None:
    """JSON reports leave the absent value out."""
    (change,) = changes({"units": 3}, {})
    assert (change.a, change.b) == (3, ABSENT)


JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["class_name", "config", "items", "module", "axis", "name", "k"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(value=JSON)
def test_any_value_equals_itself(value: Any) -> None:
    """Any value of an untrusted config has a unique normal form."""
    assert normalization.is_same_value(
        normalization.normalized_value(value), normalization.normalized_value(copy.deepcopy(value))
    )


@given(a=JSON, b=JSON)
def test_equality_is_symmetric(a: Any, b: Any) -> None:
    """The order of two values has no effect."""
    assert normalization.is_same_value(
        normalization.normalized_value(a), normalization.normalized_value(b)
    ) == normalization.is_same_value(
        normalization.normalized_value(b), normalization.normalized_value(a)
    )


def test_every_rule_is_on_the_page() -> None:
    """docs/how-to/diff.md lists what is normalised, in the same words."""
    page = (ROOT / "docs/how-to/diff.md").read_text(encoding="utf-8")
    assert not [name for name, words in normalization.RULES if f"| {name} | {words} |" not in page]
