"""The input shapes of layers are derived from the inputs of a model."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from policytool.formats import format_detection
from policytool.formats.document import Document
from policytool.model import tree
from policytool.model.reading import load_model
from policytool.model.shapes import LayerShapes
from policytool.releases.output_shapes import output_shape
from policytool.releases.releases import get
from tests.helpers.convertible_models import input2, keras2, layer2
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES
from tests.helpers.small_models import dense, sequential

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from policytool.releases.output_shapes import Shape

ARCHIVES = sorted(FIXTURES.glob("*/*.keras"))


def without_shapes(value: Any) -> Any:
    """Return a config without the build shapes of layers and the shapes of tensors."""
    if isinstance(value, list):
        return [without_shapes(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("class_name") == "__keras_tensor__":
        return {**value, "config": {**value["config"], "shape": None}}
    return {key: without_shapes(item) for key, item in value.items() if key != "build_config"}


def shapes_of(document: Document) -> LayerShapes:
    """Return the input shapes for which the layers of a document are built."""
    return LayerShapes(document=document, placed=load_model(document).placed)


def compared(path: Path) -> Iterator[tuple[str, str, Shape, Shape]]:
    """
    Yield the input shapes that an archive contains and that can also be derived from its inputs.
    """
    document = format_detection.document(path, path.name)
    assert document.config_part is not None
    parts = {**document.parts, document.config_part: without_shapes(document.config)}
    stored, followed = shapes_of(document), shapes_of(replace(document, parts=parts))
    for index, site in enumerate(stored.sites):
        inputs = followed.inputs(index)
        for name, shape in stored.inputs(index).items():
            if name in inputs and site.class_name != "InputLayer":
                yield "/".join(site.names), site.class_name, shape, inputs[name]


@THOROUGH
def test_shapes_follow_from_inputs() -> None:
    """In every archive each derived size equals the size that the release wrote."""
    classes = set()
    for path in ARCHIVES:
        for name, class_name, stored, followed in compared(path):
            assert len(stored) == len(followed), (path, name, stored, followed)
            assert all(
                None in (before, after) or before == after
                for before, after in zip(stored, followed, strict=True)
            ), (path, name, stored, followed)
            classes.add(class_name)
    assert classes >= {"Dense", "LSTM", "BatchNormalization", "TimeDistributed", "Bidirectional"}


def of_config(config: dict[str, Any], release: str = "tf2.15") -> dict[str, dict[str, Shape]]:
    """Return the input shapes of the layers of an architecture, by path."""
    document = Document(
        path="model.json",
        format="json",
        parts={"config": json.loads(json.dumps(config))},
        config_part="config",
    )
    placed = tree.build(document, get(release))
    shapes = LayerShapes(document=document, placed=placed)
    return {"/".join(site.names): shapes.inputs(index) for index, site in enumerate(placed.sites)}


def test_shapes_behind_a_lambda_are_unknown() -> None:
    """Shapes after a Lambda are unknown, because its code can change each size."""
    layer = {"class_name": "Lambda", "config": {"name": "code", "trainable": True}}
    first = dense("first", batch_input_shape=[None, 5])
    shapes = of_config(sequential(first, layer, dense("last")))
    assert shapes["mlp/code"] == {"input": (None, 2)}
    assert shapes["mlp/last"] == {}


def test_nested_model_without_inputs_has_the_input_shape_of_its_call() -> None:
    """Keras builds it with the model around it."""
    inner = sequential(dense("inner", units=7), name="block")
    inner["config"]["trainable"] = True
    first = dense("first", batch_input_shape=[None, 5])
    shapes = of_config(sequential(first, inner, dense("last")))
    assert shapes["mlp/block/inner"] == {"input": (None, 2)}
    assert shapes["mlp/last"] == {"input": (None, 7)}


def test_time_distributed_layer_keeps_the_steps() -> None:
    """
    The layer in a TimeDistributed has an input shape without steps, and the output has the steps
    again.
    """
    config = {"name": "all", "trainable": True, "layer": dense("each", units=7)}
    layer = {"class_name": "TimeDistributed", "config": config}
    first = dense("first", batch_input_shape=[None, 3, 5])
    shapes = of_config(sequential(first, layer, dense("last")))
    assert shapes["mlp/all/each"] == {"input": (None, 2)}
    assert shapes["mlp/last"] == {"input": (None, 3, 7)}


def test_a_layer_that_is_called_twice_has_the_sizes_of_both_calls() -> None:
    """Sizes that differ between two calls of a layer are unknown."""
    shared = layer2("Dense", "shared", [["a", 0, 0, {}]], [["b", 0, 0, {}]], units=7)
    architecture = keras2(input2("a", 3, 5), input2("b", 4, 5), shared)
    architecture["config"]["output_layers"] = [["shared", 0, 0], ["shared", 1, 0]]
    document = Document(
        path="model.json", format="json", parts={"config": architecture}, config_part="config"
    )
    placed = tree.build(document, get("tf2.15"))
    shapes = LayerShapes(document=document, placed=placed)
    outputs = {site.name: shapes.output(index) for index, site in enumerate(placed.sites)}
    assert outputs["shared"] == (None, None, 7)


IMAGE = {"data_format": "channels_last", "padding": "valid"}


@pytest.mark.parametrize(
    ("class_name", "config", "inputs", "expected"),
    [
        ("Dense", {"units": 3}, [(None, 4, 5)], (None, 4, 3)),
        ("Embedding", {"output_dim": 8}, [(None, 6)], (None, 6, 8)),
        ("Flatten", {}, [(None, 4, 5)], (None, 20)),
        ("Flatten", {}, [(None, None, 5)], (None, None)),
        ("Reshape", {"target_shape": [-1, 2]}, [(None, 4, 5)], (None, 10, 2)),
        ("Permute", {"dims": [2, 1]}, [(None, 4, 5)], (None, 5, 4)),
        ("RepeatVector", {"n": 3}, [(None, 4)], (None, 3, 4)),
        ("Add", {}, [(None, 1, 5), (None, 4, 5)], (None, 4, 5)),
        ("Add", {}, [(None, 4), None], None),
        ("Concatenate", {"axis": -1}, [(None, 4), (None, 5)], (None, 9)),
        ("Concatenate", {"axis": -1}, [(None, 4), None], None),
        ("LSTM", {"units": 3, "return_sequences": False}, [(None, 4, 5)], (None, 3)),
        ("GRU", {"units": 3, "return_sequences": True}, [(None, 4, 5)], (None, 4, 3)),
        (
            "Conv2D",
            {**IMAGE, "filters": 6, "kernel_size": [3, 3], "strides": [2, 2]},
            [(None, 9, None, 3)],
            (None, 4, None, 6),
        ),
        (
            "MaxPooling2D",
            {**IMAGE, "pool_size": [2, 2], "strides": None},
            [(None, 9, 8, 3)],
            (None, 4, 4, 3),
        ),
        (
            "Conv2DTranspose",
            {**IMAGE, "filters": 6, "kernel_size": [3, 3], "strides": [2, 2]},
            [(None, 4, 5, 3)],
            (None, 9, 11, 6),
        ),
        ("GlobalAveragePooling2D", IMAGE, [(None, 4, 5, 3)], (None, 3)),
        ("ZeroPadding2D", {"padding": [[1, 2], [3, 4]]}, [(None, 4, 5, 3)], (None, 7, 12, 3)),
        ("Cropping1D", {"cropping": [1, 2]}, [(None, 9, 3)], (None, 6, 3)),
        ("UpSampling2D", {"size": [2, 3]}, [(None, 4, 5, 3)], (None, 8, 15, 3)),
        (
            "EinsumDense",
            {"equation": "abc,cd->abd", "output_shape": [None, 7]},
            [(None, 4, 5)],
            (None, 4, 7),
        ),
        ("MultiHeadAttention", {"output_shape": None}, [(None, 4, 5), (None, 6, 7)], (None, 4, 5)),
        ("Lambda", {}, [(None, 4)], None),
    ],
)  # fmt: skip
def test_output_shapes(
    class_name: str, config: dict[str, Any], inputs: list[Any], expected: Any
) -> None:
    """Output shapes equal those of the libraries (Keras 3.15 and tf_keras 2.21)."""
    assert output_shape(class_name, config, inputs) == expected
