"""The layer of each variable in files with unclear names and layouts."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest

import policytool
from tests.helpers.small_models import dense, h5_model, instance, keras_zip, sequential

if TYPE_CHECKING:
    from pathlib import Path

    from policytool.model.model import Layer


def entry(class_name: str, name: str, **config: Any) -> dict[str, Any]:
    """Return the entry of a layer."""
    return {
        "class_name": class_name,
        "config": {"name": name, "trainable": True, "dtype": "float32", **config},
    }


def layers(path: Path) -> dict[str, Layer]:
    """Return the reported layers by each of their paths."""
    return {
        place: layer
        for layer in policytool.inspect(str(path)).layers
        for place in (layer.path, *layer.also_at)
    }


def stored(layer: Layer) -> list[str]:
    """Return the names of a layer's variables."""
    return [variable.name for variable in layer.variables]


def with_weights(path: Path, *names: str) -> Path:
    """Add scalar variables with these names below ``model_weights``."""
    with h5py.File(path, "a") as file:
        for name in names:
            file[f"model_weights/{name}"] = np.zeros((2, 2), dtype="float32")
    return path


def test_layer_with_a_slash_in_its_name_has_separate_variables(tmp_path: Path) -> None:
    """Such as ``conv1/conv`` and ``conv1/bn`` in DenseNet."""
    path = h5_model(
        tmp_path / "m.h5",
        sequential(dense("conv1"), dense("conv1/conv"), entry("BatchNormalization", "conv1/bn")),
        weights=False,
    )
    with_weights(
        path,
        "conv1/conv1/kernel:0",
        "conv1/conv/conv1/conv/kernel:0",
        "conv1/bn/conv1/bn/gamma:0",
        "conv1/bn/conv1/bn/beta:0",
    )
    result = layers(path)
    assert stored(result["mlp/conv1"]) == ["kernel"]
    assert stored(result["mlp/conv1~1conv"]) == ["kernel"]
    assert stored(result["mlp/conv1~1bn"]) == ["gamma", "beta"]


def test_wrapper_has_only_its_direct_variables(tmp_path: Path) -> None:
    """SpectralNormalization has ``vector_u``, and its layer has the kernel and the bias."""
    path = h5_model(
        tmp_path / "m.h5",
        sequential(entry("SpectralNormalization", "sn", layer=dense("inner"))),
        weights=False,
    )
    with_weights(path, "sn/sn/kernel:0", "sn/sn/bias:0", "sn/sn/vector_u:0")
    result = layers(path)
    assert stored(result["mlp/sn"]) == ["vector_u"]
    assert stored(result["mlp/sn/inner"]) == ["kernel", "bias"]


@pytest.mark.parametrize(("count", "owner"), [(1, "mlp/inner/first"), (2, "mlp/inner")])
def test_adapted_variables_without_a_scope_belong_to_the_only_such_layer(
    tmp_path: Path, count: int, owner: str
) -> None:
    """With two such layers they belong to the model."""
    inner = sequential(*(entry("Normalization", name) for name in ("first", "second")[:count]))
    inner["config"] |= {"name": "inner"}
    path = h5_model(tmp_path / "m.h5", sequential(inner), weights=False)
    with_weights(path, "inner/mean:0", "inner/variance:0", "inner/count:0")
    assert set(stored(layers(path)[owner])) == {"mean", "variance", "count"}


def test_layer_stored_twice_is_counted_once(tmp_path: Path) -> None:
    """A nested model shares it, and both places have the same object id."""
    shared = {**dense("enc"), "shared_object_id": 7}
    nested = instance("Sequential", name="siamese", trainable=True, layers=[shared])
    path = h5_model(tmp_path / "m.h5", sequential(shared, nested), weights=False)
    with_weights(path, "enc/enc/kernel:0", "siamese/enc/kernel:0")
    model = policytool.inspect(str(path))
    result = layers(path)
    assert (
        result["mlp/siamese/enc"] is result["mlp/enc"]
        or result["mlp/siamese/enc"] == result["mlp/enc"]
    )
    assert stored(result["mlp/enc"]) == ["kernel"]
    assert model.summary.parameters == 4


def test_numbers_of_groups_count_layers_that_are_stored_elsewhere(tmp_path: Path) -> None:
    """Keras 3.10 and 3.15 write the second Dense of the nested model to ``dense_1``."""
    weights = io.BytesIO()
    with h5py.File(weights, "w") as file:
        for name in ("layers/dense", "layers/sequential/layers/dense_1"):
            file[f"{name}/vars/0"] = np.zeros((2, 2), dtype="float32")
    shared = {**dense("enc"), "shared_object_id": 7}
    nested = instance("Sequential", name="siamese", trainable=True, layers=[shared, dense("last")])
    members = {
        "config.json": json.dumps(sequential(shared, nested)).encode(),
        "metadata.json": b'{"keras_version": "3.10.0"}',
        "model.weights.h5": weights.getvalue(),
    }
    result = layers(keras_zip(tmp_path / "m.keras", members))
    owners = {name for name, layer in result.items() if layer.variables}
    assert owners == {"mlp/enc", "mlp/siamese/enc", "mlp/siamese/last"}


def test_layer_in_a_shared_model_is_found_by_each_path(tmp_path: Path) -> None:
    inner = {
        "class_name": "Sequential",
        "config": {"name": "enc", "trainable": True, "layers": [dense("d")]},
        "shared_object_id": 9,
    }
    outer = instance("Sequential", name="siamese", trainable=True, layers=[inner])
    path = h5_model(tmp_path / "m.h5", sequential(inner, outer), weights=False)
    assert "mlp/siamese/enc/d" in layers(path)
    assert len(policytool.inspect(str(path)).layers) == 4


def test_layers_without_trainable_are_no_operations(tmp_path: Path) -> None:
    """
    An entry without ``trainable`` is a layer if its class is one, such as SpatialDropout of Keras
    3; Cast is an operation.
    """
    node = [
        {
            "args": [{"class_name": "__keras_tensor__", "config": {"keras_history": ["x", 0, 0]}}],
            "kwargs": {},
        }
    ]
    entries = [
        {
            **instance("InputLayer", name="x", dtype="float32", batch_shape=[None, 2]),
            "name": "x",
            "inbound_nodes": [],
        },
        {
            **instance("SpatialDropout1D", name="sd", rate=0.5, dtype="float32"),
            "name": "sd",
            "inbound_nodes": node,
        },
        {**instance("Cast", name="cast", dtype="float16"), "name": "cast", "inbound_nodes": node},
    ]
    config = instance("Functional", name="mlp", trainable=True, layers=entries)
    assert set(
        layers(h5_model(tmp_path / "m.h5", config, weights=False, keras_version="3.15.1"))
    ) == {"mlp", "mlp/x", "mlp/sd"}


@pytest.mark.parametrize("place", ["gen", "layers/sequential"])
def test_models_in_attributes_of_a_custom_model(place: str, tmp_path: Path) -> None:
    """
    Models in attributes of a custom model are found below the attribute (Keras 3) or by class below
    its layers (Keras 2).
    """
    weights = io.BytesIO()
    with h5py.File(weights, "w") as file:
        file[f"{place}/layers/dense/vars/0"] = np.zeros((2, 2), dtype="float32")
        file["optimizer/vars/0"] = np.zeros((), dtype="int64")
    inner = instance("Sequential", name="gen", trainable=True, layers=[dense("d")])
    config = {
        "module": "gan",
        "class_name": "Gan",
        "registered_name": "pkg>Gan",
        "config": {"name": "gan", "trainable": True, "gen": inner},
    }
    members = {
        "config.json": json.dumps(config).encode(),
        "metadata.json": b'{"keras_version": "2.15.0"}',
        "model.weights.h5": weights.getvalue(),
    }
    result = layers(keras_zip(tmp_path / "m.keras", members))
    assert stored(result["gan/gen/d"]) == ["0"]
    assert not result["gan"].variables


def test_weights_file_excludes_metrics_and_optimizer(tmp_path: Path) -> None:
    """In the legacy layout a layer can have such a name."""
    path = tmp_path / "m.weights.h5"
    with h5py.File(path, "w") as file:
        for name in ("layers/dense/vars/0", "metrics/mean/vars/0", "optimizer/vars/0"):
            file[name] = np.zeros(3, dtype="float32")
    assert policytool.inspect(str(path)).summary.parameters == 3
    assert layers(path)["layers/dense"].name == "dense"
    legacy = tmp_path / "legacy.h5"
    with h5py.File(legacy, "w") as file:
        file.attrs["layer_names"] = np.array([b"metrics"])
        file["metrics/metrics/kernel:0"] = np.zeros(3, dtype="float32")
    assert policytool.inspect(str(legacy)).summary.parameters == 3


@pytest.mark.parametrize(
    ("name", "class_name"),
    [("adam", "Adam"), ("rmsprop", "RMSprop"), ("SGD", "SGD"), ("my_own", "my_own")],
)
def test_optimizer_stored_as_a_name_has_the_class_of_this_name(
    name: str, class_name: str, tmp_path: Path
) -> None:
    """
    An optimizer that is stored as a name, as by ``compile("adam")``, has the class of this name.
    """
    config = {**sequential(), "compile_config": {"optimizer": name}}
    optimizer = policytool.inspect(str(h5_model(tmp_path / "m.h5", config))).optimizer
    assert optimizer is not None
    assert optimizer.class_name == class_name


def test_layers_in_a_list_get_their_variables(tmp_path: Path) -> None:
    """
    The layers in a list of a custom layer get their own variables, which are stored below the
    attribute and numbered by class.
    """
    weights = io.BytesIO()
    with h5py.File(weights, "w") as file:
        for name in (
            "dense/vars/0",
            "dense_1/vars/0",
            "dense_1/vars/1",
            "batch_normalization/vars/0",
        ):
            file[f"layers/enc/blocks/{name}"] = np.zeros((2, 2), dtype="float32")
    blocks = [dense("b0"), entry("BatchNormalization", "b1"), dense("b2")]
    enc = {"module": "mine", "registered_name": "pkg>Enc", **entry("Enc", "enc", blocks=blocks)}
    members = {
        "config.json": json.dumps(sequential(enc)).encode(),
        "metadata.json": b'{"keras_version": "3.15.1"}',
        "model.weights.h5": weights.getvalue(),
    }
    result = layers(keras_zip(tmp_path / "m.keras", members))
    assert {name: len(result[f"mlp/enc/{name}"].variables) for name in ("b0", "b1", "b2")} == {
        "b0": 1,
        "b1": 1,
        "b2": 2,
    }
    assert not result["mlp/enc"].variables


def test_weights_of_a_model_without_variables_are_weights(tmp_path: Path) -> None:
    """A weights file with only empty groups is recognized as a weights file without parameters."""
    path = tmp_path / "m.weights.h5"
    with h5py.File(path, "w") as file:
        file.create_group("layers/rescaling/vars")
    model = policytool.inspect(str(path))
    assert (model.format, model.summary.parameters) == ("weights", 0)


def test_integer_kernel_without_a_quantized_policy_is_a_warning(tmp_path: Path) -> None:
    """
    A warning reports a layer that declares float32 and stores an int8 kernel, because the release
    that loads it does not know that it was quantized.
    """
    weights = io.BytesIO()
    with h5py.File(weights, "w") as file:
        file["layers/dense/vars/0"] = np.zeros((6, 2), dtype="int8")
    members = {
        "config.json": json.dumps(sequential()).encode(),
        "metadata.json": b'{"keras_version": "3.15.1"}',
        "model.weights.h5": weights.getvalue(),
    }
    model = policytool.inspect(str(keras_zip(tmp_path / "m.keras", members)))
    assert [(observation.code, observation.where) for observation in model.observations] == [
        ("undeclared-quantization", "mlp/dense_a")
    ]


def test_integer_variables_of_custom_layers_cause_no_warning(tmp_path: Path) -> None:
    """HGQ stores the number of bits of each weight in them."""
    weights = io.BytesIO()
    with h5py.File(weights, "w") as file:
        file["layers/dense/vars/0"] = np.zeros((6, 2), dtype="int8")
    config = json.loads(json.dumps(sequential()))
    (layer,) = [layer for layer in config["config"]["layers"] if layer["class_name"] == "Dense"]
    layer.update(module="hgq.layers", class_name="QDense", registered_name="hgq>QDense")
    members = {
        "config.json": json.dumps(config).encode(),
        "metadata.json": b'{"keras_version": "3.15.1"}',
        "model.weights.h5": weights.getvalue(),
    }
    assert not policytool.inspect(str(keras_zip(tmp_path / "m.keras", members))).observations


def test_state_without_an_optimizer_is_reported(tmp_path: Path) -> None:
    """
    A note reports an archive with optimizer state but without an optimizer, as Keras 3.15 writes
    after saving HDF5.
    """
    weights = io.BytesIO()
    with h5py.File(weights, "w") as file:
        file["layers/dense/vars/0"] = np.zeros((6, 2), dtype="float32")
        file["optimizer/vars/0"] = np.zeros((), dtype="int64")
    members = {
        "config.json": json.dumps({**sequential(), "compile_config": {"loss": "mse"}}).encode(),
        "metadata.json": b'{"keras_version": "3.15.1"}',
        "model.weights.h5": weights.getvalue(),
    }
    model = policytool.inspect(str(keras_zip(tmp_path / "m.keras", members)))
    assert [observation.code for observation in model.observations] == ["optimizer-unnamed"]
