"""TensorFlow.js layers models."""

from __future__ import annotations

import copy
import json
import shutil
from typing import TYPE_CHECKING, Any, Final

import pytest

import policytool
from policytool.formats import FORMATS, Probe, tfjs
from policytool.formats.document import Layout
from policytool.formats.tfjs import escapes, is_shard
from policytool.support.errors import ModelFileError
from policytool.support.text.jsontext import value
from tests.conftest import MIXED_TFJS, run
from tests.contracts.format_contract import FormatContract
from tests.helpers.paths import FIXTURES
from tests.helpers.small_models import dense, sequential

if TYPE_CHECKING:
    from pathlib import Path

TFJS: Final = FIXTURES / "tfjs4.22"
WEIGHTS: Final = [
    {"name": "dense_a/kernel", "shape": [6, 2], "dtype": "float32"},
    {"name": "dense_a/bias", "shape": [2], "dtype": "float32"},
]
MANIFEST: Final = [{"paths": ["group1-shard1of1.bin"], "weights": WEIGHTS}]


def written(directory: Path, model: object) -> Path:
    """Write a ``model.json``."""
    path = directory / "model.json"
    path.write_text(json.dumps(model), encoding="utf-8")
    return path


class TestTensorFlowJs(FormatContract):
    package = "tfjs"
    document_format = ("tfjs",)
    samples = (
        MIXED_TFJS,
        TFJS / "nested_models/model.json",
        TFJS / "from_tf2.3/model.json",
        TFJS / "from_keras3.15/model.json",
    )


@pytest.mark.parametrize(
    "model",
    [
        {
            "format": "layers-model",
            "generatedBy": "keras v2.4.0",
            "convertedBy": None,
            "modelTopology": {"model_config": sequential()},
            "weightsManifest": MANIFEST,
        },
        {
            "modelTopology": {
                "keras_version": "2.1.6",
                "backend": "tensorflow",
                "model_config": sequential(),
            },
            "weightsManifest": MANIFEST,
        },
        {"weightsManifest": MANIFEST, "modelTopology": sequential()},
        {
            "modelTopology": sequential()
            | {"keras_version": "tfjs-layers 4.22.0", "backend": "tensor_flow.js"},
            "format": "layers-model",
            "weightsManifest": MANIFEST,
        },
    ],
    ids=["converter", "old converter", "bare", "JavaScript"],
)
def test_every_form_of_the_file_is_read(model: dict[str, Any], tmp_path: Path) -> None:
    """
    Each form of the file is read, with and without ``model_config`` and with keys in any order, and
    addresses start at the root of the file.
    """
    path = written(tmp_path, model)
    assert [found for found in FORMATS if found.recognise(Probe(path, "model.json"))] == [
        tfjs.FORMAT
    ]
    layer = policytool.inspect(path).layers[1]
    assert (layer.path, layer.policy, [variable.shape for variable in layer.variables]) == (
        "mlp/dense_a",
        "float32",
        [(6, 2), (2,)],
    )
    assert layer.address is not None
    assert layer.address.part == "model.json"
    assert value(model, layer.address.pointer) == "float32"


def test_the_address_names_the_whole_way() -> None:
    """The address in a report is the complete path to the value in the file."""
    layer = next(
        layer for layer in policytool.inspect(MIXED_TFJS).layers if layer.name == "dense_a"
    )
    assert layer.address is not None
    assert layer.address.pointer.startswith("/modelTopology/model_config/config/layers/")


def test_graph_models_are_rejected_by_name() -> None:
    """A graph model is an error that names the format, because it has no layers."""
    ended = run("inspect", TFJS / "graph_model/model.json")
    assert ended.code == 3
    assert "tfjs-graph-model" in ended.err
    assert "graph model" in ended.err


def test_quantized_tensors_have_their_stored_dtype() -> None:
    model = policytool.inspect(TFJS / "quantized_uint8/model.json")
    stored = {
        variable.name: variable.dtype for layer in model.layers for variable in layer.variables
    }
    assert stored == {"kernel": "uint8", "bias": "float32"}
    assert [item.code for item in model.observations] == ["tfjs-quantized"]
    assert model.summary.bytes == (TFJS / "quantized_uint8/group1-shard1of1.bin").stat().st_size
    assert (
        "4 of 4"
        in policytool.inspect(TFJS / "quantized_float16/model.json").observations[0].message
    )


def test_policies_that_tensorflow_js_ignores_are_reported() -> None:
    """The library computes in float32 (measured)."""
    assert "tfjs-float32" in [item.code for item in policytool.inspect(MIXED_TFJS).observations]
    assert "tfjs-float32" not in [
        item.code for item in policytool.inspect(TFJS / "sequential/model.json").observations
    ]


def test_models_of_keras3_are_reported_as_failing_to_load() -> None:
    """
    A TensorFlow.js model of Keras 3 is reported as failing to load (measured).
    """
    assert "tfjs-keras3" in [
        item.code for item in policytool.inspect(TFJS / "from_keras3.15/model.json").observations
    ]


def test_tensorflow_js_models_have_no_verdicts_on_releases() -> None:
    """A converter reads it and ``load_model`` does not."""
    assert not policytool.inspect(MIXED_TFJS).releases


def test_weights_without_a_topology_hold_no_policy(tmp_path: Path) -> None:
    model = policytool.inspect(
        written(
            tmp_path, {"format": "layers-model", "modelTopology": None, "weightsManifest": MANIFEST}
        )
    )
    assert (model.format, [layer.path for layer in model.layers]) == ("weights", ["dense_a"])


def test_tensors_of_keras3_are_named_by_path() -> None:
    """
    Tensors of Keras 3 are named by their path in the ``.keras`` file, as the converter writes them.
    """
    path = TFJS / "from_keras3.15/model.json"
    document = tfjs.FORMAT.read(Probe(path, "model.json"))
    assert document.layout is Layout.OBJECT_PATHS


@pytest.mark.parametrize(
    "shard",
    [
        "../other.bin",
        "/etc/passwd",
        "a/../../b.bin",
        "..\\b.bin",
        "C:\\b.bin",
        "https://example.org/b.bin",
        "",
        ".",
    ],
)
def test_shards_outside_the_directory_are_reported_and_not_read(shard: str, tmp_path: Path) -> None:
    """TensorFlow.js would read them."""
    model = {
        "modelTopology": sequential(),
        "weightsManifest": [{"paths": [shard], "weights": WEIGHTS}],
    }
    assert escapes(shard)
    assert [item.code for item in policytool.inspect(written(tmp_path, model)).observations] == [
        "escaping-shard"
    ]


@pytest.mark.parametrize("shard", ["a.bin", "./a.bin", "weights/a.bin", "a b.bin", "..a.bin"])
def test_shards_inside_are_fine(shard: str) -> None:
    """Shards in the model's directory and below it are accepted."""
    assert not escapes(shard)


def _with(**changes: Any) -> dict[str, Any]:
    model: dict[str, Any] = {
        "modelTopology": sequential(),
        "weightsManifest": copy.deepcopy(MANIFEST),
    }
    for key, new in changes.items():
        model["weightsManifest"][0]["weights"][0][key] = new
    return model


@pytest.mark.parametrize(
    ("code", "model"),
    [
        ("tfjs-manifest", {"modelTopology": sequential(), "weightsManifest": {}}),
        ("tfjs-manifest", {"modelTopology": sequential(), "weightsManifest": [3]}),
        (
            "tfjs-manifest",
            {"modelTopology": sequential(), "weightsManifest": [{"paths": [3], "weights": []}]},
        ),
        ("tfjs-manifest", {"modelTopology": sequential(), "weightsManifest": [{"paths": []}]}),
        (
            "tfjs-manifest",
            {"modelTopology": sequential(), "weightsManifest": [{"paths": [], "weights": [3]}]},
        ),
        ("tfjs-manifest", _with(name="")),
        ("tfjs-manifest", _with(dtype="float99")),
        ("tfjs-manifest", _with(shape=[-1])),
        ("tfjs-manifest", _with(shape=[True])),
        ("json-limit", _with(shape=[1] * 99)),
        ("tfjs-manifest", _with(quantization={"dtype": 3})),
        ("tfjs-not-keras", {"modelTopology": "text"}),
        ("tfjs-not-keras", {"modelTopology": {"model_config": {}}}),
        ("tfjs-not-keras", {"modelTopology": {"model_config": None}}),
        ("config-not-keras", {"modelTopology": {"class_name": "Dense", "config": 3}}),
        ("tfjs-graph-model", {"modelTopology": {"node": []}}),
    ],
)
def test_malformed_file_raises_a_one_line_error_with_a_code(
    code: str, model: object, tmp_path: Path
) -> None:
    with pytest.raises(ModelFileError) as caught:
        policytool.inspect(written(tmp_path, model))
    assert caught.value.code == code
    assert "\n" not in caught.value.message


def test_an_architecture_of_a_custom_class_is_no_tensorflow_js(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        {"class_name": "Sequential", "config": {"layers": [dense()], "format": "layers-model"}},
    )
    assert policytool.inspect(path).format == "json"


def test_shard_is_recognized_by_the_model_in_its_directory(tmp_path: Path) -> None:
    """By its name in the readable model next to it."""
    shutil.copytree(FIXTURES / "tfjs4.22/sequential", tmp_path / "web")
    shard = tmp_path / "web/group1-shard1of1.bin"
    assert is_shard(shard)
    assert not is_shard(shard.with_name("other.bin"))
    assert not is_shard(tmp_path / shard.name)
    (tmp_path / "web/model.json").write_text('{"modelTopology": ')
    assert not is_shard(shard)
