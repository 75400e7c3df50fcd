"""
Layers that a custom layer makes by itself, in HDF5: loaders fill them by an order that is not read
from the file.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import h5py
import numpy as np
import pytest

from policytool.formats import format_detection
from policytool.migration.convert import decoding
from policytool.migration.convert.conversion_plan import rewrite_model
from policytool.migration.convert.log import Log
from policytool.migration.convert.rewrites import ConversionContext
from policytool.migration.convert.target import Target
from policytool.migration.convert.variables import place_variables
from policytool.model import reading
from tests.helpers.convertible_models import input3, keras3, layer3, tensor, told

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("scopes", "refused"), [(("query",), False), (("query", "key"), True)])
def test_variables_of_several_of_them_are_refused(
    tmp_path: Path,
    scopes: tuple[str, ...],
    refused: bool,  # noqa: FBT001
) -> None:
    """
    Keys, queries and values have one shape: in another order they would be exchanged without a
    word.
    """
    block = layer3("Block", "block", tensor("x"), module="mine") | {"registered_name": "mine>Block"}
    names = [f"block/{scope}/kernel" for scope in scopes]
    path = tmp_path / "model.h5"
    with h5py.File(path, "w") as file:
        file.attrs["keras_version"], file.attrs["backend"] = "3.15.0", "tensorflow"
        file.attrs["model_config"] = json.dumps(keras3(input3("x", 4), block))
        weights = file.create_group("model_weights")
        weights.attrs["layer_names"] = np.array([b"x", b"block"])
        weights.create_group("x").attrs["weight_names"] = np.zeros(0, "S1")
        group = weights.create_group("block")
        group.attrs["weight_names"] = np.array([name.encode() for name in names])
        for name in names:
            group[name] = np.zeros((4, 4), np.float32)
    loaded, log = reading.load_model(format_detection.document(path, "model.h5")), Log()
    situation = ConversionContext(
        loaded=loaded, target=Target(loader="tf2.15", container="h5"), log=Log()
    )
    root = rewrite_model(decoding.decode(loaded), situation)
    place_variables(root, ConversionContext(loaded=loaded, target=situation.target, log=log))
    assert ("whose order among each other" in told(log)) is refused
