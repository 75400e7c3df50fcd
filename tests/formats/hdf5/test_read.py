"""HDF5: whole models, weights files, types and attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import h5py
import numpy as np
import pytest

import policytool
from policytool.formats import Probe
from policytool.formats.hdf5 import library as _hdf5
from policytool.formats.hdf5 import recognise
from tests.conftest import MIXED_H5
from tests.contracts.format_contract import FormatContract
from tests.helpers.paths import FIXTURES
from tests.helpers.small_models import h5_model, sequential

if TYPE_CHECKING:
    from pathlib import Path


class TestHdf5(FormatContract):
    package = "hdf5"
    document_format = ("h5", "weights")
    samples = (
        MIXED_H5,
        FIXTURES / "keras2.2.4/default_float32.h5",
        FIXTURES / "tf1.15/wrappers.h5",
        FIXTURES / "keras3.15/default_float32.h5",
        FIXTURES / "keras2.3.1/keras_ext_is_hdf5.keras",
        FIXTURES / "tf2.3/weights_only.weights.h5",
        FIXTURES / "keras3.15/weights_only.weights.h5",
    )


@pytest.mark.parametrize("offset", [512, 1024, 2048])
def test_user_block_before_the_signature_is_allowed(offset: int, tmp_path: Path) -> None:
    """An HDF5 file is recognized after a user block."""
    path = tmp_path / "block.h5"
    with h5py.File(path, "w", userblock_size=offset) as file:
        file.attrs["model_config"] = (
            '{"class_name": "Sequential", "config": {"name": "mlp", "layers": []}}'
        )
    assert recognise(Probe(path, "block.h5"))
    assert [layer.path for layer in policytool.inspect(path).layers] == ["mlp"]


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (np.zeros(2, "float16"), "float16"),
        (np.zeros(2, "float32"), "float32"),
        (np.zeros(2, ">f4"), "float32"),
        (np.zeros(2, "float64"), "float64"),
        (np.zeros(2, "|V2"), "bfloat16"),
        (np.zeros(2, "int8"), "int8"),
        (np.zeros(2, "uint8"), "uint8"),
        (np.zeros(2, "int64"), "int64"),
        (np.zeros(2, "bool"), "bool"),
        (np.zeros(2, "complex64"), "complex64"),
        (np.array([b"a", b"bc"]), "string"),
        (np.array(["a"], dtype=h5py.string_dtype()), "string"),
        (np.float32(1), "float32"),
    ],
    ids=str,
)
def test_stored_types_have_keras_names(value: object, dtype: str, tmp_path: Path) -> None:
    path = h5_model(tmp_path / "types.h5", sequential(), weights=False)
    with h5py.File(path, "a") as file:
        file["model_weights/dense_a/dense_a/kernel:0"] = value
    assert [variable.dtype for variable in policytool.inspect(path).layers[1].variables] == [dtype]


def test_opaque_type_has_the_dtype_of_its_attribute(tmp_path: Path) -> None:
    """An opaque type has the dtype in the attribute next to it, as Keras 3.4 and later write it."""
    path = h5_model(tmp_path / "opaque.h5", sequential(), weights=False)
    with h5py.File(path, "a") as file:
        file["model_weights/dense_a/dense_a/kernel:0"] = np.zeros(2, "|V1")
        file["model_weights/dense_a/dense_a/kernel:0"].attrs["dtype"] = "float8_e4m3fn"
    assert [variable.dtype for variable in policytool.inspect(path).layers[1].variables] == [
        "float8_e4m3fn"
    ]


def test_weights_come_in_the_layers_own_order(tmp_path: Path) -> None:
    """
    Weights have the order of ``weight_names`` and not that of their names; unlisted weights follow.
    """
    path = h5_model(tmp_path / "order.h5", sequential())
    with h5py.File(path, "a") as file:
        file["model_weights/dense_a"].attrs["weight_names"] = np.array(
            [b"dense_a/kernel:0", b"dense_a/bias:0"]
        )
    assert [variable.name for variable in policytool.inspect(path).layers[1].variables] == [
        "kernel",
        "bias",
    ]


def test_empty_step_in_a_listed_name_is_skipped(tmp_path: Path) -> None:
    """
    An empty component in a listed name, such as ``res_net//conv2d_1/kernel:0`` in a public model of
    TF 2.9, is ignored.
    """
    path = h5_model(tmp_path / "empty_step.h5", sequential())
    with h5py.File(path, "a") as file:
        file["model_weights"].attrs["layer_names"] = np.array([b"dense_a"])
        file["model_weights/dense_a"].attrs["weight_names"] = np.array(
            [b"dense_a//kernel:0", b"dense_a/./bias:0"]
        )
    model = policytool.inspect(path)
    assert [variable.name for variable in model.layers[1].variables] == ["kernel", "bias"]
    assert not model.observations


def test_names_in_several_attributes_are_put_together(tmp_path: Path) -> None:
    """Lists of names above 64 kB, which Keras splits into numbered attributes, are joined."""
    path = tmp_path / "many.h5"
    with h5py.File(path, "w") as file:
        for number in range(3):
            file.attrs[f"layer_names{number}"] = np.array([f"layer_{number}".encode()])
            file[f"layer_{number}/kernel:0"] = np.zeros(number + 1)
    model = policytool.inspect(path)
    assert [layer.name for layer in model.layers] == ["layer_0", "layer_1", "layer_2"]
    with h5py.File(path) as file:
        assert _hdf5.attribute_names(file.id, "layer_names") == ("layer_0", "layer_1", "layer_2")


@pytest.mark.parametrize("text", ["plain", "bytes", "fixed"])
def test_config_is_read_from_every_string_type(text: str, tmp_path: Path) -> None:
    """The config is read for each string type: variable and fixed length, UTF-8 and ASCII."""
    config = '{"class_name": "Sequential", "config": {"name": "m\\u00fcller", "layers": []}}'
    path = tmp_path / "text.h5"
    with h5py.File(path, "w") as file:
        match text:
            case "plain":
                file.attrs["model_config"] = config
            case "bytes":
                file.attrs["model_config"] = np.bytes_(config.encode())
            case _:
                file.attrs.create(
                    "model_config", config.encode(), dtype=h5py.string_dtype("utf-8", 200)
                )
    assert policytool.inspect(path).layers[0].name == "müller"


def test_variables_of_no_layer_are_counted_among_weights(tmp_path: Path) -> None:
    """Variables of optimizers and metrics in a weights file are reported, and are not layers."""
    with h5py.File(tmp_path / "a.weights.h5", "w") as file:
        for path in (
            "layers/dense/vars/0",
            "optimizer/vars/0",
            "optimizer/vars/1",
            "metrics/mean/vars/0",
        ):
            file[path] = np.zeros(2, "float32")
    model = policytool.inspect(tmp_path / "a.weights.h5")
    assert [layer.path for layer in model.layers] == ["layers/dense"]
    assert [item.message for item in model.observations if item.code == "training-state"] == [
        (
            "3 stored variables belong to an optimizer, metrics or the training loop rather "
            "than to a layer"
        )
    ]
