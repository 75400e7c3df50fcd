"""
Configs of Keras 1, of standalone Keras 2, and of preprocessing layers of any release, converted for
other releases.
"""

from __future__ import annotations

import io
import json
import zipfile
from typing import TYPE_CHECKING, Any, Final

import h5py
import numpy as np
import pytest

import policytool
from policytool.formats import format_detection
from policytool.formats.document import Tensor
from policytool.formats.edits import Assembly, Placement
from policytool.formats.placed_values import stored_blocks
from policytool.migration.convert import decoding, encoding
from policytool.migration.convert.architecture import Recipe, SerializedObject, Unit, walk
from policytool.migration.convert.rewrites import REWRITES, ConversionContext, keras1
from policytool.migration.convert.target import Log, Target
from policytool.model import reading
from policytool.reports.plans.diff import stored_values_words
from tests.helpers.convertible_models import input3, keras3, layer3, tensor
from tests.helpers.paths import FIXTURES
from tests.helpers.small_models import instance

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

CONVOLUTION: Final = {
    "name": "convolution2d_1",
    "nb_filter": 3,
    "nb_row": 5,
    "nb_col": 4,
    "subsample": [2, 1],
    "border_mode": "valid",
    "dim_ordering": "tf",
    "bias": True,
    "init": "glorot_uniform",
    "activation": "elu",
    "W_regularizer": {"name": "WeightRegularizer", "l1": 0.0, "l2": 0.5},
    "b_regularizer": None,
    "W_constraint": {"name": "MaxNorm", "m": 2, "axis": 0},
    "b_constraint": None,
    "activity_regularizer": None,
    "trainable": True,
}


def converted(path: Path, loader: str, container: str = "keras") -> tuple[Unit, Log]:
    """Return the root unit of a file's model in a release, and the log of the conversion."""
    log = Log()
    loaded = reading.load_model(format_detection.document(path, path.name))
    context = ConversionContext(
        loaded=loaded, target=Target(loader=loader, container=container), log=log
    )
    root = decoding.decode(loaded)
    for rewrite in REWRITES:
        root = rewrite.apply(root, context) if rewrite.applies(context) else root
    return encoding.keep_known(root, context.target, log), log


def sequential(folder: Path, version: str, *layers: dict[str, Any]) -> Path:
    """Write the architecture of a Sequential, as Keras 1 and 2 do."""
    path = folder / "model.json"
    first, *others = layers
    shaped = {**first, "config": {**first["config"], "batch_input_shape": [None, 8, 8, 2]}}
    path.write_text(
        json.dumps(
            {"class_name": "Sequential", "config": [shaped, *others], "keras_version": version}
        )
    )
    return path


def test_a_convolution_of_keras_1_has_the_keys_of_keras_2(tmp_path: Path) -> None:
    """
    A convolution of Keras 1 gets the class and keys of Keras 2, and its input shape becomes an
    input layer.
    """
    root, log = converted(
        sequential(tmp_path, "1.2.2", {"class_name": "Convolution2D", "config": CONVOLUTION}),
        "keras3.15",
    )
    assert not log.refusals
    unit = next(unit for unit in walk(root) if unit.name == "convolution2d_1")
    assert unit.class_name == "Conv2D"
    assert {
        key: unit.config[key]
        for key in ("filters", "kernel_size", "strides", "padding", "data_format", "use_bias")
    } == {
        "filters": 3,
        "kernel_size": [5, 4],
        "strides": [2, 1],
        "padding": "valid",
        "data_format": "channels_last",
        "use_bias": True,
    }
    penalty, constraint = unit.config["kernel_regularizer"], unit.config["kernel_constraint"]
    assert isinstance(penalty, SerializedObject)
    assert penalty.config == {"l1": 0.0, "l2": 0.5}
    assert isinstance(constraint, SerializedObject)
    assert constraint.config == {"max_value": 2, "axis": 0}
    assert root.network is not None
    assert root.network.units[0].config["batch_shape"] == [None, 8, 8, 2]


@pytest.mark.parametrize(
    ("class_name", "changes", "said"),
    [
        ("BatchNormalization", {"mode": 2}, "mode"),
        ("Highway", {}, "Highway"),
        ("Merge", {"mode": "cos"}, "cos"),
        ("Convolution2D", {"border_mode": "full"}, "full"),
        (
            "Deconvolution2D",
            {"output_shape": [None, 18, 17, 3], "subsample": [2, 2], "border_mode": "same"},
            "output_shape",
        ),
    ],
)
def test_arguments_that_only_keras_1_supports_are_rejected(
    tmp_path: Path, class_name: str, changes: dict[str, Any], said: str
) -> None:
    """An argument that only Keras 1 supports is an error with the layer and the argument."""
    _, log = converted(
        sequential(
            tmp_path, "1.2.2", {"class_name": class_name, "config": {**CONVOLUTION, **changes}}
        ),
        "keras3.15",
    )
    assert any(
        said in refusal.message and "convolution2d_1" in refusal.message for refusal in log.refusals
    )


def test_gates_are_joined_in_the_order_of_keras_2() -> None:
    """
    Gates of an LSTM are joined in the order of Keras 2; Keras 1 stores them in the order i, c, f,
    o, or already joined with ``consume_less="gpu"``.
    """
    layout = keras1.weight_layout("LSTM", {}, {"lstm_1_W_i": (2, 3)}, reverses=False)
    assert layout["kernel"].parts == ("W_i", "W_f", "W_c", "W_o")
    assert keras1.weight_layout("GRU", {}, {"gru_1_W": (2, 9)}, reverses=False)["kernel"].parts == (
        "W",
    )
    old = keras1.weight_layout(
        "Convolution1D", {"filter_length": 5, "nb_filter": 3}, {"c_W": (3, 2, 5, 1)}, reverses=True
    )["kernel"]
    assert old == Recipe(parts=("W",), reshape=(3, 2, 5), axes=(2, 1, 0), flip=(0,))


class Given:
    """A source of values, which yields them in blocks."""

    def blocks(self, tensor: Tensor) -> Iterator[np.ndarray[Any, Any]]:
        """Yield the values of a tensor in two blocks."""
        values = np.arange(np.prod(tensor.shape or ()), dtype=np.float32) + len(tensor.path[-1])
        yield values[:2]
        yield values[2:]


def test_renamed_variables_keep_their_values(tmp_path: Path) -> None:
    """The ``W`` and ``b`` of a Dense of Keras 1 become kernel and bias."""
    path = tmp_path / "model.h5"
    dense = {"name": "dense_1", "output_dim": 2, "batch_input_shape": [None, 3], "bias": True}
    config = {"class_name": "Sequential", "config": [{"class_name": "Dense", "config": dense}]}
    with h5py.File(path, "w") as file:
        file.attrs["keras_version"] = "1.2.2"
        file.attrs["model_config"] = json.dumps(config)
        file.create_group("model_weights").attrs["layer_names"] = [b"dense_1"]
        layer = file.create_group("model_weights/dense_1")
        layer.attrs["weight_names"] = [b"dense_1_W", b"dense_1_b"]
        layer["dense_1_W"] = np.ones((3, 2), "float32")
        layer["dense_1_b"] = np.ones(2, "float32")
    plan = policytool.migrate(path, target="tf_keras", preview=True).plan
    assert plan.conversion is not None
    assert stored_values_words(plan.conversion) == "all stored values are unchanged"


@pytest.mark.parametrize("suffix", ["", ":0"])
def test_separate_weights_of_keras_1_fit_a_later_architecture(tmp_path: Path, suffix: str) -> None:
    """Their names are those of Keras 1, whatever release wrote the architecture."""
    layer = layer3("Dense", "dense", tensor("x"), units=2)
    architecture, weights = tmp_path / "model.json", tmp_path / "weights.h5"
    architecture.write_text(json.dumps(keras3(input3("x", 3), layer)))
    kernel = np.arange(6, dtype=np.float32).reshape(3, 2)
    with h5py.File(weights, "w") as file:
        file.attrs.update({"layer_names": [b"dense_1"], "keras_version": "1.2.2"})
        group = file.create_group("dense_1")
        names = [f"dense_1_W{suffix}", f"dense_1_b{suffix}"]
        group.attrs["weight_names"] = [name.encode() for name in names]
        group[names[0]], group[names[1]] = kernel, np.ones(2, np.float32)
    output = tmp_path / "model.keras"
    policytool.migrate(architecture, weights=weights, target="keras3", output=output, verify=False)
    with zipfile.ZipFile(output) as archive:
        stored = h5py.File(io.BytesIO(archive.read("model.weights.h5")))
        assert stored["layers/dense/vars/0"][...].tolist() == kernel.tolist()


def keras1_weights_file(path: Path, stored: dict[str, NDArray[np.float32]], suffix: str) -> Path:
    """Write the weights of a layer as ``save_weights`` of Keras 1 does."""
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = [b"old_1"]
        group = file.create_group("old_1")
        group.attrs["weight_names"] = [f"old_1_{name}{suffix}".encode() for name in stored]
        for name, values in stored.items():
            group[f"old_1_{name}{suffix}"] = values
    return path


def joined_values(
    folder: Path, layer: dict[str, Any], shape: tuple[int, ...], weights: Path
) -> list[NDArray[np.float32]]:
    """Return the variables of a layer of Keras 3 with separate weights of Keras 1."""
    architecture, output = folder / "model.json", folder / "model.keras"
    architecture.write_text(json.dumps(keras3(input3("x", *shape), layer)))
    result = policytool.migrate(
        architecture, weights=weights, target="keras3", output=output, verify=False
    )
    assert not result.blockers
    with zipfile.ZipFile(output) as archive:
        stored = h5py.File(io.BytesIO(archive.read("model.weights.h5")))
        found: dict[str, NDArray[np.float32]] = {}
        stored.visititems(
            lambda name, item: (
                found.update({name: item[...]}) if isinstance(item, h5py.Dataset) else None
            )
        )
    return [found[name] for name in sorted(found)]


@pytest.mark.parametrize(
    ("shape", "suffix", "axes", "is_flipped"),
    [
        ((2, 3, 4, 5), ":0", (0, 1, 2, 3), False),  # TensorFlow, channels last
        ((5, 4, 2, 3), ":0", (2, 3, 1, 0), False),  # TensorFlow, channels first
        ((5, 4, 2, 3), "", (2, 3, 1, 0), True),  # Theano
    ],
)
def test_separate_convolution_of_keras_1_is_transposed(
    tmp_path: Path,
    shape: tuple[int, ...],
    suffix: str,
    axes: tuple[int, ...],
    *,
    is_flipped: bool,
) -> None:
    """The shape shows where the channels are, and the names show the backend."""
    kernel = np.arange(120, dtype=np.float32).reshape(shape)
    stored = {"W": kernel, "b": np.ones(5, np.float32)}
    weights = keras1_weights_file(tmp_path / "weights.h5", stored, suffix)
    layer = layer3("Conv2D", "conv", tensor("x"), filters=5, kernel_size=[2, 3])
    expected = np.transpose(kernel, axes)
    if is_flipped:
        expected = np.flip(expected, (0, 1))
    assert joined_values(tmp_path, layer, (8, 8, 4), weights)[0].tolist() == expected.tolist()


def test_separate_convolution_of_keras_1_with_an_unclear_layout_is_rejected(tmp_path: Path) -> None:
    """Both layouts have the same shape."""
    stored = {"W": np.ones((3, 3, 3, 3), np.float32), "b": np.ones(3, np.float32)}
    weights = keras1_weights_file(tmp_path / "weights.h5", stored, "")
    layer = layer3("Conv2D", "conv", tensor("x"), filters=3, kernel_size=[3, 3])
    architecture = tmp_path / "model.json"
    architecture.write_text(json.dumps(keras3(input3("x", 8, 8, 3), layer)))
    result = policytool.migrate(architecture, weights=weights, target="keras3", preview=True)
    assert result.status == "blocked"
    assert "has no kernel in the file" in result.blockers[0].message


def test_separate_gates_of_keras_1_are_joined(tmp_path: Path) -> None:
    """In the order i, f, c, o; Keras 1 stores them in the order i, c, f, o."""
    rows = {"W": 3, "U": 2, "b": 0}
    stored = {
        f"{name}_{gate}": np.full((rows[name], 2) if rows[name] else 2, place, np.float32)
        for place, gate in enumerate("icfo")
        for name in rows
    }
    weights = keras1_weights_file(tmp_path / "weights.h5", stored, ":0")
    layer = layer3("LSTM", "lstm", tensor("x"), units=2)
    kernel, recurrent, bias = joined_values(tmp_path, layer, (4, 3), weights)
    gates = [0, 0, 2, 2, 1, 1, 3, 3]
    assert kernel.tolist() == [gates] * 3
    assert recurrent.tolist() == [gates] * 2
    assert bias.tolist() == gates


def test_parts_are_turned_flipped_and_joined() -> None:
    """Parts of a variable are transposed, flipped and joined like with NumPy."""
    tensors = tuple(Tensor(path=(name,), shape=(3, 2), dtype="float32") for name in ("a", "bb"))
    assembly = Assembly(parts=tensors, axes=(1, 0), flip=(0,))
    placement = Placement(path=("kernel",), shape=(2, 6), dtype="float32", made_of=assembly)
    written = np.concatenate([block for block, _ in stored_blocks(placement, Given())])  # type: ignore[arg-type]
    expected = np.concatenate(
        [np.flip((np.arange(6).reshape(3, 2) + add).T, 0) for add in (1, 2)], axis=-1
    )
    assert written.tolist() == expected.ravel().tolist()


def test_vocabulary_in_an_asset_is_moved_into_the_config() -> None:
    """Other releases do not read the asset."""
    root, log = converted(FIXTURES / "keras3.15" / "text_vectorization.keras", "tf2.15", "h5")
    assert not log.refusals
    unit = next(unit for unit in walk(root) if unit.class_name == "TextVectorization")
    assert unit.config["vocabulary"] == ["", "[UNK]", "green", "red", "blue"]
    assert "dtype" not in unit.config


def test_vocabulary_missing_from_the_config_is_rejected() -> None:
    """TF 2.3 stores it in a table of the SavedModel."""
    _, log = converted(FIXTURES / "tf2.3" / "string_lookup", "keras3.15")
    assert [refusal.code for refusal in log.refusals] == ["vocabulary"]


def test_preprocessing_layers_with_other_results_are_rejected(tmp_path: Path) -> None:
    """Hashing with the default salt of TF 2.3 to 2.5, and RandomCrop between Keras 2 and 3."""
    hashing = instance(
        "Hashing", name="h", trainable=True, num_bins=5, salt=[956888297470, 956888297470]
    )
    crop = instance("RandomCrop", name="c", trainable=True, height=4, width=4, seed=None)
    path = sequential(tmp_path, "2.4.0", crop, hashing)
    path.write_text(
        path.read_text()
        .replace('"config": [', '"config": {"name": "s", "layers": [')
        .replace('], "keras_version"', ']}, "keras_version"')
    )
    _, log = converted(path, "keras3.15")
    assert sorted(refusal.path or "" for refusal in log.refusals) == ["s/c", "s/h"]


def test_a_mean_in_the_config_becomes_a_variable_for_tf_2_4(tmp_path: Path) -> None:
    """TF 2.1 to 2.5 read it only from variables."""
    layer = instance(
        "Normalization",
        name="n",
        trainable=True,
        dtype="float32",
        axis=[-1],
        mean=[1.0, 2.0],
        variance=[3.0, 4.0],
    )
    path = sequential(tmp_path, "2.9.0", layer)
    path.write_text(
        path.read_text()
        .replace('"config": [', '"config": {"name": "s", "layers": [')
        .replace('], "keras_version"', ']}, "keras_version"')
    )
    root, log = converted(path, "tf2.4", "h5")
    assert not log.refusals
    unit = next(unit for unit in walk(root) if unit.name == "n")
    assert unit.given == {"mean": [1.0, 2.0], "variance": [3.0, 4.0], "count": 0}
    assert "mean" not in unit.config


def test_standalone_keras_model_keeps_its_dtype() -> None:
    """
    A model of Keras 2.2 in float64 stays in float64, although Keras 2.2 writes no dtype except for
    inputs, regardless of the target's default.
    """
    root, _ = converted(FIXTURES / "keras2.2.4" / "floatx_float64.h5", "keras3.15")
    assert {
        getattr(unit.config.get("dtype"), "name", None)
        for unit in walk(root)
        if unit.class_name == "Dense"
    } == {"float64"}


def test_variables_that_the_source_keeps_in_fewer_bits_are_widened(tmp_path: Path) -> None:
    """
    A mean of a Normalization in float16 becomes float32 with the same values, because tf_keras
    stores it in the compute dtype and Keras 3 in the variable dtype.
    """
    policy = {"class_name": "Policy", "config": {"name": "mixed_float16"}}
    layers = [
        {"class_name": "InputLayer", "config": {"name": "x", "batch_input_shape": [None, 2]}},
        {"class_name": "Normalization", "config": {"name": "n", "dtype": policy, "axis": [-1]}},
    ]
    config = {"name": "s", "layers": layers}
    path = tmp_path / "model.h5"
    with h5py.File(path, "w") as file:
        file.attrs["keras_version"] = "2.15.0"
        file.attrs["backend"] = "tensorflow"
        file.attrs["model_config"] = json.dumps({"class_name": "Sequential", "config": config})
        weights = file.create_group("model_weights")
        weights.attrs["layer_names"] = [b"n"]
        names = ("mean:0", "variance:0", "count:0")
        weights.create_group("n").attrs["weight_names"] = [name.encode() for name in names]
        for name, value in zip(names, ([0.1, 3.0], [2.0, 0.5], 0), strict=True):
            dtype = "int64" if name == "count:0" else "float16"
            weights["n"][name] = np.array(value, dtype)
    plan = policytool.migrate(path, target="keras3", output=tmp_path / "new.keras").plan
    assert not plan.refusals
    found = policytool.inspect(tmp_path / "new.keras")
    (layer,) = [one for one in found.layers if one.class_name == "Normalization"]
    assert [one.dtype for one in layer.variables] == ["float32", "float32", "int64"]
    assert not [
        one
        for one in policytool.audit(tmp_path / "new.keras", target="keras3")
        if one.rule == "PT401"
    ]
    difference = policytool.diff(path, tmp_path / "new.keras")
    assert all(one.values.differing in {None, 0} for one in difference.variables)
