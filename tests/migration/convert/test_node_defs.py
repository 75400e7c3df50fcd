"""
Configs of layers that contain one op of TensorFlow, from TF 1.15 to 2.3, and the order of layers in
a loaded graph.
"""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.helpers.convertible_models import converted, converted_config, input2, keras2, layer2


def op(
    name: str,
    which: str,
    inputs: list[str],
    constants: dict[str, Any] | None = None,
    **attributes: Any,
) -> dict[str, Any]:
    """Return an op layer as TF 2.3 writes it; attributes are in the JSON format of their kinds."""
    found = {"T": {"type": "DT_FLOAT"}, **attributes}
    node = {"name": which, "op": which, "input": [*inputs], "attr": found}
    nodes = [[layer, 0, 0, {}] for layer in inputs]
    return layer2("TensorFlowOpLayer", name, nodes, node_def=node, constants=constants or {})


def converted_op(*layers: dict[str, Any]) -> tuple[list[Any], list[str]]:
    """
    Return the classes, configs and arguments of the layers after the input in Keras 3, and the
    messages of the conversion errors.
    """
    config, _, log = converted(keras2(input2("a", 4, 6), *layers), "keras3.15")
    told = [
        (layer["class_name"], layer["config"], layer["inbound_nodes"][0]["args"])
        for layer in config["config"]["layers"][1:]
    ]
    return told, [refusal.message for refusal in log.refusals]


def test_op_becomes_an_operation_with_the_constant() -> None:
    told, refusals = converted_op(op("tf_op_layer_sub", "Sub", ["a"], {"0": 1.0}))
    assert not refusals
    assert told[0][0] == "Subtract"
    assert told[0][2][0] == 1.0
    assert told[0][2][1]["config"]["keras_history"] == ["a", 0, 0]


def test_attributes_become_arguments() -> None:
    """
    Attributes of ops become arguments: types, numbers in text, lists of numbers, flags, and bytes
    in base64.
    """
    mode = {"s": base64.b64encode(b"REFLECT").decode()}
    layers = [
        op("mean", "Mean", ["a"], {"1": [1]}, keep_dims={"b": True}),
        op("padded", "MirrorPad", ["mean"], {"1": [[0, 0], [0, 0], [2, 2]]}, mode=mode),
        op("squeezed", "Squeeze", ["padded"], squeeze_dims={"list": {"i": ["1"]}}),
        op(
            "cast",
            "Cast",
            ["squeezed"],
            SrcT={"type": "DT_FLOAT"},
            DstT={"type": "DT_HALF"},
            Truncate={"b": False},
        ),
    ]
    told, refusals = converted_op(*layers)
    assert not refusals
    assert [name for name, _, _ in told] == ["Mean", "Pad", "Squeeze", "Cast"]
    assert (told[0][1]["axis"], told[0][1]["keepdims"]) == ([1], True)
    assert told[1][1]["mode"] == "reflect"
    assert told[2][1]["axis"] == 1
    assert told[3][1]["dtype"] == "float16"


def test_a_strided_slice_becomes_an_index() -> None:
    """
    A StridedSlice with masks becomes an index such as ``a[:, 1:3, ..., None, 0]``; the lowest bit
    of a mask is the first axis.
    """
    bounds = {"1": [0, 1, 0, 0, 0], "2": [0, 3, 0, 0, 1], "3": [1, 1, 1, 1, 1]}
    masks = {
        "begin_mask": 1,
        "end_mask": 1,
        "ellipsis_mask": 4,
        "new_axis_mask": 8,
        "shrink_axis_mask": 16,
    }
    told, refusals = converted_op(
        op(
            "s",
            "StridedSlice",
            ["a"],
            bounds,
            **{name: {"i": str(mask)} for name, mask in masks.items()},
        ),
    )
    assert not refusals
    key = told[0][2][1]
    items = key["items"] if isinstance(key, dict) else key
    assert [item["class_name"] if isinstance(item, dict) else item for item in items] == [
        "__slice__",
        "__slice__",
        "__ellipsis__",
        None,
        0,
    ]
    assert (items[1]["config"]["start"], items[1]["config"]["stop"]) == (1, 3)


def test_packed_shape_becomes_a_list() -> None:
    """
    A shape that the graph packs, as in ``tf.reshape(a, [tf.shape(a)[0], 24])``, becomes a list in
    the arguments, and its ops are dropped.
    """
    masks = {"shrink_axis_mask": {"i": "1"}, "begin_mask": {"i": "0"}}
    layers = [
        op("shape", "Shape", ["a"], out_type={"type": "DT_INT32"}),
        op("first", "StridedSlice", ["shape"], {"1": [0], "2": [1], "3": [1]}, **masks),
        op("packed", "Pack", ["first"], {"1": 24}, axis={"i": "0"}, N={"i": "2"}),
        op("reshaped", "Reshape", ["a", "packed"]),
    ]
    told, refusals = converted_op(*layers)
    assert not refusals
    assert [(name, config["newshape"]) for name, config, _ in told] == [("Reshape", [-1, 24])]


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        (op("o", "Bincount", ["a"]), "o (TensorFlowOpLayer) calls the TensorFlow op Bincount"),
        (
            op("o", "ResizeBilinear", ["a"], {"1": [2, 2]}, half_pixel_centers={"b": False}),
            "calls the op ResizeBilinear with half_pixel_centers=False",
        ),
        (op("o", "Relu", ["a"], {"1": 1.0}), "calls the op Relu with 2 inputs"),
        (op("o", "Relu", ["a"], wild={"b": True}), "calls the op Relu with wild"),
        (
            op("o", "StridedSlice", ["a", "a"], {"2": [1], "3": [1]}),
            "calls the op StridedSlice with tensors as bounds",
        ),
    ],
)
def test_op_without_an_operation_is_rejected(layer: dict[str, Any], said: str) -> None:
    _, refusals = converted_op(layer)
    assert len(refusals) == 1
    assert said in refusals[0]


def test_layers_have_the_order_of_the_releases() -> None:
    """
    In Keras 3.15 a product with ``transpose_b`` becomes two operations before ``y``, so
    ``model.layers`` has ``y`` before ``x``. Files have variables in this order.
    """
    dense = [
        layer2("Dense", name, [["a", 0, 0, {}]], units=6, activation="linear", use_bias=True)
        for name in ("x", "y")
    ]
    product = op("product", "BatchMatMulV2", ["x", "y"], adj_x={"b": False}, adj_y={"b": True})
    config = converted_config(keras2(input2("a", 4, 6), *dense, product), "keras3.15")
    assert [layer["name"] for layer in config["config"]["layers"]] == [
        "a",
        "y",
        "x",
        "product_swapaxes",
        "product",
    ]
