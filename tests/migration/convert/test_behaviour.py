"""Conversions of layers that were measured."""

from __future__ import annotations

import pytest

from policytool.releases import behaviour
from policytool.releases.behaviour import Proof

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
    ("given", "expected"),
    [
        (config(), Proof.PROVEN),
        (config(activation="gelu"), Proof.PROVEN),
        (config(activation="odd"), Proof.UNTESTED),
        (config(activation="relu"), Proof.UNTESTED),
        (config(use_bias=False), Proof.UNTESTED),
    ],
)
def test_a_layer_is_proven_where_each_of_its_arguments_was_measured(
    given: dict[str, object], expected: Proof
) -> None:
    """
    A layer is proven if each of its arguments was measured: any number counts for another number,
    but strings and booleans must be equal.
    """
    assert behaviour.proof("Dense", given, to_keras3=True) is expected


def test_of_a_class_that_was_not_measured_nothing_is_known() -> None:
    """A class that was not measured is untested, and no objection to it is returned."""
    assert behaviour.proof("Dense", config(), to_keras3=False) is Proof.UNTESTED
    assert behaviour.objection("Dense", config(), to_keras3=False) is None


def test_arguments_that_compute_something_else_are_objected_to() -> None:
    """An objection is returned only for arguments that were measured to change the results."""
    assert "900 ulp" in str(behaviour.objection("Dense", config(activation="odd"), to_keras3=True))
    assert behaviour.objection("Dense", config(activation="gelu"), to_keras3=True) is None


def test_a_class_whose_default_differs_is_objected_to_whatever_its_arguments() -> None:
    """
    If the defaults of a class give other results, an objection is returned for any arguments; its
    measured case has only the name of the class.
    """
    assert "becomes (8,)" in str(behaviour.objection("Crop", {"height": 3}, to_keras3=True))


def test_numbers_are_told_by_their_kind() -> None:
    """Numbers and lists of numbers are described by their kind, and objects by their class."""
    words = [
        behaviour.kind_of_argument(value)
        for value in (1, [1, 2.5], [None, [1]], True, {"class_name": "L2", "config": {}}, ["a", 1])
    ]
    assert words == ["number", "numbers", "numbers", True, "@L2", ["a", "number"]]
