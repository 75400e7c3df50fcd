"""Verdicts on files with other names, edited configs and damaged values, as releases load them."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest

import policytool
from policytool.model.compatibility.file_names import needed_name, without_path
from policytool.model.compatibility.incompatibilities import EXPORTED
from policytool.releases.releases import KERAS3, family_of
from tests.helpers import changed_fixtures
from tests.helpers.convertible_models import input2
from tests.helpers.paths import FIXTURES
from tests.helpers.small_models import dense, h5_model, keras_members, keras_zip, sequential
from tests.model.compatibility.test_configs import functional

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from policytool.model.model import Verdict


def _verdicts(path: Path) -> Mapping[str, Verdict]:
    return policytool.inspect(str(path)).releases


def test_export_returns_no_keras_model() -> None:
    """Releases of Keras 2 fail with an export, or return an object that is not a Keras model."""
    found = _verdicts(FIXTURES / "keras3.15/default_float32.export")
    assert {found[name].reason for name in found if family_of(name) != KERAS3} == {EXPORTED}


def test_strings_are_not_restored_into_numbers(tmp_path: Path) -> None:
    """A cast of strings to the dtype of a variable fails in all releases."""
    copy = tmp_path / "model.h5"
    shutil.copyfile(FIXTURES / "keras3.15/default_float32.h5", copy)
    with h5py.File(copy, "r+") as file:
        names: list[str] = []
        file["model_weights"].visititems(
            lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None
        )
        shape = file["model_weights"][names[0]].shape
        del file["model_weights"][names[0]]
        file["model_weights"].create_dataset(names[0], data=np.zeros(shape, "S8"))
    reason = _verdicts(copy)["keras3.15"].reason
    assert reason is not None
    assert reason.endswith("has numbers, but strings are stored")


def test_savedmodel_without_variables_needs_its_checkpoint(tmp_path: Path) -> None:
    """TensorFlow reads the checkpoint of a model without variables."""
    copy = tmp_path / "model"
    shutil.copytree(FIXTURES / "tf2.15/string_lookup", copy)
    shutil.rmtree(copy / "variables")
    assert _verdicts(copy)["tf2.15"].reason is not None


def _cropping(cropping: list[int]) -> dict[str, Any]:
    config = {"name": "crop", "dtype": "float32", "cropping": cropping}
    return {"class_name": "Cropping1D", "config": {**config, "batch_input_shape": [None, 4, 2]}}


def test_keras3_rejects_a_crop_of_everything(tmp_path: Path) -> None:
    """Keras 2 returns an empty tensor."""
    for cropping, fails in (([1, 2], False), ([2, 2], True), ([3, 4], True)):
        path = h5_model(tmp_path / "m.h5", sequential(_cropping(cropping)), weights=False)
        cause = "a cropping layer leaves nothing of its input"
        reasons = [cause.reason for cause in _verdicts(path)["keras3.15"].causes]
        assert (cause in reasons) is fails, cropping


def test_functional_instance_of_a_subclass_is_no_subclassed_model(tmp_path: Path) -> None:
    """Its config in HDF5 is that of a functional model, so that only its code is unknown."""
    config = {
        "class_name": "Trainer",
        "config": {"name": "m", "layers": [], "input_layers": [], "output_layers": []},
    }
    reasons = [
        cause.reason for cause in _verdicts(h5_model(tmp_path / "m.h5", config))["tf2.15"].causes
    ]
    assert "HDF5 does not support subclassed models" not in reasons


def test_unknown_key_of_an_op_layer_is_named(tmp_path: Path) -> None:
    """Op layers take no other arguments than the other layers."""
    config = {"name": "op", "trainable": True, "function": "nn.relu", "dtype_policy": "float32"}
    layers = sequential(dense(), {"class_name": "TFOpLambda", "config": config})
    verdict = _verdicts(h5_model(tmp_path / "m.h5", layers))["tf2.15"]
    assert "TFOpLambda has the key dtype_policy" in str([doubt.reason for doubt in verdict.doubts])


def test_activation_that_was_not_built_has_no_variables(tmp_path: Path) -> None:
    """Keras 3 builds a layer that is an activation only for a shape in the file."""
    config = {"name": "slope", "dtype": "float32"}
    prelu = {"module": "keras.layers", "class_name": "PReLU", "config": config}

    def change(model: dict[str, Any]) -> None:
        found = next(one for one in model["config"]["layers"] if one["class_name"] == "Dense")
        found["config"]["activation"] = prelu

    path = changed_fixtures.keras_zip(tmp_path, "keras3.15/default_float32.keras", change)
    assert _verdicts(path)["keras3.15"].reason is None


def _edited(tmp_path: Path, edit: Callable[[dict[str, Any]], None]) -> Mapping[str, Verdict]:
    path = changed_fixtures.keras_zip(tmp_path, "keras3.15/default_float32.keras", edit)
    return _verdicts(path)


def _first(model: dict[str, Any], class_name: str) -> dict[str, Any]:
    layers = model["config"]["layers"]
    found: dict[str, Any] = next(layer for layer in layers if layer["class_name"] == class_name)
    return found


def test_input_accepts_only_policies_that_name_a_dtype(tmp_path: Path) -> None:
    """Keras 3.6 and 3.15 load a policy in a dict, and no release a mixed policy."""
    policy = {"module": "keras", "class_name": "DTypePolicy", "config": {"name": "float32"}}
    for dtype, fails in (("float32", False), (policy, False), ("mixed_float16", True)):

        def edit(model: dict[str, Any], dtype: object = dtype) -> None:
            _first(model, "InputLayer")["config"]["dtype"] = dtype

        verdicts = _edited(tmp_path, edit)
        assert (verdicts["keras3.15"].reason is not None) is fails, dtype
        reason = "an InputLayer has a policy instead of a dtype"
        is_policy = dtype != "float32"
        assert (reason in [one.reason for one in verdicts["keras3.0"].causes]) is is_policy, dtype
        reason = "an InputLayer has a policy object instead of a dtype"
        causes = [one.reason for one in verdicts["keras3.3"].causes]
        assert (reason in causes) is isinstance(dtype, dict), dtype


def test_input_without_a_shape(tmp_path: Path) -> None:
    """Keras 3 requires a shape, and Keras 2 does not build layers that need one."""
    config = functional(input2("a", 6), {**dense("b"), "inbound_nodes": [[["a", 0, 0, {}]]]})
    del config["config"]["layers"][0]["config"]["batch_input_shape"]
    verdicts = _verdicts(h5_model(tmp_path / "model.h5", config, weights=False))
    reason = "an InputLayer has no `batch_input_shape`, without which many layers are not built"
    assert reason in [doubt.reason for doubt in verdicts["tf2.15"].doubts]
    assert verdicts["keras3.15"].reason == "an InputLayer has no shape, which Keras 3 requires"


def test_layer_without_a_module_is_not_found(tmp_path: Path) -> None:
    """Keras 3.0, 3.6 and 3.15 do not look up such a class, nor a class of tf_keras."""
    for module, reason in (
        (None, "the module of a layer is null"),
        ("tf_keras.layers", "a layer is in a module of tf_keras"),
        ("keras.src.layers", None),
    ):

        def edit(model: dict[str, Any], module: str | None = module) -> None:
            _first(model, "Dense")["module"] = module

        assert _edited(tmp_path, edit)["keras3.15"].reason == reason


def test_output_of_a_missing_layer_is_not_found(tmp_path: Path) -> None:
    """Every release fails with an error about the graph."""

    def edit(model: dict[str, Any]) -> None:
        model["config"]["output_layers"][0] = "gone"

    reason = "a call or an output uses the result of a layer that its model does not have"
    assert _edited(tmp_path, edit)["keras3.15"].reason == reason


_ARCHIVE_NAME = "Keras loads an archive only if its name ends with .keras"
_HDF5_NAME = "Keras 3 loads HDF5 only if its name ends with .h5 or .hdf5"
_DIRECTORY_NAME = "Keras does not load a directory whose name ends with .keras"
_UNPACKED = "unpacked archives need Keras 3.4 or later"


def _written(path: Path, kind: str) -> Path:
    """Write a model as HDF5, as an archive, or as an unpacked archive."""
    members = keras_members({**sequential(dense()), "module": "keras"})
    if kind == "h5":
        return h5_model(path, sequential(dense()), weights=False)
    if kind == "keras":
        return keras_zip(path, members)
    path.mkdir()
    for member, data in members.items():
        (path / member).write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("kind", "name", "reasons", "expected"),
    [
        ("h5", "m.h5", (None, None, None), ""),
        ("h5", "m.hdf5", (None, None, None), ""),
        ("h5", "m.keras", (None, _HDF5_NAME, _HDF5_NAME), "m.h5"),
        ("h5", "m.H5", (None, _HDF5_NAME, _HDF5_NAME), "m.h5"),
        ("h5", "m v1.2", (None, _HDF5_NAME, _HDF5_NAME), "m v1.2.h5'"),
        ("keras", "m.keras", (None, None, None), ""),
        ("keras", "m.bin", (_ARCHIVE_NAME, _ARCHIVE_NAME, _ARCHIVE_NAME), "m.keras"),
        ("keras", "m", (_ARCHIVE_NAME, _ARCHIVE_NAME, _ARCHIVE_NAME), "m.keras"),
        ("unpacked", "m", (_UNPACKED, _UNPACKED, None), ""),
        ("unpacked", "m.h5", (_UNPACKED, _UNPACKED, None), ""),
        ("unpacked", "m.keras", (_UNPACKED, _UNPACKED, _DIRECTORY_NAME), "m"),
    ],
)
def test_keras_selects_the_format_by_the_name(
    tmp_path: Path, kind: str, name: str, reasons: tuple[str | None, ...], expected: str
) -> None:
    """A file under another name fails, and the reason has the command that renames it."""
    verdicts = _verdicts(_written(tmp_path / name, kind))
    about_names = {_ARCHIVE_NAME, _HDF5_NAME, _DIRECTORY_NAME, _UNPACKED}
    for loader, reason in zip(("tf2.15", "keras3.0", "keras3.15"), reasons, strict=True):
        causes = {without_path(cause.reason) for cause in verdicts[loader].causes}
        assert causes & about_names == ({reason} if reason else set())
    command = needed_name(verdicts["keras3.15"])
    assert (command or "").endswith(expected)
    assert (command is None) == (not expected)


@pytest.mark.parametrize(
    ("attribute", "reads", "trains"),
    [
        (None, True, True),
        ("model_config", False, False),
        ("training_config", True, False),
        ("layer_names", False, False),
    ],
)
def test_older_releases_decode_only_bytes(
    tmp_path: Path, attribute: str | None, *, reads: bool, trains: bool
) -> None:
    """A str that h5py writes as an attribute is Unicode text, which h5py 2 decodes itself."""
    copy = tmp_path / "model.h5"
    shutil.copyfile(FIXTURES / "tf2.3/default_float32_compiled.h5", copy)
    if attribute is not None:
        with h5py.File(copy, "r+") as file:
            holder = file["model_weights"] if attribute == "layer_names" else file
            text = np.char.decode(np.asarray(holder.attrs[attribute], "S"))
            del holder.attrs[attribute]
            holder.attrs[attribute] = text.tolist()
    verdicts = _verdicts(copy)
    for loader, is_old in (("tf2.4", True), ("tf2.5", False)):
        verdict = verdicts[loader]
        assert verdict.loads is (reads or not is_old)
        if verdict.loads:
            assert verdict.training is not None
            assert (verdict.training.reason is None) is (trains or not is_old)


@pytest.mark.parametrize(
    ("module", "loads"),
    [
        ("keras.layers", True),
        ("keras.src.layers", True),
        ("keras.src.layers.core.dense", True),
        ("keras", False),
        ("keras.models", False),
        ("keras.src.layers.core", False),
        ("keras.layers.core", False),
        ("tensorflow.keras.layers", False),
    ],
)
def test_module_of_a_layer_contains_its_class(tmp_path: Path, module: str, *, loads: bool) -> None:
    """Keras 3 looks up a class in the stored module, and in no other."""
    config = json.loads((FIXTURES / "keras3.0/default_float32.json").read_text(encoding="utf-8"))
    (layer,) = (one for one in config["config"]["layers"] if one["config"]["name"] == "dense")
    assert layer["class_name"] == "Dense"
    layer["module"] = module
    path = tmp_path / "model.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    assert _verdicts(path)["keras3.15"].loads is loads
