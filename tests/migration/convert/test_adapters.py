"""LoRA weights become part of the kernel for releases without LoRA."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest

import policytool
from policytool.commands.migrate import Status
from policytool.migration.plan import WEIGHT_REWRITE
from tests.helpers.convertible_models import input3, keras3, layer3, policy, tensor

if TYPE_CHECKING:
    from pathlib import Path

KERNEL = np.arange(12, dtype="float32").reshape(3, 4)
LEFT = np.arange(6, dtype="float32").reshape(3, 2) / 3
RIGHT = np.arange(8, dtype="float32").reshape(2, 4) / 7


def written(path: Path, class_name: str = "EinsumDense", **config: object) -> Path:
    """Write a model with one layer and its LoRA weights in HDF5, as Keras 3.15 does."""
    own: dict[str, Any] = {
        "equation": "ab,bc->ac",
        "output_shape": [4],
        "bias_axes": None,
        "lora_rank": 2,
        **config,
    }
    if class_name == "Dense":
        own = {"units": 4, "use_bias": False, "lora_rank": 2, **config}
    model = keras3(input3("a", 3), layer3(class_name, "b", tensor("a"), **own))
    # the kernel is not trainable, so it comes last
    values = {"lora_kernel_a": LEFT, "lora_kernel_b": RIGHT, "kernel": KERNEL}
    with h5py.File(path, "w") as file:
        file.attrs.update(
            model_config=json.dumps(model), keras_version="3.15.1", backend="tensorflow"
        )
        weights = file.create_group("model_weights")
        weights.attrs.update(layer_names=["a", "b"], backend="tensorflow")
        weights.create_group("a").attrs["weight_names"] = np.zeros(0, "S1")
        group = weights.create_group("b")
        group.attrs["weight_names"] = [f"b/{name}" for name in values]
        for name, value in values.items():
            group[f"b/{name}"] = value
    return path


@pytest.mark.parametrize(("alpha", "factor"), [(None, 1.0), (2, 1.0), (3, 1.5)])
def test_the_kernel_contains_the_product(tmp_path: Path, alpha: object, factor: float) -> None:
    """The product of the LoRA weights is multiplied by ``lora_alpha / lora_rank``, and added."""
    source = written(tmp_path / "model.h5", lora_alpha=alpha)
    result = policytool.migrate(
        source,
        target="tf_keras",
        output=tmp_path / "out.h5",
        allow=["weight-rewrite"],
        verify=False,
    )
    assert result.status is Status.WRITTEN, result.plan.refusals
    with h5py.File(tmp_path / "out.h5") as file:
        assert list(file["model_weights/b"].attrs["weight_names"]) == [b"b/kernel:0"]
        kernel = file["model_weights/b/b/kernel:0"][()]
        assert "lora" not in str(file.attrs["model_config"])
    expected = KERNEL.astype("float64") + factor * (LEFT.astype("float64") @ RIGHT)
    np.testing.assert_array_equal(kernel, expected.astype("float32"))


def test_weights_change_only_with_the_option(tmp_path: Path) -> None:
    """Without ``--allow weight-rewrite``, the error suggests this option."""
    result = policytool.migrate(
        written(tmp_path / "model.h5"), target="tf_keras", output=tmp_path / "out.h5", verify=False
    )
    (refusal,) = result.plan.refusals
    assert refusal.code == WEIGHT_REWRITE
    assert "--allow weight-rewrite" in refusal.message


@pytest.mark.parametrize(
    ("class_name", "config", "text"),
    [
        ("Dense", {"lora_alpha": 8}, "lora_alpha"),
        ("Dense", {"lora_alpha": 2, "dtype": policy("int8_from_float32")}, "quantized"),
    ],
)
def test_unknown_products_are_rejected(
    tmp_path: Path, class_name: str, config: dict[str, object], text: str
) -> None:
    """
    Dense of Keras 3.15 ignores the factor in HDF5 files, and the kernel of a quantized layer
    consists of integers.
    """
    source = written(tmp_path / "model.h5", class_name, **config)
    result = policytool.migrate(
        source,
        target="tf_keras",
        output=tmp_path / "out.h5",
        allow=["weight-rewrite"],
        verify=False,
    )
    assert result.status is Status.BLOCKED
    assert any(text in refusal.message for refusal in result.plan.refusals)
