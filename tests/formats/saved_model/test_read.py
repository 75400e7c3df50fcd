"""SavedModels with Keras metadata in either file, and without metadata."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

import policytool
from policytool.support.text import protobuf_messages
from tests.conftest import MIXED_SAVEDMODEL, run
from tests.contracts.format_contract import FormatContract
from tests.helpers.paths import FIXTURES
from tests.helpers.small_models import Object, keras_object, saved_model, small_saved_model

if TYPE_CHECKING:
    from pathlib import Path


class TestSavedModel(FormatContract):
    package = "saved_model"
    document_format = ("savedmodel",)
    samples = (
        MIXED_SAVEDMODEL,
        FIXTURES / "tf2.3/global_mixed_float16",
        FIXTURES / "tf_keras2.21/default_float32",
        FIXTURES / "tf1.15/default_float32",
        FIXTURES / "keras3.15/default_float32.export",
    )
    parts = ("saved_model.pb", "keras_metadata.pb")


@pytest.mark.parametrize("file", ["saved_model.pb", "keras_metadata.pb"])
def test_unknown_fields_survive(file: str) -> None:
    """Unknown fields are kept when a message is parsed and serialized."""
    data = (MIXED_SAVEDMODEL / file).read_bytes()
    kind = "SavedModel" if file == "saved_model.pb" else "KerasMetadata"
    again = protobuf_messages.parse(kind, data).SerializeToString()
    assert len(again) == len(data)
    assert protobuf_messages.parse(kind, again) == protobuf_messages.parse(kind, data)
    assert sorted(again) == sorted(data)


def test_metadata_in_both_places_gives_the_same_layers(tmp_path: Path) -> None:
    """
    The layers are the same, except for their addresses, for metadata in ``saved_model.pb`` and in a
    separate file.
    """
    inner, beside = (
        policytool.inspect(small_saved_model(tmp_path / str(separate), separate=separate))
        for separate in (False, True)
    )
    assert [(layer.path, layer.policy, layer.variables) for layer in inner.layers] == [
        (layer.path, layer.policy, layer.variables) for layer in beside.layers
    ]
    assert inner.layers[1].address
    assert inner.layers[1].address.part == "saved_model.pb#1"
    assert beside.layers[1].address
    assert beside.layers[1].address.part == "keras_metadata.pb#1"


def test_signatures_have_dtypes_and_shapes() -> None:
    (signature,) = policytool.inspect(MIXED_SAVEDMODEL).signatures
    assert signature.input_shapes.keys() == signature.inputs.keys()
    assert {shape[0] for shape in signature.input_shapes.values() if shape} == {None}
    assert "float32 (?, " in run("inspect", MIXED_SAVEDMODEL).out


def test_no_program_runs_a_model_without_values(tmp_path: Path) -> None:
    shutil.copytree(MIXED_SAVEDMODEL, tmp_path / "model")
    (tmp_path / "model/variables/variables.data-00000-of-00001").unlink()
    printed = " ".join(run("inspect", tmp_path / "model").out.split())
    assert "no program can run its signatures" in printed
    assert "TF Serving" not in printed


def test_without_keras_metadata_variables_are_listed(tmp_path: Path) -> None:
    """
    A ``tf.Module`` without Keras metadata has its variables, grouped by scope, and no policies.
    """
    objects = [
        Object(identifier="_generic_user_object", children=[("v", 1), ("w", 2)]),
        Object(variable=("block/kernel", 19, (2, 3))),
        Object(variable=("block/bias", 1, (3,))),
    ]
    model = policytool.inspect(saved_model(tmp_path / "module", objects))
    assert [
        (layer.path, [(one.name, one.shape, one.dtype) for one in layer.variables])
        for layer in model.layers
    ] == [("block", [("kernel", (2, 3), "float16"), ("bias", (3,), "float32")])]
    assert [item.code for item in model.observations] == [
        "no-policy",
        "missing-shard",
    ]  # it has no variables beside it


def test_layers_with_several_edges_count_once(tmp_path: Path) -> None:
    """Even if it is listed, an attribute and an item of a list."""
    objects = [
        keras_object(
            "mlp",
            "Functional",
            identifier="_tf_keras_network",
            children=[("layer-0", 1), ("layer_with_weights-0", 1), ("dense", 1), ("all", 2)],
        ),
        keras_object("dense", "Dense", children=[("kernel", 3), ("w", 3)]),
        Object(identifier="trackable_list_wrapper", children=[("0", 1)]),
        Object(variable=("dense/kernel", 1, (2, 3))),
    ]
    model = policytool.inspect(saved_model(tmp_path / "shared", objects))
    assert [layer.path for layer in model.layers] == ["mlp", "mlp/dense"]
    assert model.summary.parameters == 6


@pytest.mark.parametrize(
    ("tags", "reported"),
    [
        ((b"train", b"serve"), 1),
        ((b"serve", b"train"), 0),
        ((b"train", b"eval"), 0),
        ((b"", b""), 0),
    ],
)
def test_of_several_graphs_the_one_for_serving_is_reported(
    tags: tuple[bytes, bytes], reported: int, tmp_path: Path
) -> None:
    """
    If TF 1 exported several graphs, the one for serving is reported, and a note says which graph
    was selected.
    """
    path = small_saved_model(tmp_path / "two")
    saved = protobuf_messages.parse("SavedModel", (path / "saved_model.pb").read_bytes())
    saved.meta_graphs.append(saved.meta_graphs[0])
    for number, (graph, tag) in enumerate(zip(saved.meta_graphs, tags, strict=True)):
        graph.meta_info.tags.extend([tag] if tag else [])
        graph.meta_info.tensorflow_version = f"2.3.{number}".encode()
    (path / "saved_model.pb").write_bytes(saved.SerializeToString())
    model = policytool.inspect(path)
    assert model.writer.tensorflow == f"2.3.{reported}"
    assert [item.code for item in model.observations] == [
        "several-graphs",
        "missing-shard",
    ]  # it has no variables beside it
