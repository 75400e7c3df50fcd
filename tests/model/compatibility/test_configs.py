"""
What the report says of loaders about configs that no fixture has, built as the releases write them.

The real loaders were given models of TF 1.15 to 2.15, tf_keras 2.21 and Keras 3.3 and 3.15 of many
layer classes, with other arguments than the fixtures have.
"""

from __future__ import annotations

import io
import json
import shutil
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import h5py
import numpy as np
import pytest

import policytool
from policytool.formats.document import Document
from policytool.formats.format_detection import document
from policytool.migration.plan import CUSTOM_CODE
from policytool.model import reading
from policytool.model.compatibility.incompatibilities import MASKS_IN_FLOAT32
from policytool.model.model import Obstacle, Outcome
from policytool.releases.releases import LOADERS
from policytool.reports.words import loader_lines
from tests.helpers.convertible_models import (
    input2,
    input3,
    keras3,
    layer2,
    layer3,
    policy,
    tensor,
)
from tests.helpers.paths import FIXTURES
from tests.helpers.small_models import (
    Config,
    Object,
    dense,
    h5_model,
    instance,
    instance3,
    keras_members,
    keras_object,
    keras_zip,
    saved_model,
    sequential,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from policytool.model.model import Verdict

FLOATS: Final[Config] = instance(
    "InputLayer", batch_input_shape=[None, 6, 4], dtype="float32", name="a"
)
DT_FLOAT, DT_DOUBLE = 1, 2
"""The dtypes of variables (tensorflow/core/framework/types.proto)."""

ATTENTION: Final[Config] = instance(
    "MultiHeadAttention", name="b", trainable=True, dtype="float32", num_heads=2, key_dim=3
)
INPUT: Final = input2("a", 6, 4)


def functional(*layers: Config, outputs: tuple[str, ...] = ("b",)) -> Config:
    """Return a functional model."""
    inputs = [[layer["name"], 0, 0] for layer in layers if layer["class_name"] == "InputLayer"]
    ends = [[name, 0, 0] for name in outputs]
    return instance(
        "Functional", name="model", layers=list(layers), input_layers=inputs, output_layers=ends
    )


BY_NAME: Final = functional(
    INPUT,
    {**ATTENTION, "name": "b", "inbound_nodes": [[["a", 0, 0, {"value": ["a", 0, 0]}]]]},
)

KERAS3_LOADERS: Final = tuple(name for name in LOADERS if name.startswith("keras3"))


def with_states(layer: Config) -> Config:
    """
    Return a model with a recurrent layer on a sequence and a state, as Keras 2.3.1 writes it. Keras
    3.6 and 3.15 fail to load it because of the state, and 3.0 and 3.3 for another reason.
    """
    called = {**layer, "name": "b", "inbound_nodes": [[["a", 0, 0, {}], ["s", 0, 0, {}]]]}
    return {**functional(INPUT, input2("s", 3), called), "class_name": "Model"}


GRU: Final[Config] = instance("GRU", name="b", trainable=True, dtype="float32", units=3)

TABLE: Final = "the vocabulary of a layer is a table, which HDF5 cannot contain"

COUNTED: Final = "a layer counts the words of a vocabulary that HDF5 does not contain"

GLOBAL: Final = tuple(
    "the inner layers of MultiHeadAttention use the global policy, so that an op combines float32 "
    f"with {policy.removeprefix('mixed_')}; call set_global_policy('{policy}') before loading"
    for policy in ("mixed_float16", "mixed_bfloat16", "float16", "bfloat16", "float64")
)

MIXED_ATTENTION: Final = (
    "an op combines the result of MultiHeadAttention, which has the dtype of its policy since TF "
    "2.14, with a tensor of another dtype"
)

NETWORK: Final = "the layer class Network exists only in TF 1.13 to 2.2"

REFUSED_CONFIGS: Final[tuple[tuple[Config, str], ...]] = (
    (
        sequential(instance("InputLayer", name="a", dtype="float32"), dense()),
        "an InputLayer has no shape, which Keras 3 requires",
    ),
    (
        sequential(
            instance("PruneLowMagnitude", name="b", pruning_schedule={}, layer=dense()),
        ),
        "layers of tensorflow-model-optimization are layers of Keras 2",
    ),
    (
        BY_NAME,
        (
            "MultiHeadAttention receives `value` as a keyword argument, which Keras 3 does not "
            "support in Keras 2 HDF5 files"
        ),
    ),
    (
        sequential(
            FLOATS,
            instance(
                "TimeDistributed",
                name="b",
                trainable=True,
                dtype="float32",
                layer=instance3(
                    "BatchNormalization", name="n", trainable=True, dtype="float32", axis=[1]
                ),
            ),
        ),
        (
            "the axis of a BatchNormalization layer inside another layer is a list, which Keras "
            "3 supports only in top-level layers"
        ),
    ),
    (
        sequential(
            FLOATS,
            instance(
                "TimeDistributed",
                name="b",
                trainable=True,
                layer={
                    **instance("TimeDistributed", name="c", trainable=True, layer=dense()),
                    "module": "keras.layers",
                    "build_config": {"input_shape": [None, 4]},
                },
            ),
        ),
        (
            "a TimeDistributed in a TimeDistributed stores the input shape of the layer in it, as "
            "tf_keras 2.21 writes it"
        ),
    ),
    (
        sequential(
            instance(
                "Dense",
                name="a",
                trainable=True,
                dtype="float32",
                batch_input_shape=[None, 6, 4],
                units=3,
            ),
            instance("GlobalAveragePooling1D", name="b", trainable=True, dtype="float32"),
        ),
        (
            "Keras 3 reads the input shape of the first layer as a shape without the batch "
            "dimension, and another layer does not accept the extra dimension"
        ),
    ),
    *(
        (
            with_states(layer),
            (
                "a recurrent layer receives its input and states as one list, which Keras 3 does "
                "not support in Keras 2 HDF5 files"
            ),
        )
        for layer in (
            GRU,
            instance("Bidirectional", name="b", trainable=True, dtype="float32", layer=GRU),
        )
    ),
    (
        sequential(
            FLOATS,
            dense(
                kernel_initializer=instance(
                    "TruncatedNormal", mean=0.0, stddev=0.02, seed=None, dtype="float32"
                )
            ),
        ),
        "an initializer has a `dtype`, which Keras 3 does not support",
    ),
    (
        sequential(
            FLOATS,
            instance(
                "Discretization",
                name="b",
                trainable=True,
                dtype="float32",
                bin_boundaries=[0.0, 1.0],
            ),
        ),
        "Discretization has no argument `trainable` in Keras 3",
    ),
    (
        sequential(
            FLOATS,
            instance("Hashing", name="b", trainable=True, dtype="float32", num_bins=4, salt=None),
        ),
        "a Hashing layer has a float dtype, which was the default up to TF 2.5",
    ),
    (
        sequential(FLOATS, dense("block/dense_a")),
        "a layer name contains a slash, which Keras 3 does not allow",
    ),
)
"""
Configs that Keras 3 refuses in HDF5, and why.

Keras 3.0, 3.3, 3.6 and 3.15 were asked about attention, initialisers and Discretization, 3.0 and
3.15 about Hashing; a name with a slash was given to 3.3, and the others check it in the same words
(``ops/operation.py``).
"""

OPEN_CONFIGS: Final[tuple[tuple[Config, str, str], ...]] = (
    (
        sequential(dense(batch_input_shape=[None, 6])),
        "keras3.0 keras3.15",
        "reads the input shape of the first layer",
    ),
    (
        sequential(
            FLOATS,
            instance("LayerNormalization", name="b", trainable=True, axis=[1, 2]),
        ),
        "keras3.0 keras3.15",
        "is ignored when the model is read",
    ),
    (
        sequential(
            FLOATS,
            instance("Normalization", name="b", trainable=True, axis=None),
        ),
        "keras3.6 keras3.15",
        "is ignored when the model is read",
    ),
    (
        sequential(
            FLOATS, {"class_name": "Softmax", "config": {"name": "b", "trainable": True, "axis": 1}}
        ),
        "keras3.0 keras3.6",
        "is ignored when the model is read",
    ),
)
"""
Configs of which Keras 3 made in HDF5 what other releases did not mean, and may refuse for it; the
loaders, and why.
"""


def verdicts_on(config: Config, path: Path) -> Mapping[str, Verdict]:
    """Return the verdict of each release on a config in HDF5."""
    return policytool.inspect(str(h5_model(path, config))).releases


@pytest.mark.parametrize(("config", "reason"), REFUSED_CONFIGS)
def test_config_that_only_keras2_supports_is_incompatible_with_keras3(
    config: Config, reason: str, tmp_path: Path
) -> None:
    """
    A config that only Keras 2 supports is incompatible with every release of Keras 3 for the
    expected reason, and with no other release for this reason.
    """
    found = verdicts_on(config, tmp_path / "model.h5")
    refusing = {
        loader
        for loader, verdict in found.items()
        if reason in [cause.reason for cause in verdict.causes]
    }
    assert refusing == {loader for loader in LOADERS if loader.startswith("keras3")}
    assert found["keras3.15"].reason == reason


def test_einsum_has_lost_its_inputs(tmp_path: Path) -> None:
    """Keras 2 stores the equation as its only argument, and fails in every release."""
    einsum = instance("TFOpLambda", name="b", trainable=True, dtype="float32", function="einsum")
    calls = [["_CONSTANT_VALUE", -1, "abc,adc->abd", {}]]
    layers = (
        {**FLOATS, "name": "a", "inbound_nodes": []},
        {**einsum, "name": "b", "inbound_nodes": calls},
    )
    found = verdicts_on(functional(*layers), tmp_path / "model.h5")
    assert "tf.einsum is stored without its inputs" in str(found["tf_keras2.21"].reason)


@pytest.mark.parametrize(("config", "loaders", "reason"), OPEN_CONFIGS)
def test_config_that_keras3_may_not_load_has_an_unknown_verdict(
    config: Config, loaders: str, reason: str, tmp_path: Path
) -> None:
    """
    A config that some releases of Keras 3 may not load is unknown for these releases, and no other
    release has this doubt.
    """
    found = verdicts_on(config, tmp_path / "model.h5")
    doubted = {
        loader
        for loader, verdict in found.items()
        if any(reason in doubt.reason for doubt in verdict.doubts)
    }
    assert doubted == {
        loader
        for loader in LOADERS
        if loader.startswith("keras3") and ("keras3.15" in loaders or loader != "keras3.15")
    }
    assert doubted >= set(loaders.split())


@pytest.mark.parametrize("axis", [-1, [1], 3])
def test_axis_that_keras3_reads_correctly_raises_no_doubt(axis: object, tmp_path: Path) -> None:
    """A list with one number, the default -1, and 3 as the last axis of images."""
    layer = instance("BatchNormalization", name="b", trainable=True, dtype="float32", axis=axis)
    assert all(
        verdict.not_judged is None
        for verdict in verdicts_on(sequential(FLOATS, layer), tmp_path / "model.h5").values()
    )


def test_sequentials_in_a_sequential_have_no_graph_to_misread(tmp_path: Path) -> None:
    """
    A Sequential in a Sequential of Keras 2 loads in Keras 3.15, because it has no graph; a
    functional model followed by a Dense in a Sequential does not.
    """
    inner = sequential(FLOATS, dense(), name="inner")
    found = verdicts_on(sequential(FLOATS, inner), tmp_path / "model.h5")
    kinds = {cause.kind for cause in found["keras3.15"].causes}
    assert kinds <= {Obstacle.VARIABLES}  # the file has no weights
    model = functional(INPUT, outputs=())
    found = verdicts_on(sequential(FLOATS, model, dense()), tmp_path / "model.h5")
    assert {
        loader
        for loader, verdict in found.items()
        if any("returns a list" in cause.reason for cause in verdict.causes)
    } == {"keras3.0", "keras3.4", "keras3.15"}
    model["class_name"] = "Model"
    found = verdicts_on(sequential(FLOATS, model), tmp_path / "model.h5")
    assert "counts the variables" in str([cause.reason for cause in found["keras3.3"].causes])


@pytest.mark.parametrize(
    ("optimizer", "loss", "expected"),
    [
        ("SGD", "dice", {}),
        ("SGD", ("keras.losses", "Tversky", {}), {"keras3.0": Outcome.INCOMPATIBLE}),
        ("SGD", ("builtins", "function", "mine"), dict.fromkeys(KERAS3_LOADERS, Outcome.UNKNOWN)),
        ("Mine", "mse", dict.fromkeys(KERAS3_LOADERS, Outcome.UNKNOWN)),
    ],
)
def test_json_is_always_compiled(
    optimizer: str, loss: str | tuple[object, ...], expected: dict[str, Outcome], tmp_path: Path
) -> None:
    """``model_from_json`` of Keras 3.0 to 3.15 builds the objects, and looks up no names."""
    keys = ("module", "class_name", "config")
    model = tmp_path / "model.json"
    config = json.loads((FIXTURES / "keras3.3/default_float32.json").read_text(encoding="utf-8"))
    config["compile_config"] = {
        "optimizer": dict(zip(keys, ("keras.optimizers", optimizer, {}), strict=True)),
        "loss": loss if isinstance(loss, str) else dict(zip(keys, loss, strict=True)),
    }
    model.write_text(json.dumps(config), encoding="utf-8")
    releases = policytool.inspect(str(model)).releases
    assert {
        loader: releases[loader].outcome
        for loader in KERAS3_LOADERS
        if releases[loader].outcome is not Outcome.LOADS
    } == expected


def test_network_is_a_class_of_old_releases(tmp_path: Path) -> None:
    """TF 1.15 loads it, and TF 2.3 and later and Keras 3 do not."""
    called = {**dense(), "name": "d", "inbound_nodes": [[["a", 0, 0, {}]]]}
    inner = {**functional(INPUT, called, outputs=("d",)), "class_name": "Network"}
    model = h5_model(tmp_path / "model.h5", sequential(FLOATS, inner))
    refusing = {
        loader
        for loader, verdict in policytool.inspect(str(model)).releases.items()
        if NETWORK in [cause.reason for cause in verdict.causes]
    }
    assert refusing == {
        loader for loader in LOADERS if loader not in {"tf1.15", "tf2.0", "tf2.1", "tf2.2"}
    }
    assert "PT603" not in [finding.rule for finding in policytool.audit(str(model)).findings]


@pytest.mark.parametrize("name", ["BatchNormalizationV1", "BatchNormalizationV2"])
def test_the_names_of_old_batch_normalizations_are_no_custom_classes(
    name: str, tmp_path: Path
) -> None:
    """TF 1.15 to tf_keras 2.21 have them."""
    layer = instance(name, name="b", trainable=True, dtype="float32", axis=[1])
    model = h5_model(tmp_path / "model.h5", sequential(FLOATS, layer))
    assert "PT603" not in [finding.rule for finding in policytool.audit(str(model)).findings]


def test_a_sequential_that_was_never_built_has_nothing_to_load_into(tmp_path: Path) -> None:
    """
    A Sequential without an input shape is incompatible if the file contains variables, and loads if
    it has none, as in tf_keras 2.21 for a file of TF 1.15.
    """
    config = sequential(dense())
    refused, taken = (
        policytool.inspect(
            str(h5_model(tmp_path / f"{weights}.h5", config, weights=weights))
        ).releases.values()
        for weights in (True, False)
    )
    assert all(verdict.reason is not None for verdict in refused)
    assert all(verdict.reason is None for verdict in taken)


def test_axis_list_of_batch_normalization_is_incompatible_in_archives(tmp_path: Path) -> None:
    """
    A BatchNormalization with the axis ``[1]`` in an archive of Keras 2 is incompatible with Keras
    3.0 to 3.15, which unpack the list only in HDF5.
    """
    normal = {"class_name": "BatchNormalization", "module": "keras.layers", "registered_name": None}
    config = sequential(
        FLOATS,
        {**normal, "config": {"name": "b", "trainable": True, "dtype": "float32", "axis": [1]}},
    )
    found = policytool.inspect(
        str(keras_zip(tmp_path / "model.keras", keras_members(config)))
    ).releases.values()
    assert all(
        ("the axis of a BatchNormalization layer is a list")
        in str([cause.reason for cause in one.causes])
        for one in found
        if one.loader.startswith("keras3")
    )


@pytest.mark.parametrize(
    ("class_name", "failing"),
    [
        ("DepthwiseConv2D", {"tf2.12", "tf_keras2.21", "keras3.0", "keras3.6"}),
        ("SeparableConv1D", {"tf2.12", "tf_keras2.21", "keras3.0", "keras3.6"}),
        ("Conv2DTranspose", {"tf2.12", "tf_keras2.21", "keras3.0", "keras3.6", "keras3.15"}),
        ("ConvLSTM2D", {"tf2.9", "tf2.12", "tf_keras2.21", "keras3.15"}),
    ],
)
def test_strides_and_dilation_exclude_each_other(
    class_name: str, failing: set[str], tmp_path: Path
) -> None:
    """Releases fail to build a layer with strides and a dilation rate above 1, as measured."""
    config = {
        "name": "c",
        "trainable": True,
        "dtype": "float32",
        "strides": [2],
        "dilation_rate": 2,
    }
    model = sequential(FLOATS, {"class_name": class_name, "config": config})
    verdicts = policytool.inspect(h5_model(tmp_path / "m.h5", model)).releases
    reported = {name for name, verdict in verdicts.items() if "dilation" in str(verdict.causes)}
    measured = {"tf2.9", "tf2.12", "tf_keras2.21", "keras3.0", "keras3.6", "keras3.15"}
    assert reported & measured == failing


def with_constant(
    dtype: str, constant: object, *, before: bool = True, cast: bool = False
) -> Config:
    """Return a model that adds a number to its input, as TF 2.15 writes it."""
    entries: list[Config] = [input2("a", 3)]
    entries[0]["config"]["dtype"] = dtype
    if cast:
        entries.append(op_layer("cast", [["a", 0, 0, {"dtype": "float32"}]]))
    tensor = [entries[-1]["name"], 0, 0]
    node = (
        ["_CONSTANT_VALUE", -1, constant, {"y": tensor, "name": None}]
        if before
        else [*tensor, {"y": constant, "name": None}]
    )
    entries.append(op_layer("__operators__.add", [node]))
    return functional(*entries, outputs=(entries[-1]["name"],))


def op_layer(function: str, nodes: list[object]) -> Config:
    """Return an op layer whose dtype is independent of the dtype of its function."""
    return layer2("TFOpLambda", function, *nodes, function=function)


@pytest.mark.parametrize(
    ("config", "is_listed"),
    [
        (with_constant("float16", 1.0), True),
        (with_constant("bfloat16", 1.0), True),
        (with_constant("float64", 1.0), True),
        (with_constant("int64", 1), True),
        (with_constant("float32", 1.0), False),
        (with_constant("int32", 1), False),
        (with_constant("float16", 1.0, before=False), False),
        (with_constant("float16", 1.0, cast=True), False),
    ],
)
def test_number_before_a_tensor_is_incompatible_in_the_measured_cases(
    config: Config, *, is_listed: bool, tmp_path: Path
) -> None:
    """
    A number before a tensor, such as ``1.0 + x``, is incompatible with Keras 2 in the cases that
    failed in TF 2.15.1, which saved the models.
    """
    releases = policytool.inspect(h5_model(tmp_path / "m.h5", config)).releases
    for name in ("tf2.4", "tf2.15", "tf_keras2.21"):
        assert ("number" in str(releases[name].reason)) is is_listed


@pytest.mark.parametrize(
    ("function", "outcome"),
    [("__operators__.add", Outcome.LOADS), ("math.no_such", Outcome.UNKNOWN)],
)
def test_op_layer_loads_if_its_function_was_measured(
    function: str, outcome: Outcome, tmp_path: Path
) -> None:
    """The verdict on an op layer is unknown only for functions that no release was asked about."""
    config = with_constant("float32", 1.0)
    config["config"]["layers"][-1]["config"]["function"] = function
    verdict = policytool.inspect(h5_model(tmp_path / "m.h5", config)).releases["tf2.15"]
    assert verdict.outcome is outcome
    assert verdict.outcome is Outcome.LOADS or function in str(verdict.explanation)


@pytest.mark.parametrize("version", [b"2.6.0", b"2.7.0", b"2.8.0"])
def test_release_without_fixtures_has_separate_metadata(version: bytes, tmp_path: Path) -> None:
    """
    A SavedModel of TF 2.6.0 has its metadata in a separate file, so it is incompatible with TF
    1.15, 2.4 and 2.5 (measured with a public file, ``fixtures/public_files.json``).
    """
    copy = Path(shutil.copytree(FIXTURES / "tf2.9" / "default_float32", tmp_path / "model"))
    metadata = copy / "keras_metadata.pb"
    metadata.write_bytes(metadata.read_bytes().replace(b"2.9.0", version))
    for directory, is_separate in ((copy, True), (FIXTURES / "tf2.5" / "mha_mixed", False)):
        releases = policytool.inspect(directory).releases
        for name in ("tf1.15", "tf2.4", "tf2.5"):
            assert ("keras_metadata.pb" in str(releases[name].reason)) is is_separate
        assert "keras_metadata.pb" not in str(releases["tf2.9"].reason)


@pytest.mark.parametrize(("shape", "fails"), [([None, 2], False), ({"a": [None, 2]}, True)])
def test_shapes_by_name_build_no_sequential_model(
    tmp_path: Path, *, shape: object, fails: bool
) -> None:
    """Keras 2 stores the shapes of a dict of inputs, and does not build a model from them."""
    model = sequential({"class_name": "Flatten", "config": {"name": "flat"}}, dense())
    model["config"]["build_input_shape"] = shape
    reason = "a Sequential model without an input shape has no variables until it is called"
    verdicts = verdicts_on(model, tmp_path / "model.h5").values()
    found = [reason in [cause.reason for cause in verdict.causes] for verdict in verdicts]
    assert all(found) if fails else not any(found)


@pytest.mark.parametrize(
    "keywords",
    [
        {"initial_state": [[[0.5, 0.25, 0.0, 1.0]]]},
        {"initial_state": [[[0, 0, 0, 0]], [[0, 0, 0, 0]]]},
        {"mask": [[True, True, False]]},
        {"initial_state": ["a", 0, 0]},
        {"mask": ["a", 0, 0]},
        {},
    ],
)
def test_constants_as_states_fail_in_keras_2(keywords: dict[str, Any], tmp_path: Path) -> None:
    """
    GRU, RNN of an LSTMCell and Bidirectional with constants, saved by TF 1.15, 2.3, 2.9, 2.12, 2.15
    and tf_keras 2.21 in HDF5 and ``.keras``, fail to load there: `'float' object has no attribute
    'shape'`. Keras 3 stores constants as such.
    """
    gru = {**GRU, "name": "g", "inbound_nodes": [[["a", 0, 0, keywords]]]}
    verdicts = verdicts_on(functional(INPUT, gru), tmp_path / "model.h5")
    failing = {
        loader
        for loader, verdict in verdicts.items()
        if any("receives constants" in cause.reason for cause in verdict.causes)
    }
    is_constant = any(isinstance(value[0], list) for value in keywords.values())
    assert failing == (
        {name for name in verdicts if name.startswith("tf")} if is_constant else set()
    )


def test_masks_in_a_list_fail_in_the_newest_keras(tmp_path: Path) -> None:
    """
    Keras 3.15 fails to load a layer of Keras 2 that was called with a list of masks, because it
    does not read the tensors in the list. Earlier releases load the model, and fail to call it.
    """
    mask = [["m", 0, 0], ["m", 0, 0]]
    call = [["a", 0, 0, {"mask": mask}], ["a", 0, 0, {"mask": mask}]]
    attention = layer2("AdditiveAttention", "b", call, use_scale=False)
    masks = input2("m", 6, 4)
    masks["config"]["dtype"] = "bool"
    verdicts = verdicts_on(functional(INPUT, masks, attention), tmp_path / "model.h5")
    failing = {
        loader
        for loader, verdict in verdicts.items()
        if any("a list of masks" in cause.reason for cause in verdict.causes)
    }
    assert failing == {"keras3.15"}


def _input(name: str, *shape: int) -> Config:
    return {
        **instance3("InputLayer", batch_shape=[None, *shape], dtype="float32", name=name),
        "name": name,
        "inbound_nodes": [],
    }


def _called(entry: Config, *references: list[object]) -> Config:
    shape = {"shape": [None, 2], "dtype": "float32"}
    tensors = [
        {"class_name": "__keras_tensor__", "config": {**shape, "keras_history": history}}
        for history in references
    ]
    nodes = [{"args": [tensor], "kwargs": {}} for tensor in tensors]
    named = {"name": entry["config"]["name"], "inbound_nodes": nodes}
    return {"module": "keras.layers", "registered_name": None, **entry, **named}


def _functional(name: str, *layers: Config, outputs: object) -> Config:
    first = layers[0]["config"]["name"]
    config = {"name": name, "trainable": True, "layers": list(layers)}
    return {
        "module": "keras.src.models.functional",
        "class_name": "Functional",
        "config": {**config, "input_layers": [[first, 0, 0]], "output_layers": outputs},
        "registered_name": "Functional",
    }


def _json_reasons(model: Config, path: Path) -> dict[str, str]:
    path.write_text(json.dumps(model), encoding="utf-8")
    verdicts = policytool.inspect(path).releases
    return {loader: str(verdict.reason) for loader, verdict in verdicts.items()}


@pytest.mark.parametrize(
    ("outputs", "failing"),
    [([["dense_a", 0, 0]], {"keras3.15"}), (["dense_a", 0, 0], set())],
)
def test_distributed_model_has_one_output(
    tmp_path: Path, outputs: list[object], failing: set[str]
) -> None:
    """
    Keras 3.12 and 3.15 do not accept a list of outputs in a TimeDistributed (108 files of Keras 3.0
    to 3.6 each), and Keras 3.0 to 3.6 do not read another form.
    """
    inner = _functional("inner", _input("a", 2), _called(dense(), ["a", 0, 0]), outputs=outputs)
    steps = instance("TimeDistributed", name="steps", trainable=True, dtype="float32", layer=inner)
    model = _functional(
        "outer", _input("x", 3, 2), _called(steps, ["x", 0, 0]), outputs=[["steps", 0, 0]]
    )
    reasons = _json_reasons(model, tmp_path / "model.json")
    text = "TimeDistributed cannot determine the output shape of a model with a list of outputs"
    assert {loader for loader, reason in reasons.items() if text in reason} == failing
    causes = policytool.inspect(tmp_path / "model.json").releases["keras3.3"].causes
    before = "TimeDistributed cannot determine the output shape of a model"
    assert (before in {cause.reason for cause in causes}) is not failing.issuperset({"keras3.15"})


@pytest.mark.parametrize("is_built", [False, True])
def test_distributed_model_in_a_sequential(tmp_path: Path, *, is_built: bool) -> None:
    """Keras 3.0 and 3.3 load files of Keras 3.6 if the Sequential was never called."""
    layer = {"module": "keras", **sequential(dense())}
    policy = {"module": "keras", **instance("DTypePolicy", name="float32")}
    steps = instance("TimeDistributed", name="steps", trainable=True, dtype=policy, layer=layer)
    begin = [_input("x", 3, 2)] if is_built else []
    path = tmp_path / "model.json"
    path.write_text(json.dumps({"module": "keras", **sequential(*begin, steps)}), encoding="utf-8")
    text = "TimeDistributed cannot determine the output shape of a model"
    assert {
        loader
        for loader, verdict in policytool.inspect(path).releases.items()
        if text in {cause.reason for cause in verdict.causes}
    } == ({"keras3.0", "keras3.3"} if is_built else set())


@pytest.mark.parametrize(
    ("policy", "mask", "fails"),
    [
        ("mixed_float16", {"mask": [["m", 0, 0]]}, True),
        ("float64", {"mask": [["m", 0, 0]]}, True),
        ("float32", {"mask": [["m", 0, 0]]}, False),
        ("mixed_float16", {}, False),
    ],
)
def test_tf_2_4_masks_the_scores_of_attention_in_float32(
    tmp_path: Path, policy: str, mask: Config, *, fails: bool
) -> None:
    """The floatx is subtracted from scores of another dtype (32 files of TF 2.9 in TF 2.4)."""
    attention = instance("AdditiveAttention", name="scores", dtype=instance("Policy", name=policy))
    call = [[["x", 0, 0, {}], ["x", 0, 0, mask]]]
    layers = [_input("x", 3, 2), _input("m", 3), {**attention, "name": "scores"}]
    layers[-1]["inbound_nodes"] = call
    reasons = _json_reasons(
        _functional("model", *layers, outputs=[["scores", 0, 0]]), tmp_path / "model.json"
    )
    failing = {loader for loader, reason in reasons.items() if reason == MASKS_IN_FLOAT32}
    assert failing == ({"tf2.1", "tf2.2", "tf2.3", "tf2.4"} if fails else set())


@pytest.mark.parametrize(("count", "fails"), [(0, False), (1, True)])
def test_copy_of_a_shared_layer_has_only_its_own_calls(
    tmp_path: Path, count: int, *, fails: bool
) -> None:
    """
    Keras 3.0 counts calls of a shared layer in all models, but JSON has a copy for each. Keras 3.0,
    3.3, 3.6 and 3.15 fail to load such a file, and Keras 3.12 never returns. Equal names alone do
    not matter.
    """
    inner = _functional(
        "inner",
        _input("a", 2),
        _called(dense(), ["a", 0, 0]),
        outputs=[["dense_a", 0, 0]],
    )
    model = _functional(
        "outer",
        _input("x", 2),
        _called(dense(), ["x", 0, 0]),
        _called(inner, ["dense_a", count, 0]),
        outputs=[["inner", 0, 0]],
    )
    reasons = _json_reasons(model, tmp_path / "model.json")
    text = "a layer that was shared with a nested model is stored as a copy"
    assert (text in reasons["keras3.0"]) is fails
    assert (text in reasons["keras3.15"]) is fails
    verdict = policytool.inspect(tmp_path / "model.json").releases["keras3.6"]
    assert (verdict.outcome is Outcome.LOADS) is not fails


def _reference(layer: str, call: int = 0, **keywords: object) -> list[object]:
    return [[[layer, call, 0, keywords]]]


def _entry(class_name: str, nodes: object, **config: object) -> Config:
    name = class_name.lower()
    config = {"name": name, "trainable": True, "dtype": "float32", **config}
    return {"class_name": class_name, "name": name, "config": config, "inbound_nodes": nodes}


@pytest.mark.parametrize(
    ("layers", "loader", "text"),
    [
        (
            [_entry("Attention", _reference("x", use_causal_mask=True))],
            "tf2.9",
            "an attention layer is called with `use_causal_mask`",
        ),
        (
            [_entry("Masking", _reference("x")), _entry("Attention", _reference("masking"))],
            "keras3.6",
            "the query of an attention layer has a mask",
        ),
        (
            [
                _entry("Masking", _reference("x")),
                _entry("Dense", _reference("masking")),
                _entry("Attention", _reference("dense")),
            ],
            "keras3.6",
            "the query of an attention layer has a mask",
        ),
        (
            [
                _entry("Masking", _reference("x")),
                _entry("Concatenate", [[["masking", 0, 0, {}]] * 2]),
                _entry("Attention", _reference("concatenate")),
            ],
            "keras3.6",
            "Keras 3.6 fails if a mask reaches the query of an attention layer",
        ),
        (
            [_entry("Conv1D", _reference("x"), groups=2, dtype="mixed_float16")],
            "tf2.9",
            "TF 2.9 does not build a convolution with groups under a mixed policy",
        ),
    ],
)
def test_calls_and_layers_that_one_release_does_not_support(
    tmp_path: Path, layers: list[Config], loader: str, text: str
) -> None:
    """Measured with 48 files of Keras 3.0, and 20 of TF 2.12; neighbours load them."""
    last = str(layers[-1]["name"])
    model = _functional("model", _input("x", 4, 4), *layers, outputs=[[last, 0, 0]])
    path = tmp_path / "model.json"
    path.write_text(json.dumps(model), encoding="utf-8")
    verdicts = policytool.inspect(path).releases
    assert str(verdicts[loader].explanation).startswith(text)
    later = "tf2.12" if loader == "tf2.9" else "keras3.15"
    assert text not in str(verdicts[later].explanation)


@pytest.mark.parametrize(
    ("dtype", "before", "causal", "fails"),
    [
        ("mixed_float16", "Dropout", False, True),
        ("float64", "Dropout", False, True),
        ("mixed_bfloat16", "Conv1D", True, True),
        ("mixed_float16", "Conv1D", False, False),
        ("float32", "Dropout", True, False),
    ],
)
def test_attention_of_old_releases_masks_in_float32(
    tmp_path: Path, dtype: str, before: str, *, causal: bool, fails: bool
) -> None:
    """Both classes in TF 2.1, 2.3, 2.4 and 2.5, with masks and causal masks in four dtypes."""
    model = _functional(
        "model",
        _input("x", 4, 4),
        _entry("Masking", _reference("x"), dtype=dtype),
        _entry(before, _reference("masking"), dtype=dtype),
        _entry("Attention", [[[before.lower(), 0, 0, {}]] * 2], dtype=dtype, causal=causal),
        outputs=[["attention", 0, 0]],
    )
    path = tmp_path / "model.json"
    path.write_text(json.dumps(model), encoding="utf-8")
    verdicts = policytool.inspect(path).releases
    failing = {
        loader
        for loader in ("tf2.3", "tf2.4", "tf2.5")
        if MASKS_IN_FLOAT32 in {cause.reason for cause in verdicts[loader].causes}
    }
    assert failing == ({"tf2.3", "tf2.4"} if fails else set())


@pytest.mark.parametrize("class_name", ["GroupNormalization", "Conv2DTranspose"])
def test_groups_of_other_layers_are_not_those_of_a_convolution(
    tmp_path: Path, class_name: str
) -> None:
    """TF 2.9 builds a Conv2DTranspose with groups, and has no GroupNormalization."""
    layer = _entry(class_name, _reference("x"), groups=2, dtype="mixed_float16")
    model = _functional("model", _input("x", 4, 4, 4), layer, outputs=[[str(layer["name"]), 0, 0]])
    path = tmp_path / "model.json"
    path.write_text(json.dumps(model), encoding="utf-8")
    assert "convolution with groups" not in str(policytool.inspect(path).releases["tf2.9"])


@pytest.mark.parametrize("loader", ["tf2.15", "keras3.0", "keras3.15"])
def test_no_release_finds_a_layer_that_the_model_lacks(tmp_path: Path, loader: str) -> None:
    """Keras 3.15 says: Missing node: absent."""
    layer = _entry("ReLU", _reference("absent"))
    model = _functional("model", _input("x", 4, 4), layer, outputs=[[layer["name"], 0, 0]])
    path = tmp_path / "model.json"
    path.write_text(json.dumps(model), encoding="utf-8")
    explanation = policytool.inspect(path).releases[loader].explanation
    assert "a call or an output uses the result of a layer that its model does not have" in str(
        explanation
    )


@pytest.mark.parametrize(
    "layer",
    [
        _entry("Conv1D", _reference("masking"), filters=4, kernel_size=[3]),
        _entry("ReLU", _reference("masking"), dtype="float16"),
    ],
)
def test_lost_mask_does_not_reach_attention(tmp_path: Path, layer: Config) -> None:
    """Of 108 models of TF 2.15, Keras 3.6 loads those in which a layer or a cast loses the mask."""
    masking = _entry("Masking", _reference("x"))
    attention = _entry("Attention", _reference(str(layer["name"])))
    layers = (masking, layer, attention)
    model = _functional("model", _input("x", 4, 4), *layers, outputs=[["attention", 0, 0]])
    path = tmp_path / "model.json"
    path.write_text(json.dumps(model), encoding="utf-8")
    assert policytool.inspect(path).releases["keras3.6"].outcome == "loads"


@pytest.mark.parametrize(("call", "fails"), [(0, False), (1, True)])
def test_output_of_a_nested_model_is_its_first_call(
    tmp_path: Path, call: int, *, fails: bool
) -> None:
    """Keras 3.0 counts the call of a nested model from 1, and does not find it (7 of 7 files)."""
    inner = _functional("inner", _input("a", 2), _called(dense(), ["a", 0, 0]), outputs=["a", 0, 0])
    inner = {**inner, "name": "inner", "inbound_nodes": _reference("x")}
    model = _functional("model", _input("x", 2), inner, outputs=[["inner", call, 0]])
    reason = "an output is the output of a nested functional model, which Keras 3.0 does not find"
    path = tmp_path / "model.json"
    path.write_text(json.dumps({**model, "build_config": {}}), encoding="utf-8")
    causes = policytool.inspect(path).releases["keras3.0"].causes
    assert (reason in {cause.reason for cause in causes}) is fails


@pytest.mark.parametrize(
    ("is_first", "is_marked", "failing", "text"),
    [
        (True, True, {"keras3.15"}, "whose call of it Keras 3.14 and later take for the call"),
        (False, True, KERAS3_LOADERS, "Keras does not restore the variables of the layer"),
        (False, False, KERAS3_LOADERS, "Keras does not restore the variables of the layer"),
    ],
)
def test_layer_that_models_share_loads_in_the_measured_cases(
    tmp_path: Path, failing: Collection[str], text: str, *, is_first: bool, is_marked: bool
) -> None:
    """
    Measured with 24 archives of Keras 3.3, 3.9 and 3.10, and 12 of Keras 3.15. Keras does not mark
    the first entry of a layer if it is in a nested model.
    """
    unmarked = {"class_name": "Dense", "config": {"name": "d", "units": 2}}
    layer = {**unmarked, "shared_object_id": 7}
    called = _called(layer if is_marked else unmarked, ["a", 0, 0])
    inner = _functional("inner", _input("a", 2), called, outputs=[["d", 0, 0]])
    calls = [_called(layer, ["x" if is_first else "inner", 0, 0])]
    calls.insert(is_first, _called(inner, ["d" if is_first else "x", 0, 0]))
    model = _functional("m", _input("x", 2), *calls, outputs=[[calls[-1]["name"], 0, 0]])
    verdicts = policytool.inspect(keras_zip(tmp_path / "m.keras", keras_members(model))).releases
    found = {name for name in KERAS3_LOADERS if text in str(verdicts[name].causes)}
    assert found == set(failing)
    assert "shared between" not in str(verdicts["keras3.6"].doubts)


@pytest.mark.parametrize("class_name", ["Dense", "ReLU"])
def test_shared_variables_fail_in_keras_2(tmp_path: Path, class_name: str) -> None:
    """TF 2.13 to 2.15, tf_keras 2.21 and Keras 3 fail on 5 of 5 models of each, TF 2.12 on none."""
    layer = {"class_name": class_name, "config": {"name": "d"}, "shared_object_id": 7}
    inner = _functional("inner", _input("a", 2), _called(layer, ["a", 0, 0]), outputs=[["d", 0, 0]])
    chain = {"class_name": "Sequential", "config": {"name": "s", "layers": [inner, layer]}}
    members = {**keras_members(chain), "metadata.json": b'{"keras_version": "2.15.0"}'}
    verdicts = policytool.inspect(keras_zip(tmp_path / "m.keras", members)).releases
    for release in ("tf2.12", "tf2.15", "tf_keras2.21", "keras3.6"):
        fails = "Keras 2 stores its variables once" in str(verdicts[release].causes)
        assert fails is (class_name == "Dense" and release != "tf2.12")


@pytest.mark.parametrize(
    ("class_name", "places", "failing"),
    [
        ("Dense", ["inner", "inner"], KERAS3_LOADERS),
        ("ReLU", ["inner", "inner"], set()),
        ("Dense", ["outer", "inner"], set()),
        ("Dense", ["inner", "outer"], KERAS3_LOADERS),
    ],
)
def test_sequential_models_that_share_a_layer(
    tmp_path: Path, class_name: str, places: list[str], failing: Collection[str]
) -> None:
    """28 archives each of Keras 3.0, 3.3 and 3.15 in 3.15; only graphs confuse the calls."""
    layer = {"class_name": class_name, "config": {"name": "d"}, "shared_object_id": 7}
    layers = [
        layer
        if place == "outer"
        else {"class_name": "Sequential", "config": {"name": f"s{number}", "layers": [layer]}}
        for number, place in enumerate(places)
    ]
    members = keras_members(sequential(*layers))
    verdicts = policytool.inspect(keras_zip(tmp_path / "m.keras", members)).releases
    found = {name for name in KERAS3_LOADERS if "a layer is shared" in str(verdicts[name].causes)}
    assert found == set(failing)
    assert "is shared" not in str(verdicts["keras3.15"].doubts)


@pytest.mark.parametrize(
    ("class_name", "built", "fails"),
    [("Flatten", True, True), ("Dense", True, False), ("Dense", False, True)],
)
def test_list_of_one_tensor_fails_in_the_measured_classes(
    tmp_path: Path, class_name: str, *, built: bool, fails: bool
) -> None:
    """
    22 files of Keras 3.3 and 3.9: Keras 3.0, 3.11 and 3.15 fail, 3.3 and 3.10 load. Keras 3.4 fails
    on 60 of 60 files of all releases.
    """
    inner = _functional("inner", _input("a", 2), outputs=[["a", 0, 0]])
    last = {"class_name": class_name, "config": {"name": "b", "units": 2}}
    build = {"build_config": {"input_shape": [None, 2]}} if built else {}
    model = sequential(_input("x", 2), inner, {**last, **build, "module": "keras.layers"})
    reasons = _json_reasons({**model, "module": "keras"}, tmp_path / "model.json")
    text = "returns a list, as releases before Keras 3.11 write it"
    found = {loader for loader, reason in reasons.items() if text in reason}
    assert found == ({"keras3.0", "keras3.4", "keras3.15"} if fails else set())
    lines = loader_lines([*policytool.inspect(tmp_path / "model.json").releases.values()])
    assert any("Keras 3.0 to 3.15" in text for _, text in lines) is not fails


def test_einsum_dense_fails_on_a_list_in_late_releases(tmp_path: Path) -> None:
    """11 archives of Keras 3.3: Keras 3.0 and 3.6 load them, 3.15 does not."""
    inner = _functional("inner", _input("a", 2), outputs=[["a", 0, 0]])
    config = {"name": "b", "equation": "ab,bc->ac", "output_shape": [2]}
    last = {"class_name": "EinsumDense", "config": config, "module": "keras.layers"}
    build = {"build_config": {"input_shape": [None, 2]}}
    model = sequential(_input("x", 2), inner, {**last, **build})
    reasons = _json_reasons({**model, "module": "keras"}, tmp_path / "model.json")
    assert {name for name, reason in reasons.items() if "returns a list" in reason} == {"keras3.15"}


@pytest.mark.parametrize(
    ("class_name", "fails"),
    [
        *(("MaxPooling3D", False), ("Dense", True), ("BatchNormalization", False)),
        *(("TFOpLambda", False), ("TensorFlowOpLayer", False), ("AddLoss", False)),
    ],
)
def test_only_bfloat16_variables_are_unreadable_in_hdf5(
    tmp_path: Path, class_name: str, *, fails: bool
) -> None:
    """TF 2.4 loads a pooling layer, BatchNormalization or op under bfloat16, and not a Dense."""
    layer = {"class_name": class_name, "config": dense("b", "bfloat16")["config"]}
    verdict = verdicts_on(sequential(FLOATS, layer), tmp_path / "model.h5")["tf2.4"]
    reasons = [cause.reason for cause in verdict.causes if "in bfloat16" in cause.reason]
    assert bool(reasons) is fails


def _recurrent(class_name: str, policy: str, **arguments: object) -> Config:
    fused = {"activation": "tanh", "recurrent_activation": "sigmoid", "use_bias": True}
    config = {**dense("b", policy)["config"], **fused, "unroll": False, **arguments}
    return {"class_name": class_name, "config": config}


@pytest.mark.parametrize(
    ("layer", "fails"),
    [
        (_recurrent("LSTM", "mixed_bfloat16"), True),
        (_recurrent("GRU", "mixed_bfloat16", reset_after=True), True),
        (_recurrent("LSTM", "mixed_bfloat16", unroll=True), False),
        (_recurrent("LSTM", "mixed_bfloat16", recurrent_dropout=0.1), False),
        (_recurrent("GRU", "mixed_bfloat16", reset_after=False), False),
        (_recurrent("LSTM", "mixed_float16"), False),
    ],
)
@pytest.mark.parametrize("is_bidirectional", [False, True])
def test_recurrent_layers_fail_in_bfloat16_with_default_arguments(
    tmp_path: Path, layer: Config, *, fails: bool, is_bidirectional: bool
) -> None:
    """TF 2.5 to 2.12 fail to build an LSTM or GRU that cuDNN supports, and TF 2.15 does not."""
    outer = {**dense("o", layer["config"]["dtype"])["config"], "layer": layer}
    wrapped = {"class_name": "Bidirectional", "config": outer} if is_bidirectional else layer
    found = verdicts_on(sequential(FLOATS, wrapped), tmp_path / "model.h5")
    failing = {
        loader
        for loader in ("tf2.5", "tf2.9", "tf2.12", "tf2.15")
        if any("cannot be built under" in cause.reason for cause in found[loader].causes)
    }
    assert failing == ({"tf2.5", "tf2.9", "tf2.12"} if fails else set())


def _failing(path: Path, model: Config, text: str) -> set[str]:
    """Return the releases that fail to load a model in JSON for a reason with some text."""
    path.write_text(json.dumps(model), encoding="utf-8")
    return _failing_for(path, text)


@pytest.mark.parametrize(
    ("outputs", "fails"),
    [
        ([["d", 0, 0], ["d", 0, 0]], False),
        ({"a": ["d", 0, 0], "b": ["d", 0, 0]}, False),
        (["d", 0, 0], False),
        ([["d", 0, 0], [["d", 0, 0]]], True),
        ([{"a": ["d", 0, 0]}], True),
        ({"a": [["d", 0, 0]]}, True),
    ],
)
def test_keras_3_0_to_3_3_do_not_read_nested_outputs(
    tmp_path: Path, outputs: object, *, fails: bool
) -> None:
    """Files of TF 2.1 to 2.15, tf_keras 2.21 and Keras 3.6, which Keras 3.6 and 3.15 load."""
    model = _functional("m", _input("x", 2), _called(dense("d"), ["x", 0, 0]), outputs=outputs)
    found = _failing(tmp_path / "model.json", model, "in a list or dict")
    assert found == ({"keras3.0", "keras3.3"} if fails else set())


@pytest.mark.parametrize(
    ("class_name", "output", "failing"),
    [
        ("MultiHeadAttention", 0, set()),
        ("MultiHeadAttention", 1, {"keras3.0"}),
        ("Attention", 0, set()),
        ("Attention", 1, {"keras3.0", "keras3.3", "keras3.6"}),
        ("AdditiveAttention", 1, {"keras3.0", "keras3.3", "keras3.6"}),
        ("LSTM", 1, set()),
    ],
)
@pytest.mark.parametrize("is_called", [False, True])
def test_scores_of_attention_layers(
    tmp_path: Path, class_name: str, output: int, failing: set[str], *, is_called: bool
) -> None:
    """Keras 3.0 to 3.6 load a layer that returns its scores if nothing uses them."""
    attention = {"class_name": class_name, "config": {"name": "a", "trainable": True}}
    layers = [_input("x", 3, 4), _called(attention, ["x", 0, 0])]
    if is_called:
        layers.append(_called(dense("d"), ["a", 0, output]))
    outputs = [["d", 0, 0] if is_called else ["a", 0, output]]
    model = _functional("m", *layers, outputs=outputs)
    assert _failing(tmp_path / "model.json", model, "uses the scores") == failing


@pytest.mark.parametrize(
    ("cells", "returns", "fails"),
    [
        (["LSTMCell"], True, True),
        (["GRUCell", "LSTMCell"], True, True),
        (["GRUCell", "LSTMCell"], False, False),
        (["GRUCell", "SimpleRNNCell"], True, False),
    ],
)
def test_keras_3_0_does_not_return_several_states(
    tmp_path: Path, cells: list[str], *, returns: bool, fails: bool
) -> None:
    """Keras 3.3, 3.6 and 3.15 load such a layer."""
    stacked = instance3("StackedRNNCells", name="s", cells=[instance3(name) for name in cells])
    layer = instance3("RNN", name="r", trainable=True, cell=stacked, return_state=returns)
    model = _functional("m", _input("x", 3, 4), _called(layer, ["x", 0, 0]), outputs=[["r", 0, 0]])
    found = _failing(tmp_path / "model.json", model, "returns the states")
    assert found == ({"keras3.0"} if fails else set())


@pytest.mark.parametrize(("keyword", "fails"), [("count_weights", True), ("training", False)])
def test_keras_3_0_does_not_weight_counts(tmp_path: Path, keyword: str, *, fails: bool) -> None:
    """Keras 3.3, 3.6 and 3.15 load a CategoryEncoding that is called with weights."""
    config = {"name": "c", "trainable": True, "num_tokens": 5, "output_mode": "count"}
    layer = {"class_name": "CategoryEncoding", "module": "keras.layers", "config": config}
    entry = _called(layer, ["x", 0, 0])
    entry["inbound_nodes"][0]["kwargs"][keyword] = None
    entry["build_config"] = {"input_shape": [None, 2]}
    model = _functional("m", _input("x", 2), entry, outputs=[["c", 0, 0]])
    weighted = _failing(tmp_path / "model.json", model, "count_weights")
    assert weighted == ({"keras3.0"} if fails else set())


@pytest.mark.parametrize("class_name", ["SimpleRNN", "LSTM", "GRU"])
@pytest.mark.parametrize(
    ("policy", "stateful", "failing"),
    [
        ("float32", True, set()),
        ("mixed_float16", True, {"tf2.4", "tf2.5"}),
        ("mixed_float16", False, set()),
        ("float64", True, {"tf2.4", "tf2.5", "tf2.9", "tf2.12"}),
    ],
)
def test_states_in_float32(
    tmp_path: Path, class_name: str, policy: str, failing: Collection[str], *, stateful: bool
) -> None:
    """Measured with files of TF 2.9 and 2.15; TF 2.15 loads all."""
    layer = _recurrent(class_name, policy, stateful=stateful)
    found = verdicts_on(sequential(FLOATS, layer), tmp_path / "model.h5")
    assert failing == {
        loader
        for loader in ("tf2.3", "tf2.4", "tf2.5", "tf2.9", "tf2.12", "tf2.15", "keras3.15")
        if any("has its states in float32" in cause.reason for cause in found[loader].causes)
    }


def test_tf_2_4_cannot_draw_orthogonal_float16(tmp_path: Path) -> None:
    """TF 2.4 to 2.9 fail in the op Qr; TF 2.3 and 2.12 build such a layer."""
    drawn = {"recurrent_initializer": {"class_name": "Orthogonal", "config": {}}}
    layer = _recurrent("SimpleRNN", "float16", **drawn)
    found = verdicts_on(sequential(FLOATS, layer), tmp_path / "model.h5")
    fails = {
        loader
        for loader in ("tf2.3", "tf2.4", "tf2.9", "tf2.12")
        if any("Orthogonal" in cause.reason for cause in found[loader].causes)
    }
    assert fails == {"tf2.4", "tf2.9"}


@pytest.mark.parametrize(("channels", "fails"), [(3, False), (2, True)])
def test_kernel_must_have_the_channels_of_its_input(
    tmp_path: Path, channels: int, *, fails: bool
) -> None:
    """Keras 3.15 checks four convolutions in ``keras.ops``; Keras 3.12 and older do not."""
    layer = {"class_name": "Conv", "config": {"name": "c", "data_format": "channels_last"}}
    entry = _called({**layer, "module": "keras.src.ops.nn"}, ["x", 0, 0])
    shape = {"shape": [None, 4, 3], "dtype": "float32", "keras_history": ["x", 0, 0]}
    tensor = {"class_name": "__keras_tensor__", "config": shape}
    kernel = {"class_name": "__numpy__", "config": {"value": [[[1.0]] * channels]}}
    entry["inbound_nodes"] = [{"args": [tensor, kernel], "kwargs": {}}]
    model = _functional("m", _input("x", 4, 3), entry, outputs=[["c", 0, 0]])
    reasons = _json_reasons(model, tmp_path / "model.json")
    found = {name for name, reason in reasons.items() if "number of input channels" in reason}
    assert found == ({"keras3.15"} if fails else set())


@pytest.mark.parametrize(
    ("name", "fails"), [("tf2.9/preprocessing.h5", True), ("tf2.5/input_dtypes.h5", False)]
)
def test_casts_between_layers_change_the_order_of_variables(name: str, *, fails: bool) -> None:
    """Keras 3.6 fails on the first file, once migrated ("Weight count mismatch")."""
    verdict = policytool.inspect(FIXTURES / name).releases["keras3.6"]
    assert any("in another order" in cause.reason for cause in verdict.causes) is fails


def test_operation_with_arguments_of_unmeasured_releases(tmp_path: Path) -> None:
    """Keras 3.8 loads a file of its own; 3.6 has no such argument, and 3.11 moved it."""
    entry = _called(
        {**instance("DotProductAttention", name="d"), "module": "keras.src.ops.nn"},
        ["x", 0, 0],
    )
    shape = {"shape": [None, 2, 4, 3], "dtype": "float32", "keras_history": ["x", 0, 0]}
    tensor = {"class_name": "__keras_tensor__", "config": shape}
    calls = [{"args": [tensor] * 3, "kwargs": {"flash_attention": None}}]
    entry |= {"config": {"is_causal": False}, "inbound_nodes": calls}
    model = _functional("m", _input("x", 2, 4, 3), entry, outputs=[[entry["name"], 0, 0]])
    reasons = _json_reasons(model, tmp_path / "model.json")
    found = {name for name, reason in reasons.items() if "`flash_attention`" in reason}
    assert found == {"keras3.6", "keras3.15"}
    assert reasons["keras3.8"] == "None"


@pytest.mark.parametrize(("class_name", "fails"), [("Sequential", True), ("Functional", False)])
def test_optional_input_of_a_sequential_saved_model(
    tmp_path: Path, class_name: str, *, fails: bool
) -> None:
    """TF 2.12 and 2.15 fail on three such SavedModels of tf_keras, and load a functional one."""
    entry = {"class_name": "InputLayer", "config": {**FLOATS["config"], "optional": False}}
    config = {"name": "m", "layers": [{**entry, "name": "a", "inbound_nodes": []}]}
    root = keras_object("m", class_name, config=config, keras_version="2.21.0")
    path = saved_model(tmp_path / "model", [root], separate=True)
    causes = policytool.inspect(path).releases["tf2.15"].causes
    assert any("`optional`" in cause.reason for cause in causes) is fails


@pytest.mark.parametrize(("class_name", "fails"), [("Functional", True), ("Net", False)])
def test_layer_that_cannot_be_built_in_a_saved_model(
    tmp_path: Path, class_name: str, *, fails: bool
) -> None:
    """
    Of 61 graph models of TF 2.5 to 2.15 with such layers, no release that cannot build them loads
    one; the same layers in subclassed models load.
    """
    layers = [
        {**FLOATS, "name": "a", "inbound_nodes": []},
        {
            **instance(
                "CategoryEncoding",
                name="b",
                trainable=True,
                dtype="mixed_float16",
                num_tokens=4,
                output_mode="multi_hot",
                sparse=False,
            ),
            "name": "b",
            "inbound_nodes": [[["a", 0, 0, {}]]],
        },
    ]
    places = {"input_layers": [["a", 0, 0]], "output_layers": [["b", 0, 0]]}
    config = {"name": "m", "layers": layers, **(places if fails else {})}
    kind = "_tf_keras_network" if fails else "_tf_keras_model"
    root = keras_object(
        "m",
        class_name,
        identifier=kind,
        children=[("layer-1", 1)],
        config=config,
        is_graph_network=fails,
    )
    layer = keras_object("b", "CategoryEncoding", config=layers[1]["config"])
    path = saved_model(tmp_path / "model", [root, layer], separate=True)
    causes = policytool.inspect(path).releases["tf2.15"].causes
    assert any("cannot be built under" in cause.reason for cause in causes) is fails


def _failing_for(path: Path, reason: str) -> set[str]:
    """Return the releases that fail to load a file for a reason."""
    return {
        release
        for release, verdict in policytool.inspect(path).releases.items()
        if any(reason in cause.reason for cause in verdict.causes)
    }


@pytest.mark.parametrize(
    ("shape", "fails"),
    [
        ({"class_name": "__tuple__", "items": [None, 3]}, {"tf1.15", "tf2.0", "tf2.1"}),
        ([None, 3], set()),
    ],
)
def test_first_layer_of_a_sequential_with_the_object_of_a_shape(
    tmp_path: Path, shape: object, fails: Collection[str]
) -> None:
    """TF 1.15 and 2.1 create an input from the shape: "Error converting shape to a TensorShape"."""
    config = dense("d")["config"] | {"batch_input_shape": shape}
    root = keras_object(
        "m",
        "Sequential",
        identifier="_tf_keras_sequential",
        children=[("layer-0", 1)],
        config={"name": "m", "layers": [dense("d") | {"config": config}]},
    )
    path = saved_model(tmp_path / "model", [root, keras_object("d", "Dense", config=config)])
    assert _failing_for(path, "its Sequential models store input shapes") == fails


@pytest.mark.parametrize(
    ("dtype", "stored", "fails"),
    [
        ("float32", DT_FLOAT, {"tf2.3", "tf2.4"}),  # as TF 2.5 and later write it
        ("float32", DT_DOUBLE, {"tf2.5", "tf2.9", "tf2.12", "tf2.15", "tf_keras2.21"}),
        ("float64", DT_DOUBLE, set()),
    ],
)
def test_dtype_of_the_variable_of_a_mean_iou(
    tmp_path: Path, dtype: str, stored: int, fails: Collection[str]
) -> None:
    """TF 2.5 changed it from float64 to the dtype of the metric (keras/metrics.py)."""
    root = keras_object("m", "Net", identifier="_tf_keras_model", children=[("iou", 1)])
    metric = keras_object(
        "iou",
        "MeanIoU",
        identifier="_tf_keras_metric",
        dtype=dtype,
        children=[("total_confusion_matrix", 2)],
    )
    variable = Object(variable=("total_confusion_matrix", stored, (2, 2)))
    path = saved_model(tmp_path / "model", [root, metric, variable])
    assert _failing_for(path, "the variable of a MeanIoU") == fails


@pytest.mark.parametrize(
    ("arguments", "from_config", "fails"),
    [
        ({}, True, {"tf2.9", "tf2.12", "tf2.15"}),  # as TF 2.5 writes it
        ({}, False, {"tf2.9"}),  # as TF 2.9 writes it
        ({"output_mode": "one_hot"}, True, set()),
        ({"dtype": "float32"}, True, set()),
    ],
)
def test_layer_that_cannot_be_created_in_a_subclassed_saved_model(
    tmp_path: Path, arguments: Config, fails: Collection[str], *, from_config: bool
) -> None:
    """Releases create the layers of such a model, but do not call them."""
    config = {"name": "h", "trainable": True, "dtype": "mixed_float16", "num_bins": 5} | arguments
    objects = [
        keras_object(
            "m", "Net", config={"name": "m"}, children=[("h", 1)], identifier="_tf_keras_model"
        ),
        keras_object("h", "Hashing", config=config, must_restore_from_config=from_config),
    ]
    path = saved_model(tmp_path / "model", objects, separate=True)
    found = policytool.inspect(path).releases
    reason = "Hashing cannot be built under mixed_float16"
    assert {
        release
        for release in ("tf2.5", "tf2.9", "tf2.12", "tf2.15")
        if any(cause.reason == reason for cause in found[release].causes)
    } == fails


@pytest.mark.parametrize(
    ("policy", "dtype", "is_called", "fails"),
    [
        ("float16", "float32", True, True),
        ("float16", "int32", True, False),
        ("float64", "float32", True, False),
        ("float16", "float32", False, False),
    ],
)
def test_discretization_of_tf_2_5_in_16_bits(
    tmp_path: Path, policy: str, dtype: str, *, is_called: bool, fails: bool
) -> None:
    """TF 2.9 and later load it in a subclassed model, which they do not call, and on integers."""
    arguments = {"dtype": policy, "bin_boundaries": [0.0], "num_bins": None, "epsilon": 0.01}
    layer = instance("Discretization", name="b", trainable=True, **arguments)
    first = instance("InputLayer", name="a", batch_input_shape=[None, 1], dtype=dtype)
    entry = {**layer, "name": "b", "inbound_nodes": [[["a", 0, 0, {}]]]}
    places = {"input_layers": [["a", 0, 0]], "output_layers": [["b", 0, 0]]}
    graph = {"layers": [{**first, "name": "a", "inbound_nodes": []}, entry], **places}
    root = keras_object(
        "m",
        "Functional" if is_called else "Net",
        identifier="_tf_keras_network" if is_called else "_tf_keras_model",
        children=[("layer-0", 1), ("layer-1", 2)],
        config={"name": "m", **(graph if is_called else {})},
        is_graph_network=is_called,
    )
    nodes = [
        keras_object("a", "InputLayer", config=first["config"]),
        keras_object("b", "Discretization", config=layer["config"]),
    ]
    path = saved_model(tmp_path / "model", [root, *nodes], separate=True)
    found = policytool.inspect(path).releases
    failing = {
        release
        for release in ("tf2.3", "tf2.5", "tf2.9", "tf2.15")
        if any("casts its input to 16 bits" in cause.reason for cause in found[release].causes)
    }
    assert failing == ({"tf2.3", "tf2.9", "tf2.15"} if fails else set())


@pytest.mark.parametrize("has_module", [False, True])
@pytest.mark.parametrize(
    ("suffix", "is_chain", "owners", "fails"),
    [
        ("h5", False, ["b"], True),
        ("h5", True, ["b"], False),
        ("h5", True, ["b", "d"], True),
        ("json", True, [], False),
    ],
)
def test_model_in_a_time_distributed_of_keras_2(
    tmp_path: Path, suffix: str, owners: list[str], *, is_chain: bool, fails: bool, has_module: bool
) -> None:
    """Of 40 files of TF 2.4 to 2.12, Keras 3 loads none; of 16 of later releases, Keras 3.6 all."""
    inner = sequential(input2("i", 4), dense("d"))
    wrapped = {**inner, "module": "keras", "registered_name": None} if has_module else inner
    layer = instance("TimeDistributed", name="b", trainable=True, layer=wrapped)
    called = {**layer, "name": "b", "inbound_nodes": [[["a", 0, 0, {}]]]}
    model = sequential(INPUT, layer) if is_chain else functional(INPUT, called)
    path = tmp_path / f"model.{suffix}"
    if suffix == "json":
        path.write_text(json.dumps({**model, "module": "keras"}), encoding="utf-8")
    else:
        h5_model(path, model, weights=False, keras_version="2.15.0")
        with h5py.File(path, "a") as file:
            for owner in owners:
                file[f"model_weights/{owner}/kernel:0"] = np.zeros((4, 2), dtype="float32")
    found = policytool.inspect(path).releases
    for loader in ("keras3.0", "keras3.3", "keras3.6", "keras3.15"):
        reasons = " ".join(cause.reason for cause in found[loader].causes)
        is_late = fails and loader in ("keras3.0", "keras3.3")
        assert ("output shape of a model" in reasons) is is_late
        assert ("nested layers are serialized without a module" in reasons) is not has_module


@pytest.mark.parametrize(
    ("version", "failing"),
    [("2.4.0", {"tf2.5"}), ("2.5.0", {"tf2.9", "tf2.15"}), ("2.9.0", set())],
)
def test_boundaries_of_discretization_in_hdf5(
    tmp_path: Path, version: str, failing: Collection[str]
) -> None:
    """TF 2.5 expects the boundaries, and later releases do not; measured with four policies."""
    layer = instance("Discretization", name="b", trainable=True, dtype="float32")
    model = sequential(FLOATS, layer)
    path = h5_model(tmp_path / "model.h5", model, weights=False, keras_version=version)
    found = policytool.inspect(path).releases
    reason = "only TF 2.5 stores the boundaries of a Discretization in a variable"
    assert failing == {
        release
        for release in ("tf2.4", "tf2.5", "tf2.9", "tf2.15")
        if reason in [cause.reason for cause in found[release].causes]
    }


@pytest.mark.parametrize("table", ["_table", "lookup_table"])
def test_table_of_a_subclassed_saved_model(tmp_path: Path, table: str) -> None:
    """Of 36 such models of TF 2.3 to 2.5, TF 2.9, 2.12 and 2.15 load none."""
    config = {"name": "b", "trainable": True, "dtype": "string"}
    root = keras_object(
        "m", "Net", config={"name": "m"}, children=[("b", 1)], identifier="_tf_keras_model"
    )
    layer = keras_object("b", "StringLookup", config=config, children=[(table, 2)])
    objects = [root, layer, keras_object("t", "Table", identifier="_tf_keras_layer")]
    found = policytool.inspect(saved_model(tmp_path / "model", objects, separate=True)).releases
    reason = "TF 2.5 and older store lookup tables under another path"
    causes = [cause.reason for cause in found["tf2.9"].causes]
    assert (reason in causes) is (table == "_table")


@pytest.mark.parametrize("sources", [["a"], ["a", "a"]])
def test_op_layer_with_one_input_in_a_saved_model(tmp_path: Path, sources: list[str]) -> None:
    """TF 2.1 loads its SavedModels with ops on two tensors, and none with ops on one."""
    node = [[name, 0, 0, {}] for name in sources]
    layer = {**instance("TensorFlowOpLayer", name="b", node_def={}), "inbound_nodes": [node]}
    config = {"name": "m", "layers": [{**FLOATS, "inbound_nodes": []}, {**layer, "name": "b"}]}
    root = keras_object("m", "Model", config=config, keras_version="2.2.4-tf")
    found = policytool.inspect(saved_model(tmp_path / "model", [root])).releases
    reason = "TF 2.1 does not restore an op layer with a single input from its traces"
    for release in ("tf2.1", "tf2.4"):
        fails = reason in [cause.reason for cause in found[release].causes]
        assert fails is (release == "tf2.1" and len(sources) == 1)


@pytest.mark.parametrize(
    ("policy", "fails"), [("mixed_float16", {"tf2.9", "tf2.12", "tf2.15"}), ("float32", set())]
)
def test_columns_of_two_dtypes_under_a_mixed_policy(
    tmp_path: Path, policy: str, fails: Collection[str]
) -> None:
    """TF 2.3 to 2.5 load a file of TF 2.3, on which TF 2.9, 2.15 and tf_keras 2.21 fail."""
    columns = [
        {"class_name": name, "config": {"key": "a"}}
        for name in ("NumericColumn", "EmbeddingColumn")
    ]
    config = {"name": "f", "trainable": True, "dtype": policy, "feature_columns": columns}
    layer = {"class_name": "DenseFeatures", "config": config}
    found = verdicts_on(sequential(FLOATS, layer), tmp_path / "model.h5")
    for release in ("tf2.5", "tf2.9", "tf2.12", "tf2.15"):
        assert ("DenseFeatures under" in str(found[release].causes)) is (release in fails)


def test_lookup_tables_of_tf_2_5_and_older_have_another_path() -> None:
    """TF 2.9 to 2.15 and tf_keras 2.21 fail on tables of TF 2.3 and load each other's."""
    old, new = (
        policytool.inspect(FIXTURES / release / "string_lookup").releases
        for release in ("tf2.3", "tf2.15")
    )
    assert old["tf2.3"].loads
    assert old["tf2.15"].outcome is Outcome.INCOMPATIBLE
    assert new["tf2.12"].loads


def test_keras_3_0_and_3_3_require_the_name_of_a_dtype_for_hashing(tmp_path: Path) -> None:
    """``Hashing.__init__`` in Keras 3.3 compares the dtype with names; Keras 3.6 loads the file."""
    policy = {"class_name": "DTypePolicy", "config": {"name": "int64"}}
    config = {"name": "h", "trainable": True, "num_bins": 5, "output_mode": "int", "dtype": policy}
    layer = {"class_name": "Hashing", "config": config, "module": "keras.layers"}
    model = {**sequential(_input("x", 1), layer), "module": "keras"}
    found = _failing(tmp_path / "m.json", model, "require the name of a dtype")
    assert found == {"keras3.0", "keras3.3"}


@pytest.mark.parametrize("module", [None, "keras.layers"])
def test_axis_in_a_list_with_a_module_fails_in_keras_3(tmp_path: Path, module: str | None) -> None:
    """A file of TF 2.15 with a Sequential in a Sequential, which Keras 3.15 fails to load."""
    config = {"name": "b", "trainable": True, "dtype": "float32", "axis": [1]}
    layer = {"class_name": "BatchNormalization", "config": config}
    model = sequential(FLOATS, {**layer, **({"module": module} if module else {})})
    found = verdicts_on(model, tmp_path / "model.h5")["keras3.15"].causes
    assert any("BatchNormalization layer inside" in cause.reason for cause in found) is bool(module)


def test_layers_for_gpus_of_tf_1_are_found_in_hdf5_alone(tmp_path: Path) -> None:
    """Measured with files of TF 2.12 and 2.15; both load in TF 2.12, and none in Keras 3."""
    config = {"name": "b", "trainable": True, "dtype": "float32", "units": 4}
    layer = {"class_name": "CuDNNGRU", "config": config, "name": "b"}
    layers = [BY_NAME["config"]["layers"][0], {**layer, "inbound_nodes": [[["a", 0, 0, {}]]]}]
    model = {**BY_NAME, "config": {**BY_NAME["config"], "layers": layers}}
    architecture = tmp_path / "model.json"
    architecture.write_text(json.dumps(model), encoding="utf-8")
    in_json = policytool.inspect(str(architecture)).releases
    in_hdf5 = verdicts_on(model, tmp_path / "model.h5")
    assert in_hdf5["tf2.12"].loads
    assert in_hdf5["tf2.15"].loads
    assert in_json["tf2.12"].loads
    assert in_json["tf2.15"].outcome is Outcome.UNKNOWN
    assert in_hdf5["keras3.15"].outcome is Outcome.INCOMPATIBLE


@pytest.mark.parametrize(
    ("name", "lacking"),
    [
        ("relu", {"tf2.12"}),
        ("silu", {"tf2.12", "tf2.15", "tf_keras2.21"}),
        ("swish", {"tf2.12", *KERAS3_LOADERS}),
    ],
)
def test_activation_with_a_module_is_not_found_by_an_alias(
    tmp_path: Path, name: str, lacking: Collection[str]
) -> None:
    """Measured with each name in each release; Keras 3.15 writes `tf.nn.swish` in this way."""
    function = {
        "module": "builtins",
        "class_name": "function",
        "config": name,
        "registered_name": "function",
    }
    layer = instance3("Activation", name="b", trainable=True, dtype="float32", activation=function)
    path = tmp_path / "m.json"
    path.write_text(json.dumps(sequential(_input("x", 1), layer)), encoding="utf-8")
    reason = f"activation {name} does not exist"
    verdicts = policytool.inspect(path).releases
    assert set(lacking) == {
        loader
        for loader in ("tf2.12", "tf2.15", "tf_keras2.21", *KERAS3_LOADERS)
        if any(cause.reason == reason for cause in verdicts[loader].causes)
    }


@pytest.mark.parametrize(
    "layer",
    [
        instance("AddLoss", name="b", trainable=True, dtype="float32", unconditional=False),
        instance("AddMetric", name="b", trainable=True, aggregation="mean", metric_name="m"),
    ],
)
def test_layers_of_add_loss_and_add_metric_are_built_in(layer: Config, tmp_path: Path) -> None:
    """Measured in TF 2.4 to 2.15 and tf_keras, which write them for a functional VAE."""
    called = {**layer, "name": "b", "inbound_nodes": [[["a", 0, 0, {}]]]}
    found = verdicts_on(functional(INPUT, called), tmp_path / "model.h5")
    assert all(found[name].loads for name in ("tf2.4", "tf2.9", "tf2.15", "tf_keras2.21"))
    missing = f"layer class {layer['class_name']} does not exist"
    assert missing in [cause.reason for cause in found["keras3.15"].causes]
    plan = policytool.migrate(tmp_path / "model.h5", target="keras3", preview=True).plan
    assert "class" in [refusal.code for refusal in plan.refusals]
    assert plan.note(CUSTOM_CODE) is None


@pytest.mark.parametrize("function", ["nn.bias_add", "compat.v1.shape"])
def test_op_layers_find_functions_that_are_not_converted(function: str, tmp_path: Path) -> None:
    """TF 2.15 writes the first for `preprocess_input` of ResNet, and the second for `tf.shape`."""
    layer = instance("TFOpLambda", name="b", trainable=True, dtype="float32", function=function)
    called = {**layer, "name": "b", "inbound_nodes": [["a", 0, 0, {}]]}
    found = verdicts_on(functional(INPUT, called), tmp_path / "model.h5")
    assert all(found[name].loads for name in ("tf2.4", "tf2.9", "tf2.15", "tf_keras2.21"))


_KERAS2_LOADERS: Final = ("tf2.9", "tf2.12", "tf2.15", "tf_keras2.21")


@pytest.mark.parametrize(
    ("more", "failing"),
    [
        ({"vocabulary": ["a", "b"], "output_mode": "multi_hot"}, set()),
        ({"vocabulary": None, "output_mode": "int"}, {*_KERAS2_LOADERS}),
        ({"vocabulary": None, "output_mode": "multi_hot"}, {*_KERAS2_LOADERS, *KERAS3_LOADERS}),
        (
            {"vocabulary": None, "output_mode": "multi_hot", "vocabulary_size": 3},
            {*_KERAS2_LOADERS},
        ),
    ],
)
def test_hdf5_of_a_failed_save_lacks_the_vocabulary(
    more: dict[str, Any], failing: set[str], tmp_path: Path
) -> None:
    """
    Measured with the files that ``save`` leaves when it fails. Keras 3 loads some of them, and
    fails to call them.
    """
    lookup = instance(
        "StringLookup",
        name="b",
        trainable=True,
        dtype="string",
        max_tokens=None,
        **more,
    )
    called = {**lookup, "inbound_nodes": [[["a", 0, 0, {}]]]}
    called["name"] = "b"
    found = verdicts_on(functional(INPUT, called), tmp_path / "model.h5")
    reasons = {TABLE, COUNTED}
    assert failing == {
        loader
        for loader in (*_KERAS2_LOADERS, *KERAS3_LOADERS)
        if any(cause.reason in reasons for cause in found[loader].causes)
    }
    lost = [cause for cause in found["keras3.15"].doubts if cause.kind is Obstacle.RESULTS]
    assert bool(lost) is (more["vocabulary"] is None)


def _attention_model(policy: str, *ops: Config, other: str | None = None) -> Config:
    """Return a model in which op layers follow an attention layer and a Dense layer."""
    stored = instance("Policy", name=policy) if policy.startswith("mixed") else policy
    layer = {**dense("d", stored if other is None else other), "name": "d"}
    attention = instance("MultiHeadAttention", name="b", dtype=stored, num_heads=2, key_dim=3)
    return functional(
        INPUT,
        {**layer, "inbound_nodes": [[["a", 0, 0, {}]]]},
        {**attention, "name": "b", "inbound_nodes": [[["d", 0, 0, {"value": ["d", 0, 0]}]]]},
        *ops,
        outputs=(ops[-1]["name"],),
    )


def _op(name: str, function: str, nodes: object) -> Config:
    layer = instance("TFOpLambda", name=name, trainable=True, dtype="float32", function=function)
    return {**layer, "name": name, "inbound_nodes": nodes}


_SUM: Final = _op("c", "__operators__.add", [["b", 0, 0, {"y": ["d", 0, 0], "name": None}]])


@pytest.mark.parametrize(
    ("model", "policy", "fails_later"),
    [
        (_attention_model("mixed_float16", _SUM), "mixed_float16", False),
        (_attention_model("mixed_bfloat16", _SUM), "mixed_bfloat16", False),
        (_attention_model("float64", _SUM), "float64", False),
        (_attention_model("mixed_bfloat16", _SUM, other="float16"), "mixed_float16", True),
        (_attention_model("float32", _SUM, other="float16"), "mixed_float16", True),
        (
            _attention_model(
                "mixed_float16",
                _op("r", "reshape", [["b", 0, 0, {"shape": [-1, 6, 2]}]]),
                _op("c", "concat", [[["r", 0, 0, {"axis": -1}], ["d", 0, 0, {"axis": -1}]]]),
            ),
            "mixed_float16",
            False,
        ),
        (_attention_model("mixed_float16", _SUM, other="float32"), None, True),
        (_attention_model("float32", _SUM), None, False),
        (
            _attention_model("mixed_float16", _op("c", "math.multiply", [["b", 0, 0, {"y": 0.5}]])),
            None,
            False,
        ),
    ],
)
def test_op_after_attention_needs_the_global_policy(
    model: Config, policy: str | None, tmp_path: Path, *, fails_later: bool
) -> None:
    """Measured in TF 2.4 to 2.15 and tf_keras; TF 2.4 to 2.12 load each under the policy."""
    found = verdicts_on(model, tmp_path / "model.h5")
    for loader in ("tf2.4", "tf2.9", "tf2.12"):
        reasons = [cause.reason for cause in found[loader].causes if cause.reason in GLOBAL]
        assert len(reasons) == (policy is not None)
        assert all(f"set_global_policy('{policy}')" in reason for reason in reasons)
    for loader in ("tf2.15", "tf_keras2.21"):
        reasons = [cause.reason for cause in found[loader].causes]
        assert (MIXED_ATTENTION in reasons) is fails_later
        assert set(GLOBAL).isdisjoint(reasons)


def test_number_before_the_result_of_attention(tmp_path: Path) -> None:
    """Up to TF 2.13, ``1.0 - x`` of the float32 result loads; measured in TF 2.4, 2.12 and 2.15."""
    nodes = [["_CONSTANT_VALUE", -1, 1.0, {"y": ["b", 0, 0], "name": None}]]
    model = _attention_model("mixed_float16", _op("c", "math.subtract", nodes))
    found = verdicts_on(model, tmp_path / "model.h5")
    failing = {
        loader
        for loader in ("tf2.4", "tf2.12", "tf2.15", "tf_keras2.21")
        if any("combines a number" in cause.reason for cause in found[loader].causes)
    }
    assert failing == {"tf2.15", "tf_keras2.21"}


def test_custom_layer_in_16_bits_names_the_global_policy(tmp_path: Path) -> None:
    """In Keras 2, the layers that a custom layer creates use the global policy."""
    for name, expected in (("mixed_bfloat16", True), ("float32", False)):
        layer = instance("Gate", name="b", trainable=True, dtype=name)
        called = {**layer, "name": "b", "inbound_nodes": [[["a", 0, 0, {}]]]}
        found = verdicts_on(functional(INPUT, called), tmp_path / f"{name}.h5")
        text = f"call set_global_policy('{name}')"
        assert (text in str(found["tf2.15"].explanation)) is expected
        assert text not in str(found["keras3.15"].explanation)


def test_wrapper_in_a_wrapper_may_have_the_policy_of_keras_2() -> None:
    """It is called without a cast, and has no variables; measured in Keras 3.3, 3.6 and 3.15."""
    policy = {"class_name": "Policy", "config": {"name": "float32"}}
    for place, failing in (("outer", True), ("wrapper", False), ("layer", True)):
        dtypes = dict.fromkeys(("outer", "wrapper", "layer"), "float32") | {place: policy}
        layer = dense(name="layer", dtype=dtypes["layer"])
        wrapper = instance("TimeDistributed", name="wrapper", dtype=dtypes["wrapper"], layer=layer)
        outer = instance("TimeDistributed", name="b", dtype=dtypes["outer"], layer=wrapper)
        text = json.dumps(sequential(outer))
        loaded = reading.load_model(
            Document(path="m", format="json", parts={"m": json.loads(text)}, config_part="m")
        )
        reasons = {cause.reason for verdict in loaded.loaders for cause in verdict.causes}
        assert ("policies use Keras 2 dicts (Policy, PolicyV1)" in reasons) is failing


def test_padded_weights_of_words_fail_in_the_newest_keras() -> None:
    """Keras 3.15 loads weights of as many words as the vocabulary has (27 files of Keras 3)."""
    path = FIXTURES / "keras3.15/text_vectorization.keras"
    archive = document(path, path.name)
    for maximum, pads, failing in ((9, True, True), (5, True, False), (9, False, False)):
        config: Any = deepcopy(archive.config)
        (layer,) = [
            entry["config"]
            for entry in config["config"]["layers"]
            if entry["class_name"] == "TextVectorization"
        ]
        layer.update(output_mode="tf_idf", vocabulary_size=5, idf_weights=None)
        layer.update(max_tokens=maximum, pad_to_max_tokens=pads)
        parts = {**archive.parts, str(archive.config_part): config}
        loaded = reading.load_model(replace(archive, parts=parts))
        reasons = {cause.reason for cause in loaded.loaders[-1].causes}
        assert any("pads its weights" in reason for reason in reasons) is failing


def _branches(version: str) -> dict[str, bytes]:
    """Return an archive with four layers of one class, two of which change their order by casts."""
    mixed = policy("mixed_float16")
    layers = [
        input3("x", 4),
        layer3("Dense", "a", tensor("x"), units=4, dtype=policy("float32")),
        layer3("Dense", "b", tensor("a"), units=4, dtype=mixed),
        layer3("Dense", "c", tensor("x"), units=4, dtype=policy("float32")),
        layer3("Dense", "d", tensor("c"), units=4, dtype=policy("float32")),
        layer3("Concatenate", "e", [tensor("b"), tensor("d")], dtype=policy("float32")),
    ]
    weights = io.BytesIO()
    with h5py.File(weights, "w") as file:
        for group in ("dense", "dense_1", "dense_2", "dense_3"):
            file[f"layers/{group}/vars/0"] = np.zeros((4, 4), "float32")
            file[f"layers/{group}/vars/1"] = np.zeros(4, "float32")
    members = keras_members(keras3(*layers))
    metadata = {"keras_version": version, "date_saved": "2024-01-01@00:00:00"}
    return {
        **members,
        "metadata.json": json.dumps(metadata).encode(),
        "model.weights.h5": weights.getvalue(),
    }


@pytest.mark.parametrize(
    ("version", "changed"),
    [("3.3.3", {"keras3.6"}), ("3.6.0", {"keras3.0", "keras3.3", "keras3.15"})],
)
def test_casts_move_the_variables_of_archives(
    tmp_path: Path, version: str, changed: Collection[str]
) -> None:
    """Keras 3.6 counts casts in the order of layers; without casts in the config, it differs."""
    path = keras_zip(tmp_path / "model.keras", _branches(version))
    found = policytool.inspect(path).releases
    reason = "the variables of layers in the order that it has because of its casts"
    causes = {
        release: [cause for cause in verdict.doubts if reason in cause.reason]
        for release, verdict in found.items()
    }
    assert {release for release, doubts in causes.items() if doubts} == changed
    layers = {frozenset(doubts[0].layers) for doubts in causes.values() if doubts}
    assert layers == {frozenset("bc")}
