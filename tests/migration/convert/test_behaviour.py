"""Conversions of layers that were measured."""

from __future__ import annotations

import pytest

from policytool.releases import behaviour

VALUES = {
    "keras2 to keras3": {
        "activations": ["linear", "relu"],
        "classes": {
            "Dense": {"activation": ["any activation"]},
            "Cell": {"activation": ["any activation", "@LeakyReLU"], "use_bias": [True]},
            "Wrapper": {"layer": ["any layer"]},
        },
    },
    "keras3 to keras2": {"activations": [], "classes": {}},
}
FACTS = {
    "keras2 to keras3": {
        "Dense": {
            "default": {"units": "number", "activation": "linear", "use_bias": True},
            "cases": {
                "Dense": {"float32": 0, "mixed_float16": 1},
                "Dense[gelu]": {
                    "arguments": {"activation": "gelu"},
                    "float32": 2,
                    "mixed_float16": 40,
                },
                "Dense[odd]": {"arguments": {"activation": "odd"}, "float32": 900},
            },
        },
        "Crop": {
            "default": {"height": "number"},
            "cases": {"Crop": {"fails": "shape (4,) becomes (8,)"}},
        },
    },
    "keras3 to keras2": {},
}


@pytest.fixture(autouse=True)
def _facts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(behaviour, "measurements", lambda: FACTS)
    monkeypatch.setattr(behaviour, "measured_values", lambda: VALUES)


def config(**more: object) -> dict[str, object]:
    """Return the config of a Dense."""
    return {
        "name": "dense",
        "dtype": "mixed_float16",
        "units": 7,
        "activation": "linear",
        "use_bias": True,
        **more,
    }


@pytest.mark.parametrize(
    ("class_name", "given", "expected"),
    [
        ("Dense", config(), ()),
        ("Dense", config(activation="gelu"), ()),
        ("Dense", config(activation="relu"), ()),
        ("Dense", config(activation="odd"), ("activation=odd",)),
        ("Dense", config(use_bias=False), ("use_bias=False",)),
        ("Dense", config(use_bias=1), ()),
        ("Dense", config(use_bias=0), ("use_bias=False",)),
        ("Dense", config(bias_initializer="ones", bias_regularizer="l2"), ()),
        ("Cell", {"use_bias": True, "activation": "relu"}, ()),
        ("Cell", {"activation": {"class_name": "LeakyReLU", "config": {}}}, ()),
        ("Cell", {"activation": {"class_name": "ELU", "config": {}}}, ("activation=@ELU",)),
        ("Wrapper", {"layer": {"class_name": "Dense", "config": {}}}, ()),
        ("Wrapper", {"layer": [{"class_name": "Dense", "config": {}}] * 2}, ()),
        ("Wrapper", {"layer": 3}, ("layer",)),
        ("Missing", {}, None),
    ],
)
def test_unmeasured_arguments_are_named(
    class_name: str, given: dict[str, object], expected: tuple[str, ...] | None
) -> None:
    """
    An argument was measured if a layer had it, or if it is of a kind of values that was: any number
    counts for another number, but strings and booleans must be equal.
    """
    assert behaviour.unmeasured_arguments(class_name, given, to_keras3=True) == expected


def test_of_a_class_that_was_not_measured_nothing_is_known() -> None:
    assert behaviour.unmeasured_arguments("Dense", config(), to_keras3=False) is None
    assert behaviour.objection("Dense", config(), to_keras3=False) is None


def test_arguments_that_compute_something_else_are_objected_to() -> None:
    """An objection is returned only for arguments that were measured to change the results."""
    assert "900 ulp" in str(behaviour.objection("Dense", config(activation="odd"), to_keras3=True))
    assert behaviour.objection("Dense", config(activation="gelu"), to_keras3=True) is None


def test_class_with_other_default_results_always_gives_an_objection() -> None:
    """Its measured case has only the name of the class."""
    assert "becomes (8,)" in str(behaviour.objection("Crop", {"height": 3}, to_keras3=True))


def test_numbers_are_described_by_kind() -> None:
    words = [
        behaviour.kind_of_argument(value)
        for value in (1, [1, 2.5], [None, [1]], True, {"class_name": "L2", "config": {}}, ["a", 1])
    ]
    assert words == ["number", "numbers", "numbers", True, "@L2", ["a", "number"]]
