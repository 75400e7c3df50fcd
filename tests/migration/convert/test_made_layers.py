"""
Layers that a custom layer creates, in HDF5, from which releases load their variables in the order
of ``weight_names``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import h5py
import numpy as np
import pytest

import policytool
from tests.helpers.convertible_models import input3, keras3, layer3, tensor

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "names",
    [("query/kernel", "key/kernel"), ("shift", "gate"), ("norm/gamma", "dense/kernel", "scale")],
)
def test_variables_in_a_custom_layer_keep_their_order(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    """Variables of the same shape could be swapped without an error."""
    block = layer3("Block", "block", tensor("x"), module="mine") | {"registered_name": "mine>Block"}
    path, result = tmp_path / "model.h5", tmp_path / "result.h5"
    with h5py.File(path, "w") as file:
        file.attrs["keras_version"], file.attrs["backend"] = "3.15.0", "tensorflow"
        file.attrs["model_config"] = json.dumps(keras3(input3("x", 4), block))
        weights = file.create_group("model_weights")
        weights.attrs["layer_names"] = np.array([b"x", b"block"])
        weights.create_group("x").attrs["weight_names"] = np.zeros(0, "S1")
        group = weights.create_group("block")
        group.attrs["weight_names"] = np.array([f"block/{name}".encode() for name in names])
        for number, name in enumerate(names):
            group[f"block/{name}"] = np.full((4, 4), number, np.float32)
    done = policytool.migrate(path, target="tf2.15", output=result)
    assert done.plan.refusals == ()
    with h5py.File(result) as file:
        group = file["model_weights/block"]
        found = [int(group[name][0, 0]) for name in group.attrs["weight_names"]]
    assert found == list(range(len(names)))
