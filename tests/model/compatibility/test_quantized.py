"""
Verdicts on quantized layers, on policies of unknown releases and on custom objects, for configs
that are not in any fixture.
"""

from __future__ import annotations

import io
import json
import zipfile
from typing import TYPE_CHECKING, Final

import h5py
import numpy as np
import pytest

import policytool
from policytool.releases.releases import LOADERS
from tests.helpers.small_models import (
    Config,
    dense,
    h5_model,
    instance3,
    keras_members,
    keras_zip,
    sequential,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NEWEST: Final = "keras3.15"
INPUT: Final[Config] = instance3("InputLayer", batch_shape=[None, 6], dtype="float32", name="x")


def _policy(class_name: str, mode: str, source: str | None = "float32") -> Config:
    return instance3(class_name, "keras.dtype_policies", mode=mode, source_name=source)


INT8: Final = _policy("QuantizedDTypePolicy", "int8")
WITHOUT_SOURCE: Final = _policy("QuantizedDTypePolicy", "int8", None)


def _layer(dtype: object, **more: object) -> Config:
    entry = dense("dense_a", dtype, use_bias=True, **more)
    return {**entry, "module": "keras.layers", "registered_name": None}


def _archive(path: Path, layer: Config, shapes: Mapping[str, tuple[int, ...]]) -> Path:
    model = {**sequential(INPUT, layer), "module": "keras", "registered_name": None}
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        for place, shape in shapes.items():
            file[f"layers/dense/vars/{place}"] = np.zeros(shape, "float32")
    members = {**keras_members(model), "model.weights.h5": buffer.getvalue()}
    return keras_zip(path / "model.keras", members)


def _reason(path: Path, loader: str = NEWEST) -> str | None:
    return policytool.inspect(path).releases[loader].explanation


@pytest.mark.parametrize("policy", [INT8, WITHOUT_SOURCE])
@pytest.mark.parametrize(("size", "loads"), [(2, True), (3, False)])
def test_scale_of_an_int8_kernel_has_one_number_per_unit(
    tmp_path: Path,
    policy: Config,
    size: int,
    loads: bool,  # noqa: FBT001
) -> None:
    """Regardless of the source policy."""
    path = _archive(tmp_path, _layer(policy), {"0": (6, 2), "1": (2,), "2": (size,)})
    reason = f"the variable kernel_scale of Dense dense_a has the shape (2,), but ({size},)"
    assert (_reason(path) or "").startswith("" if loads else reason)
    assert (_reason(path) is None) is loads


def test_quantized_policy_without_source_has_the_global_policy(tmp_path: Path) -> None:
    """
    A quantized policy without a source keeps its mode and uses the global policy as its source, in
    a layer and in a policy map.
    """
    entry: Config = {"default_policy": None, "policy_map": {"dense_a": WITHOUT_SOURCE}}
    in_map = {"class_name": "DTypePolicyMap", "config": entry, "module": "keras.dtype_policies"}
    for number, policy in enumerate((WITHOUT_SOURCE, in_map)):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = _archive(folder, _layer(policy), {"0": (6, 2), "1": (2,), "2": (2,)})
        report = policytool.inspect(path)
        layer = report.layers[-1]
        assert layer.policy == "int8_from_(global)"
        assert layer.quantization is not None
        assert (layer.quantization.mode, layer.compute_dtype) == ("int8", None)
        assert report.releases[NEWEST].loads


@pytest.mark.parametrize(
    ("policy", "part"),
    [
        (_policy("QuantizedDTypePolicy", "ternary"), "the quantization mode ternary"),
        (_policy("TernaryDTypePolicy", "ternary/32"), "the policy class TernaryDTypePolicy"),
    ],
)
def test_policy_of_a_later_release_is_named(tmp_path: Path, policy: Config, part: str) -> None:
    path = _archive(tmp_path, _layer(policy), {"0": (6, 2), "1": (2,)})
    report = policytool.inspect(path)
    assert not any(report.releases[loader].loads for loader in LOADERS)
    assert _reason(path) == f"no release known to policytool has {part}"
    assert report.layers[-1].policy is None


def test_registered_initializer_is_a_custom_class(tmp_path: Path) -> None:
    """tf_keras 2.21 finds it in HDF5 only with custom_objects."""
    initializer: Config = {
        "module": None,
        "class_name": "Init",
        "config": {},
        "registered_name": "package>Init",
    }
    layer = _layer("float32", kernel_initializer=initializer)
    path = _archive(tmp_path, layer, {"0": (6, 2), "1": (2,)})
    assert _reason(path) == "Init is a custom class, so the result depends on its code"


def test_call_on_a_layer_that_is_listed_later(tmp_path: Path) -> None:
    """Keras 3.0 to 3.6 postpone only calls in the format of Keras 2."""

    def call(*names: str) -> Config:
        tensor = {"shape": [None, 6], "dtype": "float32"}
        tensors = [
            {"class_name": "__keras_tensor__", "config": {**tensor, "keras_history": [name, 0, 0]}}
            for name in names
        ]
        return {"args": tensors, "kwargs": {}}

    def entry(layer: Config, name: str, *nodes: Config) -> Config:
        config = {**layer["config"], "name": name}
        return {**layer, "config": config, "name": name, "inbound_nodes": list(nodes)}

    layers = [
        entry(INPUT, "x"),
        entry(_layer("float32"), "a", call("x"), call("b")),
        entry(_layer("float32"), "b", call("a")),
    ]
    config = {
        "name": "model",
        "layers": layers,
        "input_layers": [["x", 0, 0]],
        "output_layers": [["a", 1, 0]],
    }
    model = {"class_name": "Functional", "config": config, "registered_name": ""}
    members = keras_members({**model, "module": "keras.src.models.functional"})
    path = keras_zip(tmp_path / "model.keras", members)
    reason = "a shared layer is called on the result of a layer that is listed later"
    assert _reason(path, "keras3.6") == reason
    assert _reason(path) != reason


def test_int4_of_keras_3_12_fails_for_different_reasons(tmp_path: Path) -> None:
    """
    Keras 3.6 does not have the mode, and Keras 3.15 packs columns of kernels; Keras 3.12 packs
    rows, and loads the file.
    """
    policy = instance3(
        "QuantizedDTypePolicy", "keras.dtype_policies", mode="int4", source_name="float32"
    )
    path = _archive(tmp_path, _layer(policy), {"0": (3, 2), "1": (2,), "2": (2,)})
    assert _reason(path, "keras3.6") == "the quantization mode int4 needs Keras 3.11 or later"
    assert _reason(path) == (
        "the variable kernel of Dense dense_a has the shape (6, 1), but (3, 2) is stored"
    )


_FACTOR: Final = (
    "the variable lora_kernel_a of Dense dense_a has the shape (6, 3), but (3, 6) is stored"
)


@pytest.mark.parametrize("trainable", [True, False])
@pytest.mark.parametrize(("shape", "reason"), [((6, 3), None), ((3, 6), _FACTOR)])
def test_factors_of_lora_have_the_sizes_of_the_kernel(
    tmp_path: Path,
    shape: tuple[int, ...],
    reason: str | None,
    trainable: bool,  # noqa: FBT001
) -> None:
    """In HDF5, the kernel of a trainable layer follows the factors, because they replace it."""
    layer = _layer("float32", lora_rank=3)
    layer["config"]["trainable"] = trainable
    model = {**sequential(INPUT, layer), "module": "keras", "registered_name": None}
    path = h5_model(tmp_path / "model.h5", model, weights=False, keras_version="3.15.1")
    kernel, others = (
        {"kernel": (6, 2)},
        {"bias": (2,), "lora_kernel_a": shape, "lora_kernel_b": (3, 2)},
    )
    stored = {**others, **kernel} if trainable else {**kernel, **others}
    with h5py.File(path, "r+") as file:
        weights = file["model_weights"]
        weights.attrs["layer_names"] = ["dense_a"]
        for name, sizes in stored.items():
            weights[f"dense_a/mlp/dense_a/{name}"] = np.zeros(sizes, "float32")
        weights["dense_a"].attrs["weight_names"] = [f"mlp/dense_a/{name}" for name in stored]
    assert _reason(path) == reason


@pytest.mark.parametrize(
    ("mode", "sizes", "reason"),
    [
        ("int4/128", [(6, 1), (2,), (1, 2), (1, 2), (6,)], None),
        ("int4/-1", [(6, 1), (2,), (2,)], None),
        (
            "int4/128",
            [(6, 1), (2,), (1, 2), (1, 2)],
            "Dense dense_a has 5 variables, but 4 are stored",
        ),
        ("int4/-1", [(6, 1), (2,), (2,), (6,)], "Dense dense_a has 3 variables, but 4 are stored"),
        (
            "int4/-1",
            [(6, 2), (2,), (2,)],
            "the variable kernel of Dense dense_a has the shape (6, 1), but (6, 2) is stored",
        ),
    ],
)
def test_int4_adds_variables_for_blocks(
    tmp_path: Path, mode: str, sizes: list[tuple[int, ...]], reason: str | None
) -> None:
    """Blocks of rows have zero points and a list of blocks; two columns share a byte."""
    policy = _policy("Int4DTypePolicy", mode)
    path = _archive(
        tmp_path, _layer(policy), {str(place): shape for place, shape in enumerate(sizes)}
    )
    assert _reason(path) == reason


@pytest.mark.parametrize(("mode", "count"), [("gptq/4/2", 5), ("awq/4/2", 6)])
def test_calibrated_modes_add_variables(tmp_path: Path, mode: str, count: int) -> None:
    """Keras 3.15 writes one variable less than it creates, unlike Keras 3.12."""
    policy = _policy(f"{mode.partition('/')[0].upper()}DTypePolicy", mode)
    for stored in (count - 1, count):
        path = _archive(tmp_path, _layer(policy), {str(number): (2,) for number in range(stored)})
        reason = f"Dense dense_a has {count} variables, but {stored} are stored"
        assert _reason(path) == (None if stored == count else reason)


@pytest.mark.parametrize(("version", "helps"), [("3.12.0", True), ("3.15.1", False)])
def test_saving_a_calibrated_archive_again_does_not_help(
    tmp_path: Path, version: str, *, helps: bool
) -> None:
    """Keras 3.15 never writes the zero points of GPTQ and AWQ to archives."""
    policy = _policy("GPTQDTypePolicy", "gptq/4/2")
    damaged = _archive(tmp_path, _layer(policy), {str(number): (2,) for number in range(4)})
    with zipfile.ZipFile(damaged) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["metadata.json"] = json.dumps({"keras_version": version}).encode()
    (cause,) = policytool.inspect(keras_zip(damaged, members)).releases["keras3.15"].causes
    assert cause.remedy.startswith("save the model again") is helps


def test_int4_stores_kernels_as_matrices(tmp_path: Path) -> None:
    """The rows of an EinsumDense kernel are the sizes that are summed over."""
    layer = _layer(_policy("Int4DTypePolicy", "int4/-1"))
    config = {**layer["config"], "equation": "ab,bcd->acd", "output_shape": [2, 5]}
    del config["units"], config["use_bias"]
    layer = {**layer, "class_name": "EinsumDense", "config": {**config, "bias_axes": None}}
    model = {**sequential(INPUT, layer), "module": "keras", "registered_name": None}
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file["layers/einsum_dense/vars/0"] = np.zeros((6, 6), "int8")
        file["layers/einsum_dense/vars/1"] = np.zeros(10, "float32")
    members = {**keras_members(model), "model.weights.h5": buffer.getvalue()}
    path = keras_zip(tmp_path / "model.keras", members)
    assert _reason(path) == (
        "the variable kernel of EinsumDense dense_a has the shape (6, 5), but (6, 6) is stored"
    )


def _normalized(layer: Config) -> Config:
    return instance3(
        "SpectralNormalization", name="norm", trainable=True, dtype="float32", layer=layer
    )


@pytest.mark.parametrize(
    ("policy", "loads"),
    [
        (INT8, False),
        ("int8_from_float32", False),
        (_policy("Int4DTypePolicy", "int4/-1"), False),
        ("float8_from_float32", True),
        ("float32", True),
    ],
)
def test_kernel_of_integers_is_not_normalized(
    tmp_path: Path,
    policy: object,
    loads: bool,  # noqa: FBT001
) -> None:
    """
    SpectralNormalization divides the kernel by its norm, which fails for integers: 128 files of
    Keras 3.3 to 3.15 load in no release.
    """
    model = {**sequential(INPUT, _normalized(_layer(policy))), "module": "keras"}
    path = tmp_path / "model.json"
    path.write_text(json.dumps({**model, "registered_name": None, "build_config": {}}))
    reason = (
        "SpectralNormalization cannot normalize the kernel of a layer quantized to int8 or int4"
    )
    assert (_reason(path) == reason) is not loads


def test_kernel_of_a_layer_that_is_never_quantized_is_normalized(tmp_path: Path) -> None:
    """Keras 3.15 loads a file with Conv2D under int8_from_bfloat16."""
    layer = instance3("Conv1D", name="conv", dtype=INT8, filters=2, kernel_size=[1])
    path = tmp_path / "model.json"
    model = {**sequential(INPUT, _normalized(layer)), "module": "keras", "registered_name": None}
    path.write_text(json.dumps({**model, "build_config": {}}))
    assert "SpectralNormalization cannot" not in str(_reason(path))


@pytest.mark.parametrize(("rank", "loads"), [(None, True), (3, False)])
def test_normalized_kernel_with_lora_is_no_variable(
    tmp_path: Path,
    rank: int | None,
    loads: bool,  # noqa: FBT001
) -> None:
    """
    A model with LoRA in SpectralNormalization has the kernel twice, if LoRA was enabled after the
    model was built, and its release fails to load it (measured in Keras 3.3 to 3.15).
    """
    outer = _normalized(_layer("float32", lora_rank=rank))
    model = {**sequential(INPUT, outer), "module": "keras", "registered_name": None}
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        place = "layers/spectral_normalization"
        for name, shape in {
            "vars/0": (6, 2),
            "vars/1": (1, 2),
            "layer/vars/0": (6, 2),
            "layer/vars/1": (2,),
        }.items():
            file[f"{place}/{name}"] = np.zeros(shape, "float32")
    members = {**keras_members(model), "model.weights.h5": buffer.getvalue()}
    path = keras_zip(tmp_path / "model.keras", members)
    reason = "SpectralNormalization norm has 1 variable, but 2 are stored"
    assert _reason(path) == (None if loads else reason)


@pytest.mark.parametrize("is_typed", [True, False])
def test_bfloat16_in_archives_needs_its_dtype(
    tmp_path: Path,
    is_typed: bool,  # noqa: FBT001
) -> None:
    """Keras 3.0 to 3.15 fail with "No cast function available" without the attribute."""
    model = {**sequential(INPUT, _layer("bfloat16")), "module": "keras", "registered_name": None}
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        for place, shape in {"0": (6, 2), "1": (2,)}.items():
            variable = file.create_dataset(f"layers/dense/vars/{place}", shape, "V2")
            if is_typed:
                variable.attrs["dtype"] = "bfloat16"
    members = {**keras_members(model), "model.weights.h5": buffer.getvalue()}
    path = keras_zip(tmp_path / "model.keras", members)
    reason = "bfloat16 variables are stored without their dtype, so that no release can read them"
    assert _reason(path) == (None if is_typed else reason)


_FIRST: Final = tuple(
    f"{tensor}_{name}"
    for tensor in ("inputs", "kernel", "outputs_grad")
    for name in ("scale", "amax_history")
)


@pytest.mark.parametrize("is_first", [True, False])
def test_variables_of_float8_are_first_in_hdf5(
    tmp_path: Path,
    is_first: bool,  # noqa: FBT001
) -> None:
    """
    A layer that is loaded with float8 and LoRA has the variables of float8 before its own. A layer
    that was quantized later stored them in another order (Keras 3.6, loaded in 3.6 to 3.15).
    """
    layer = _layer("float8_from_float32", lora_rank=3)
    outer = {
        **_normalized(layer),
        "class_name": "TimeDistributed",
        "config": {"name": "steps", "trainable": True, "dtype": "float32", "layer": layer},
    }
    inputs = {**INPUT, "config": {**INPUT["config"], "batch_shape": [None, 5, 6]}}
    model = {**sequential(inputs, outer), "module": "keras", "registered_name": None}
    path = h5_model(tmp_path / "model.h5", model, weights=False, keras_version="3.6.0")
    float8 = {name: (1024,) if "amax" in name else () for name in _FIRST}
    own = {"bias": (2,), "lora_kernel_a": (6, 3), "lora_kernel_b": (3, 2)}
    stored = {**float8, **own} if is_first else {**own, **float8}
    with h5py.File(path, "r+") as file:
        weights = file["model_weights"]
        weights.attrs["layer_names"] = ["steps"]
        for name, sizes in {**stored, "kernel": (6, 2)}.items():
            weights[f"steps/dense_a/{name}"] = np.zeros(sizes, "float32")
        names = [f"dense_a/{name}" for name in (*stored, "kernel")]
        weights["steps"].attrs["weight_names"] = names
    reason = "the variable inputs_scale of TimeDistributed steps has the shape (), but (2,)"
    assert (_reason(path) or "").startswith("" if is_first else reason)
    assert (_reason(path) is None) is is_first


@pytest.mark.parametrize(("shape", "loads"), [((6, 1), True), ((3, 2), False)])
def test_packed_kernel_is_compared_in_hdf5(
    tmp_path: Path,
    shape: tuple[int, ...],
    loads: bool,  # noqa: FBT001
) -> None:
    """Keras 3.12 packs rows of int4 kernels, and Keras 3.15 columns, also in HDF5 (12 files)."""
    model = {**sequential(INPUT, _layer("int4_from_float32")), "module": "keras"}
    model = {**model, "registered_name": None}
    path = h5_model(tmp_path / "model.h5", model, weights=False, keras_version="3.12.0")
    stored = {"kernel": shape, "bias": (2,), "kernel_scale": (2,)}
    with h5py.File(path, "r+") as file:
        weights = file["model_weights"]
        weights.attrs["layer_names"] = ["dense_a"]
        for name, sizes in stored.items():
            weights[f"dense_a/mlp/dense_a/{name}"] = np.zeros(sizes, "int8")
        weights["dense_a"].attrs["weight_names"] = [f"mlp/dense_a/{name}" for name in stored]
    reason = "the variable kernel of Dense dense_a has the shape (6, 1), but (3, 2) is stored"
    assert _reason(path) == (None if loads else reason)


@pytest.mark.parametrize("is_first", [True, False])
def test_normalized_kernel_is_the_first_variable_in_hdf5(
    tmp_path: Path,
    is_first: bool,  # noqa: FBT001
) -> None:
    """A layer that was quantized to float8 when it had a bias does not load (Keras 3.6, 3.15)."""
    outer = _normalized(_layer("float8_from_float32"))
    model = {**sequential(INPUT, outer), "module": "keras", "registered_name": None}
    path = h5_model(tmp_path / "model.h5", model, weights=False, keras_version="3.15.0")
    float8 = {name: (1024,) if "amax" in name else () for name in _FIRST}
    bias = {"bias": (2,)}
    inner = {**float8, **bias} if is_first else {**bias, **float8}
    stored = {"kernel": (6, 2), **inner, "vector_u": (1, 2)}
    with h5py.File(path, "r+") as file:
        weights = file["model_weights"]
        weights.attrs["layer_names"] = ["norm"]
        for name, sizes in stored.items():
            weights[f"norm/dense_a/{name}"] = np.zeros(sizes, "float32")
        weights["norm"].attrs["weight_names"] = [f"dense_a/{name}" for name in stored]
    assert (_reason(path) is None) is is_first


@pytest.mark.parametrize(("history", "stored"), [(None, 1024), (16, 16)])
@pytest.mark.parametrize("more", [0, 1])
def test_length_of_float8_histories_is_that_of_the_policy(
    tmp_path: Path, history: int | None, stored: int, more: int
) -> None:
    """Keras 3.3 and 3.15 fail to load a history with another number of steps."""
    policy = _policy("QuantizedFloat8DTypePolicy", "float8")
    if history is not None:
        policy["config"]["amax_history_length"] = history
    shapes = {"0": (6, 2), "1": (2,)}
    for number in (0, 2, 4):
        shapes |= {str(2 + number): (), str(3 + number): (stored + more,)}
    verdict = policytool.inspect(_archive(tmp_path, _layer(policy), shapes)).releases[NEWEST]
    assert ("amax_history" in str(verdict.reason)) is bool(more)


@pytest.mark.parametrize("marked", [False, True])
def test_only_a_shared_layer_may_be_stored_once(tmp_path: Path, *, marked: bool) -> None:
    """Keras 3.15 fails if the variables of one of two cells with one name are not stored."""
    layer = _layer("float32")
    entries = [layer, {**layer, **({"shared_object_id": 7} if marked else {})}]
    models = [
        {**sequential(INPUT, entry, name=name), "module": "keras", "registered_name": None}
        for name, entry in zip("ab", entries, strict=True)
    ]
    whole = {**sequential(INPUT, *models), "module": "keras", "registered_name": None}
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        for place, shape in {"0": (6, 2), "1": (2,)}.items():
            file[f"layers/sequential/layers/dense/vars/{place}"] = np.zeros(shape, "float32")
    members = {**keras_members(whole), "model.weights.h5": buffer.getvalue()}
    verdict = policytool.inspect(keras_zip(tmp_path / "m.keras", members)).releases[NEWEST]
    assert ("no stored variables" in str(verdict.reason)) is not marked


@pytest.mark.parametrize(("class_name", "fails"), [("Functional", True), ("Sequential", False)])
def test_tf_2_4_counts_the_variables_of_a_nested_functional(
    tmp_path: Path, class_name: str, *, fails: bool
) -> None:
    """TF 2.4 ignores further variables of a nested Sequential only, and TF 2.9 of both."""
    graph = {"input_layers": [["x", 0, 0]], "output_layers": [["dense_a", 0, 0]]}
    layer = {**dense("dense_a", use_bias=True), "name": "dense_a"}
    layer["inbound_nodes"] = [[["x", 0, 0, {}]]]
    inputs = {**INPUT, "name": "x", "inbound_nodes": []}
    inputs["config"] = {"batch_input_shape": [None, 6], "dtype": "float32", "name": "x"}
    inner = sequential(inputs, layer, name="inner")
    if class_name == "Functional":
        inner = {**inner, "class_name": class_name, "config": {**inner["config"], **graph}}
    path = h5_model(tmp_path / "m.h5", sequential(inputs, inner), weights=False)
    with h5py.File(path, "r+") as file:
        group = file["model_weights"].create_group("inner")
        names = [f"dense_a/{name}:0" for name in ("kernel", "bias", "more")]
        for name, shape in zip(names, ((6, 2), (2,), (2,)), strict=True):
            group[name] = np.zeros(shape, "float32")
        group.attrs["weight_names"] = [name.encode() for name in names]
        file["model_weights"].attrs["layer_names"] = [b"inner"]
    found = policytool.inspect(path).releases
    reasons = {name: "3 are stored" in str(found[name].causes) for name in ("tf2.4", "tf2.9")}
    assert reasons == {"tf2.4": fails, "tf2.9": False}


@pytest.mark.parametrize(("columns", "fails"), [(2, False), (3, True)])
def test_kernel_of_a_quantized_layer_in_hdf5_has_its_shape(
    tmp_path: Path, columns: int, *, fails: bool
) -> None:
    """Keras 3.3 and 3.13 fail to load an int8 kernel with one more column."""
    layer = _layer(INT8)
    path = h5_model(
        tmp_path / "m.h5", sequential(INPUT, layer), weights=False, keras_version="3.12.0"
    )
    with h5py.File(path, "r+") as file:
        group = file["model_weights"].create_group("dense_a")
        shapes = {"bias": (2,), "kernel": (6, columns), "kernel_scale": (2,)}
        for name, shape in shapes.items():
            group[name] = np.zeros(shape, "float32")
        group.attrs["weight_names"] = [name.encode() for name in shapes]
        file["model_weights"].attrs["layer_names"] = [b"dense_a"]
    reason = policytool.inspect(path).releases[NEWEST].reason
    assert ("the variable kernel" in str(reason)) is fails


@pytest.mark.parametrize(
    ("first", "fails"), [("InputLayer", False), ("Dense", True), ("Functional", True)]
)
def test_keras_2_builds_a_sequential_for_the_first_layer_in_its_first_model(
    tmp_path: Path, first: str, *, fails: bool
) -> None:
    """
    tf_keras 2.21 loads an archive of a Sequential that begins with a Sequential with an InputLayer,
    without the variables of its other layers.
    """
    inputs = {"class_name": "InputLayer", "config": {"batch_input_shape": [None, 6], "name": "x"}}
    shaped = dense("dense_b", batch_input_shape=[None, 6])
    inner = sequential(
        *([shaped] if first == "Dense" else [inputs, dense("dense_b")]), name="inner"
    )
    if first == "Functional":
        graph = {"input_layers": [["x", 0, 0]], "output_layers": [["dense_b", 0, 0]]}
        calls: tuple[list[object], ...] = ([], [[["x", 0, 0, {}]]])
        layers = [
            {**layer, "name": layer["config"]["name"], "inbound_nodes": nodes}
            for layer, nodes in zip(inner["config"]["layers"], calls, strict=True)
        ]
        inner = {
            **inner,
            "class_name": first,
            "config": {**inner["config"], **graph, "layers": layers},
        }
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        for place, shape in {"0": (6, 2), "1": (2,)}.items():
            file[f"layers/{first.lower()}/layers/dense/vars/{place}"] = np.zeros(shape, "float32")
    metadata = json.dumps({"keras_version": "2.21.0"}).encode()
    model = sequential(inner, dense("dense_a"))
    members = {
        **keras_members({**model, "module": "keras"}),
        "metadata.json": metadata,
        "model.weights.h5": buffer.getvalue(),
    }
    verdict = policytool.inspect(keras_zip(tmp_path / "m.keras", members)).releases["tf_keras2.21"]
    assert any("mlp/dense_a" in cause.layers for cause in verdict.causes) is fails
