"""Verdicts on files with other names, edited configs and damaged values, as releases load them."""

from __future__ import annotations

import io
import json
import shutil
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest
from msgspec.structs import replace

import policytool
from policytool.formats.document import Document
from policytool.model import writer_version
from policytool.model.compatibility.evidence import Evidence
from policytool.model.compatibility.file_names import needed_name, without_path
from policytool.model.compatibility.incompatibilities import EXPORTED, REFUSALS
from policytool.releases.releases import KERAS3, family_of
from tests.helpers import changed_fixtures
from tests.helpers.convertible_models import input2
from tests.helpers.paths import FIXTURES
from tests.helpers.small_models import (
    Config,
    dense,
    h5_model,
    instance,
    instance3,
    keras_members,
    keras_zip,
    sequential,
)
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
    config = functional(
        input2("a", 6), {**dense("b"), "name": "b", "inbound_nodes": [[["a", 0, 0, {}]]]}
    )
    del config["config"]["layers"][0]["config"]["batch_input_shape"]
    verdicts = _verdicts(h5_model(tmp_path / "model.h5", config, weights=False))
    reason = "an InputLayer has no `batch_input_shape`, without which many layers are not built"
    assert reason in [doubt.reason for doubt in verdicts["tf2.15"].doubts]
    assert verdicts["keras3.15"].reason == "an InputLayer has no shape, which Keras 3 requires"


def test_layer_without_a_module_is_not_found(tmp_path: Path) -> None:
    """Keras 3.0, 3.6 and 3.15 do not look up such a class, nor one in another module."""
    misplaced = (
        "a layer class of Keras has a module that does not contain it; Keras writes keras.layers"
    )
    for module, reason in (
        (None, "the module of a layer is null"),
        ("tf_keras.layers", misplaced),
        ("keras.src.layers.core.dropout", misplaced),
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


def _changed_dense(**arguments: object) -> Callable[[dict[str, Any]], None]:
    def change(model: dict[str, Any]) -> None:
        config = _first(model, "Dense")["config"]
        for key, value in arguments.items():
            config[key] = {**config[key], **value} if isinstance(value, dict) else value

    return change


_NULL = "the module of an initializer, regularizer or constraint is null"
_ARCHIVE = "the archive does not specify the module of the model class"
_NO_ROOT = "the model class is in a module that does not exist in Keras 3"
_FUNCTION = "an activation is a function in a module that does not contain it"
_TYPED = "an InputLayer has a `type_spec` beside other arguments"


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (_changed_dense(kernel_initializer={"module": None}), _NULL),
        (_changed_dense(dtype={"module": None}), _NULL),
        (_changed_dense(kernel_initializer={"module": "keras.layers"}), None),
        (lambda model: model.update(module=None), _ARCHIVE),
        (lambda model: model.pop("module"), _ARCHIVE),
        (lambda model: model.update(module="keras"), _NO_ROOT),
        (lambda model: model.update(module="keras.src.models.sequential"), None),
        (lambda model: _first(model, "InputLayer")["config"].update(type_spec=None), None),
    ],
)
def test_module_of_an_edited_object(
    tmp_path: Path, edit: Callable[[dict[str, Any]], None], reason: str | None
) -> None:
    """Keras 3.0 and 3.15 ignore the module of an initializer unless it is null."""
    assert _edited(tmp_path, edit)["keras3.15"].reason == reason


@pytest.mark.parametrize(
    ("module", "lacking"),
    [
        ({}, {"keras3.0", "keras3.15"}),
        ({"module": None}, {"keras3.15"}),
        ({"module": "builtins"}, set()),
        ({"module": "keras.activations"}, set()),
        ({"module": "keras.src.layers"}, {"keras3.0", "keras3.15"}),
    ],
)
def test_module_of_an_activation(tmp_path: Path, module: dict[str, Any], lacking: set[str]) -> None:
    """Keras 2 reads a function in a dict only in archives and JSON."""
    function = {"class_name": "function", "config": "relu", "registered_name": "relu", **module}

    def edit(model: dict[str, Any]) -> None:
        _first(model, "Dense")["config"]["activation"] = function

    verdicts = _edited(tmp_path, edit)
    for loader in ("keras3.0", "keras3.15"):
        reasons = {cause.reason for cause in verdicts[loader].causes}
        assert (_FUNCTION in reasons) is (loader in lacking), loader
    model = sequential(dense(activation=function))
    path = h5_model(tmp_path / "m.h5", model, weights=False)
    reason = "an activation is a function in a dict, which Keras 2 reads only in archives and JSON"
    assert _verdicts(path)["tf2.15"].reason == reason
    path = tmp_path / "m.json"
    path.write_text(json.dumps(model), encoding="utf-8")
    reason = "an activation is a function in a dict, which needs TF 2.13 or later"
    assert _verdicts(path)["tf2.12"].reason == reason


def _json(tmp_path: Path, model: dict[str, Any]) -> Mapping[str, Verdict]:
    path = tmp_path / "model.json"
    path.write_text(json.dumps(model), encoding="utf-8")
    return _verdicts(path)


def test_null_module_of_a_model_in_json(tmp_path: Path) -> None:
    """Keras 2 needs no module, but does not read null since TF 2.13."""
    model = sequential(dense(batch_input_shape=[None, 6]))
    reason = "the module of the model class is null"
    assert _json(tmp_path, {**model, "module": None})["tf2.15"].reason == reason
    assert _json(tmp_path, model)["tf2.15"].reason is None


def test_type_of_an_input_excludes_other_arguments(tmp_path: Path) -> None:
    """Measured in TF 2.12 and 2.15, tf_keras 2.21 and Keras 3.0."""
    config = functional(
        input2("a", 6), {**dense("b"), "name": "b", "inbound_nodes": [[["a", 0, 0, {}]]]}
    )
    config["config"]["layers"][0]["config"]["type_spec"] = {"class_name": "TypeSpec"}
    verdicts = _verdicts(h5_model(tmp_path / "model.h5", config, weights=False))
    for loader in ("tf2.12", "tf2.15", "keras3.0"):
        assert verdicts[loader].reason == _TYPED, loader
    assert _TYPED not in [cause.reason for cause in verdicts["keras3.15"].causes]


@pytest.mark.parametrize(
    ("axis", "failing"),
    [
        (-1, set()),
        ([-1], set()),
        ([], set()),
        (None, set()),
        (0, {"tf2.15", "keras3.15"}),
        ([0], {"tf2.15", "keras3.0", "keras3.15"}),
        (2, {"tf2.15", "keras3.15"}),
        ([0, 1], {"tf2.15"}),
    ],
)
def test_axis_of_a_normalization(tmp_path: Path, axis: object, failing: set[str]) -> None:
    """Keras 3 drops some axes of HDF5; a size that is unknown cannot be kept."""
    config = {"name": "n", "dtype": "float32", "axis": axis, "batch_input_shape": [None, 3]}
    layer = {"class_name": "Normalization", "config": config}
    path = h5_model(tmp_path / "m.h5", sequential(layer), weights=False)
    reason = "a Normalization has an axis that its input does not have, or whose size is unknown"
    verdicts = _verdicts(path)
    assert failing == {
        loader
        for loader in ("tf2.15", "keras3.0", "keras3.15")
        if reason in [cause.reason for cause in verdicts[loader].causes]
    }


def test_cells_in_cells_with_several_states(tmp_path: Path) -> None:
    """TF 2.3, 2.4 and 2.5 do not add up the states."""

    def stacked(*cells: dict[str, Any]) -> dict[str, Any]:
        return {"class_name": "StackedRNNCells", "config": {"name": "s", "cells": list(cells)}}

    reason = "a StackedRNNCells in a StackedRNNCells has a cell of several states"
    for name, fails in (("LSTMCell", True), ("GRUCell", False)):
        cell = {"class_name": name, "config": {"name": "c", "units": 2}}
        config = {"name": "r", "trainable": True, "cell": stacked(cell, stacked(cell))}
        layer = {"class_name": "RNN", "config": {**config, "batch_input_shape": [None, 3, 2]}}
        path = h5_model(tmp_path / "m.h5", sequential(layer), weights=False)
        causes = [cause.reason for cause in _verdicts(path)["tf2.5"].causes]
        assert (reason in causes) is fails, name


def test_layers_that_only_keras_3_0_does_not_restore(tmp_path: Path) -> None:
    """Keras 3.3 loads what it writes."""
    dot = {"class_name": "Dot", "config": {"name": "d", "axes": 1}, "module": "keras.layers"}
    verdicts = _json(tmp_path, {**sequential(dot), "module": "keras"})
    reason = "Keras 3.0 does not build a Dot for stored shapes"
    assert reason in [cause.reason for cause in verdicts["keras3.0"].causes]
    assert reason not in [cause.reason for cause in verdicts["keras3.3"].causes]


def test_keras_2_does_not_have_operations(tmp_path: Path) -> None:
    """tf_keras 2.21 does not know the layer GetItem."""
    operation = {"class_name": "GetItem", "config": {"name": "g"}, "inbound_nodes": [], "name": "g"}
    config = functional(input2("a", 6), {**operation, "module": "keras.src.ops.numpy"})
    reason = "Keras 2 does not have the operations of Keras 3"
    verdicts = _verdicts(h5_model(tmp_path / "model.h5", config, weights=False))
    assert reason in [cause.reason for cause in verdicts["tf2.15"].causes]


def _unbuilt(*layers: Config) -> Config:
    """Return a Sequential as Keras 3.0 writes it to HDF5 if no input shape is known."""
    result = sequential(*layers)
    result["config"] |= {"trainable": True, "dtype": "float32"}
    return result


EMBEDDING = instance("Embedding", name="ids", dtype="float32", input_dim=7, output_dim=4)


@pytest.mark.parametrize(
    ("layers", "fails"),
    [
        ([dense()], False),
        ([EMBEDDING], True),
        ([instance("TimeDistributed", name="steps", dtype="float32", layer=EMBEDDING)], False),
        ([_unbuilt()], True),
        ([dense("first"), _unbuilt()], True),
        ([instance("TimeDistributed", name="steps", dtype="float32", layer=_unbuilt())], True),
        ([_unbuilt(EMBEDDING), dense()], True),
    ],
    ids=["layer", "embedding", "embedding in wrapper", "chain", "later", "in wrapper", "both"],
)
def test_keras2_reads_no_variables_of_a_model_that_was_not_built(
    layers: list[Config], *, fails: bool, tmp_path: Path
) -> None:
    """
    Keras 2 builds a model that begins with an Embedding, for which nothing is stored, and fails to
    read a chain in it that it does not build (measured in TF 2.4, 2.9, 2.15 and tf_keras 2.21, and
    in Keras 3.0, which loads all).
    """
    path = h5_model(tmp_path / "m.h5", _unbuilt(*layers), weights=False, keras_version="3.0.5")
    found = _verdicts(path)
    for release in ("tf2.4", "tf2.9", "tf2.15", "tf_keras2.21"):
        assert (found[release].reason is not None) is fails, release
    assert found["keras3.0"].reason is None


def test_keras_3_0_restores_a_bidirectional_without_variables(tmp_path: Path) -> None:
    """It fails only to find stored variables (measured with a layer that was never called)."""
    layer = instance3("LSTM", name="forward_lstm", units=3)
    config = instance3(
        "Sequential",
        "keras",
        name="m",
        layers=[instance3("Bidirectional", name="both", merge_mode="concat", layer=layer)],
    )
    members = keras_members(config)
    reason = "Keras 3.0 does not find the variables of Bidirectional layers in archives"
    stored = keras_zip(tmp_path / "stored.keras", members)
    assert reason in str(_verdicts(stored)["keras3.0"].causes)
    buffer = io.BytesIO()
    h5py.File(buffer, "w").close()
    empty = keras_zip(tmp_path / "empty.keras", {**members, "model.weights.h5": buffer.getvalue()})
    assert reason not in str(_verdicts(empty)["keras3.0"].causes)


@pytest.mark.parametrize(
    ("dtype", "mode"),
    [("float16", {}), ("float32", {}), ("float64", {}), ("float16", {"output_mode": "multi_hot"})],
)
def test_discretization_of_an_input_in_float16(
    dtype: str, mode: dict[str, str], tmp_path: Path
) -> None:
    """
    TF 2.9 to 2.15 and tf_keras 2.21 do not cast it if they return integers, and TF 2.4 and 2.5 do.
    """
    place = input2("a", 3)
    place["config"]["dtype"] = dtype
    config = {"name": "b", "trainable": True, "dtype": "float32", "bins": [0.0, 1.0]}
    layer = {**instance("Discretization", **config, **mode), "name": "b"}
    layer["inbound_nodes"] = [[["a", 0, 0, {}]]]
    model = h5_model(tmp_path / "m.h5", functional(place, layer), weights=False)
    reason = "a Discretization has an input in float16, which the op Bucketize does not support"
    found = {
        name
        for name, verdict in _verdicts(model).items()
        if reason in [cause.reason for cause in verdict.causes]
    }
    failing = {"tf2.9", "tf2.12", "tf2.15", "tf_keras2.21"}
    assert found == (failing if dtype == "float16" and not mode else set())


@pytest.mark.parametrize(
    ("policy", "fails"), [("float16", True), ("float64", True), ("mixed_float16", False)]
)
def test_statistics_of_normalization_in_another_dtype(policy: str, *, fails: bool) -> None:
    """TF 2.3 and 2.4 create them in float32, and do not restore others."""
    layer = instance("Normalization", name="n", trainable=True, dtype=policy, axis=[-1])
    found = Evidence(
        document=Document(path="m", format="savedmodel"),
        traits=writer_version.of(sequential(layer)),
        releases=frozenset({"tf2.5"}),
    )
    reason = "a Normalization of TF 2.5 has statistics in the dtype of its policy, not in float32"
    (row,) = (row for row in REFUSALS if row.reason == reason)
    assert row.shows(found) is fails
    assert not row.shows(replace(found, releases=frozenset({"tf2.9"})))


def test_tf_2_12_does_not_read_an_array_in_an_archive(tmp_path: Path) -> None:
    """TF 2.12 stores the arguments of a ReLU as arrays, and cannot load them again."""
    slope = {"class_name": "__numpy__", "config": {"value": 0.2, "dtype": "float32"}}

    def change(config: dict[str, Any]) -> None:
        layer = changed_fixtures.layer(config, "activation")
        del layer["activation"]
        layer["negative_slope"] = slope
        config["config"]["layers"][-1]["class_name"] = "ReLU"

    path = changed_fixtures.keras_zip(tmp_path, "tf2.12/default_float32.keras", change)
    reason = policytool.inspect(path).releases["tf2.12"].reason or ""
    assert reason.startswith("an argument of a layer is an array, which Keras 2 reads only in the")


@pytest.mark.parametrize(("name", "fails"), [("LayerScale", False), ("Dense", True)])
def test_custom_layer_with_the_name_of_a_private_class(
    tmp_path: Path, name: str, *, fails: bool
) -> None:
    """Only keras.applications has a LayerScale: without a module, it is in custom_objects."""

    def change(config: dict[str, Any]) -> None:
        config["config"]["layers"][1] |= {"module": None, "class_name": name}
        config["config"]["layers"][1]["registered_name"] = name

    path = changed_fixtures.keras_zip(tmp_path, "keras3.15/default_float32.keras", change)
    causes = policytool.inspect(path).releases["keras3.15"].causes
    assert ("the module of a layer is null" in {cause.reason for cause in causes}) is fails
