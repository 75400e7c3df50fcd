"""
Notes on values that the other library stores or computes in fewer bits;
``tests/compat/test_conversion_cases.py`` measures the libraries.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import h5py
import numpy as np
import pytest

import policytool
from tests.helpers.convertible_models import (
    converted,
    input2,
    input3,
    keras2,
    keras3,
    layer2,
    layer3,
    tensor,
)
from tests.helpers.convertible_models import (
    policy as policy3,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.helpers.convertible_models import Config

ONE = [["x", 0, 0, {}]]


def codes(path: Path, model: Config, **weights: tuple[int, ...]) -> set[str]:
    """Return the codes of the notes on the conversion of a Keras 2 model for Keras 3."""
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = json.dumps(model)
        file.attrs["keras_version"] = "2.15.0"
        file.attrs["backend"] = "tensorflow"
        group = file.create_group("model_weights")
        group.attrs["layer_names"] = ["layer"] if weights else []
        for name, shape in weights.items():
            group[f"layer/layer/{name}:0"] = np.ones(shape, "float32")
        if weights:
            group["layer"].attrs["weight_names"] = [f"layer/{name}:0" for name in weights]
    done = policytool.migrate(path, target="keras3", output=path.with_suffix(".keras"))
    assert not done.plan.refusals
    return {note.code for note in done.plan.notes}


@pytest.mark.parametrize(
    ("policy", "warned"), [("float16", True), ("mixed_float16", False), ("float32", False)]
)
def test_variables_that_keras3_rounds_are_warned_of(
    tmp_path: Path, policy: str, *, warned: bool
) -> None:
    """Keras 2 keeps those of a BatchNormalization in float32 under any 16-bit policy."""
    layer = layer2("BatchNormalization", "layer", ONE, axis=[-1])
    layer["config"]["dtype"] = policy
    names = ("gamma", "beta", "moving_mean", "moving_variance")
    found = codes(
        tmp_path / "model.h5", keras2(input2("x", 4), layer), **dict.fromkeys(names, (4,))
    )
    assert ("weights-rounded" in found) is warned


@pytest.mark.parametrize(
    ("policy", "class_name", "config", "noted"),
    [
        ("float64", "Normalization", {"axis": [-1], "mean": [0.1], "variance": [0.3]}, True),
        ("float32", "Normalization", {"axis": [-1], "mean": [0.1], "variance": [0.3]}, False),
        ("float64", "Activation", {"activation": "hard_sigmoid"}, True),
        ("float64", "Rescaling", {"scale": 0.1, "offset": 0.0}, False),
    ],
)
def test_constants_in_float32_are_noted_under_float64(
    tmp_path: Path, policy: str, class_name: str, config: Config, *, noted: bool
) -> None:
    """
    A note reports layers under float64 whose constants stay in float32 in both libraries, such as
    those of a Rescaling.
    """
    layer = layer2(class_name, "layer", ONE, **config)
    layer["config"]["dtype"] = policy
    found = codes(tmp_path / "model.h5", keras2(input2("x", 1), layer))
    assert ("float32-constant" in found) is noted


@pytest.mark.parametrize(
    ("policy", "slope", "noted"),
    [
        *(("float64", 0.1, True), ("float64", 0.25, False), ("float64", 1e300, True)),
        ("float32", 0.1, False),
    ],
)
def test_numbers_that_keras2_rounds_are_noted_under_float64(
    policy: str, slope: float, *, noted: bool
) -> None:
    """A quarter has no note because float32 represents it exactly."""
    layer = layer3("LeakyReLU", "layer", tensor("x"), negative_slope=slope, dtype=policy3(policy))
    _, _, log = converted(keras3(input3("x", 2), layer), "tf_keras2.21")
    assert ("float32-constant" in {note.code for note in log.notes}) is noted


@pytest.mark.parametrize("class_name", ["GroupNormalization", "LayerNormalization"])
@pytest.mark.parametrize(
    ("policy", "given", "noted"),
    [
        *(("float64", "float32", True), ("float64", "float64", False)),
        *(("float64", "int64", True), ("float32", "float64", False)),
    ],
)
def test_inputs_that_keras3_does_not_cast_are_noted(
    class_name: str, policy: str, given: str, *, noted: bool
) -> None:
    """A note reports inputs that Keras 3 does not cast, in functional and in Sequential models."""
    layer = layer3(class_name, "layer", tensor("x"), dtype=policy3(policy))
    entry = input3("x", 4)
    entry["config"]["dtype"] = given
    graph = keras3(entry, layer)
    chain = {**graph, "module": "keras", "class_name": "Sequential", "registered_name": None}
    chain["config"] = {"name": "chain", "trainable": True, "layers": [entry, layer]}
    for model in (graph, chain):
        _, _, log = converted(model, "tf_keras2.21")
        assert ("uncast-input" in {note.code for note in log.notes}) is noted


@pytest.mark.parametrize(
    ("class_name", "policy", "noted"),
    [
        *(("LayerNormalization", "float16", True), ("LayerNormalization", "float32", False)),
        *(("LayerNormalization", "mixed_bfloat16", False),),
        *(("GroupNormalization", "float16", True), ("GroupNormalization", "mixed_bfloat16", True)),
    ],
)
def test_normalization_in_half_precision_is_noted(
    tmp_path: Path, class_name: str, policy: str, *, noted: bool
) -> None:
    """A note reports layers that compute in 16 bits in Keras 2 and in float32 in Keras 3."""
    layer = layer2(class_name, "layer", ONE, axis=[-1])
    layer["config"]["dtype"] = {"class_name": "Policy", "config": {"name": policy}}
    weights = dict.fromkeys(("gamma", "beta"), (4,))
    found = codes(tmp_path / "model.h5", keras2(input2("x", 4), layer), **weights)
    assert ("normalized-in-half" in found) is noted


@pytest.mark.parametrize(("policy", "noted"), [("float32", True), ("mixed_float16", False)])
def test_vectors_near_zero_are_noted(policy: str, *, noted: bool) -> None:
    """The libraries scale them to different lengths, except in float16, where both return NaN."""
    layer = layer3("UnitNormalization", "layer", tensor("x"), axis=[-1], dtype=policy)
    _, _, log = converted(keras3(input3("x", 2), layer), "tf_keras2.21")
    assert ("short-vectors" in {note.code for note in log.notes}) is noted
