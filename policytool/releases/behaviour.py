"""
Whether a converted layer computes what it did: ``data/layer_behaviour.json``, which
``fixtures/layer_behaviour.py`` has from the libraries themselves.

Each case is a layer with arguments, converted and run in both libraries. What was measured with the
newest of each stands for the others of its library. ``data/layer_releases.json`` has the releases
in which a layer computes other values than in the release before.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from policytool.releases import data, keras_objects
from policytool.releases.releases import KERAS3, family_of

if TYPE_CHECKING:
    from collections.abc import Mapping


ULP: Final = 4
"""What float32 results may differ by, in ulp of the largest."""

EPS: Final = 16
"""What 16-bit results may differ by, in eps of the compute dtype."""

NUMBER: Final = "number"
NUMBERS: Final = "numbers"
LEFT_OUT: Final = frozenset({"name", "dtype", "trainable", "batch_input_shape"})
"""Keys that say nothing of what a layer computes, or are measured as policies."""

_FLOAT32: Final = "float32"

Facts = dict[str, Any]


class Proof(StrEnum):
    """How sure it is that a converted layer computes what it did."""

    PROVEN = "proven"
    """
    Layers of its class and arguments were converted, run in both libraries, and gave the same.
    """

    UNTESTED = "untested"
    """No measurement covers its class with its arguments."""


def direction(*, to_keras3: bool) -> str:
    """Return the name that a direction has in the data."""
    return "keras2 to keras3" if to_keras3 else "keras3 to keras2"


def proof(class_name: str, config: Mapping[str, object], *, to_keras3: bool) -> Proof:
    """
    Return how certain it is that a layer computes the same after it is converted between Keras 2
    and Keras 3.

    :param config: the layer's config in the source
    """
    facts = measurements()[direction(to_keras3=to_keras3)].get(class_name)
    if facts is None or not any(agrees(case) for case in facts["cases"].values()):
        return Proof.UNTESTED
    agreeing_cases = [case.get("arguments", {}) for case in facts["cases"].values() if agrees(case)]
    layer_arguments = arguments(config, facts["default"])
    return (
        Proof.PROVEN
        if all(
            any(
                key in case_arguments and case_arguments[key] == value
                for case_arguments in agreeing_cases
            )
            for key, value in layer_arguments.items()
        )
        else Proof.UNTESTED
    )


def objection(class_name: str, config: Mapping[str, object], *, to_keras3: bool) -> str | None:
    """
    Return why a layer is not converted between Keras 2 and Keras 3 although the target could build
    it; None if no measurement shows a difference.

    :param config: the layer's config in the source
    """
    facts = measurements()[direction(to_keras3=to_keras3)].get(class_name)
    if facts is None:
        return None
    layer_arguments = arguments(config, facts["default"])
    for name, case in facts["cases"].items():
        special = {
            key: value
            for key, value in case.get("arguments", {}).items()
            if value not in (NUMBER, NUMBERS)
        }
        applies = bool(special) and all(
            key in layer_arguments and layer_arguments[key] == value
            for key, value in special.items()
        )
        if (applies or name == class_name) and (difference := _differs(case)) is not None:
            return difference
    return None


def arguments(config: Mapping[str, object], default: Mapping[str, object]) -> Facts:
    """
    Return what a layer's config says otherwise than a default instance's, in the words of the data;
    what is not said is the default.
    """
    return {
        key: word
        for key, value in sorted(config.items())
        if key not in LEFT_OUT and (word := kind_of_argument(value)) != default.get(key)
    }


def kind_of_argument(value: object) -> object:
    """
    Return an argument in the words of the data: numbers and lists of numbers by their kind, objects
    by their class.
    """
    if isinstance(value, bool | str) or value is None:
        return value
    if isinstance(value, int | float):
        return NUMBER
    if isinstance(value, list | tuple):
        kinds = [kind_of_argument(item) for item in value]
        return (
            NUMBERS if kinds and all(item in (NUMBER, NUMBERS, None) for item in kinds) else kinds
        )
    return f"@{name}" if (name := keras_objects.class_of(value)) is not None else "object"


def agrees(case: Facts, bound: int = ULP) -> bool:
    """Return whether a case gave the same in float32, up to a bound in ulp of the largest."""
    error = case.get(_FLOAT32)
    return isinstance(error, int) and error <= bound


def _differs(case: Facts) -> str | None:
    error = case.get(_FLOAT32)
    if isinstance(error, int) and error > ULP:
        return f"outputs differ by {error} ulp (measured)"
    return f"it fails: {case['fails']}" if "fails" in case else None


@cache
def measurements() -> Facts:
    """Return the data."""
    facts: Facts = data.read("layer_behaviour")
    return facts


def measured_releases(family: str) -> tuple[str, ...]:
    """Return the releases of one family that were measured, oldest first."""
    return tuple(name for name in _table()["releases"] if family_of(name) == family)


def changing_releases(
    class_name: str, config: Mapping[str, object], family: str
) -> frozenset[str] | None:
    """
    Return the releases of a family in which a layer fails or computes other values than in the
    release before; None if its class was not measured.

    :param config: the layer's config, which may omit default values
    """
    measured = measurements()[direction(to_keras3=family != KERAS3)]
    facts = measured.get(class_name)
    if facts is None:
        return None
    layer_arguments = arguments(config, facts["default"]).items()
    return frozenset(
        release
        for case in _table()["classes"].get(class_name, {}).values()
        if case["arguments"].items() <= layer_arguments
        for release in case["releases"]
        if family_of(release) == family
    )


def _table() -> dict[str, Any]:
    table: dict[str, Any] = data.read("layer_releases")
    return table
