"""Ops of functional graphs between Keras 2 and Keras 3, as configs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from policytool.formats import format_detection
from policytool.migration.convert import conversion_plan, decoding, encoding
from policytool.migration.convert.rewrites import ConversionContext
from policytool.migration.convert.rewrites.operations import FUNCTIONS
from policytool.migration.convert.target import Log, Target
from policytool.migration.result_dtypes import promoted_dtype
from policytool.model import reading
from policytool.releases import keras_operations
from policytool.releases.keras_operations import operation_rows
from tests.helpers import convertible_models as models
from tests.helpers.convertible_models import input2, input3, layer2, layer3
from tests.helpers.small_models import instance

if TYPE_CHECKING:
    from pathlib import Path

Json = dict[str, Any]
CONFIGS: Final = {
    "Argmax": {"axis": -1, "keepdims": True},
    "Nansum": {"axis": -1, "keepdims": False},
}
ENDS: Final = {"start": None, "stop": None, "step": None}


def keras2(function: str, node: Any, *, dtype: str = "float32", layer: str = "TFOpLambda") -> Json:
    """Return a model with one op layer as TF 2.4 writes it."""
    start = input2("in0", 3, 4)
    start["config"]["dtype"] = dtype
    model = models.keras2(start, layer2(layer, "op", node, function=function))
    return {**model, "keras_version": "2.4.0"}


def tensor(name: str) -> Json:
    """Return a tensor as Keras 3 writes it."""
    history = [name, 0, 0]
    return instance("__keras_tensor__", shape=[None, 3, 4], dtype="float32", keras_history=history)


def keras3(
    module: str, op: str, args: list[Any], *, dtype: str = "float32", config: Json | None = None
) -> Json:
    """Return a model with one operation as Keras 3.15 writes it."""
    start = input3("in0", 3, 4)
    start["config"]["dtype"] = dtype
    operation = layer3(op, "op", *args, module=f"keras.src.ops.{module}", **(config or {}))
    return models.keras3(start, operation)


def converted(
    model: Json, folder: Path, loader: str, container: str = "json"
) -> tuple[list[Json], Log]:
    """Return the converted layers after the input, and the log of the conversion."""
    path = folder / "model.json"
    path.write_text(json.dumps(model), encoding="utf-8")
    log, target = Log(), Target(loader=loader, container=container)
    loaded = reading.load_model(format_detection.document(path, str(path)))
    root = conversion_plan.rewrite_model(
        decoding.decode(loaded), ConversionContext(loaded=loaded, target=target, log=log)
    )
    found: Any = encoding.encode(root, target, log)
    return found["config"]["layers"][1:], log


def classes(layers: list[Json]) -> list[str]:
    """Return the class or function of each op."""
    return [layer["config"].get("function", layer["class_name"]) for layer in layers]


@pytest.mark.parametrize(
    ("function", "node", "expected"),
    [
        ("__operators__.add", ["in0", 0, 0, {"y": 1, "name": None}], ["Add"]),
        (
            "math.subtract",
            ["_CONSTANT_VALUE", -1, 1.0, {"y": ["in0", 0, 0], "name": None}],
            ["Subtract"],
        ),
        ("nn.softmax", ["in0", 0, 0, {"axis": None}], ["Softmax"]),
        ("zeros_like", ["in0", 0, 0, {}], ["ZerosLike"]),
        ("zeros_like", ["in0", 0, 0, {"dtype": "bool"}], ["ZerosLike", "Cast"]),
        (
            "nn.avg_pool1d",
            ["in0", 0, 0, {"ksize": [1, 2, 1], "strides": 2, "padding": "SAME"}],
            ["AveragePool"],
        ),
        ("norm", ["in0", 0, 0, {"ord": 1, "axis": -1}], ["Absolute", "Sum"]),
        ("math.argmax", ["in0", 0, 0, {"axis": -1}], ["Argmax", "Cast"]),
        (
            "linalg.matmul",
            ["in0", 0, 0, {"b": ["in0", 0, 0], "transpose_b": True}],
            ["Swapaxes", "Matmul"],
        ),
        (
            "math.l2_normalize",
            ["in0", 0, 0, {"axis": -1}],
            ["Square", "Sum", "Maximum", "Rsqrt", "Multiply"],
        ),
        ("concat", [["in0", 0, 0, {"axis": -1}], ["in0", 0, 0, {"axis": -1}]], ["Concatenate"]),
    ],
)
def test_an_op_layer_becomes_operations(
    tmp_path: Path, function: str, node: Any, expected: list[str]
) -> None:
    """
    An op layer becomes one or more operations, and the last one keeps the layer's name so that
    references to it stay valid.
    """
    layers, log = converted(keras2(function, node), tmp_path, "keras3.15")
    assert classes(layers) == expected
    assert layers[-1]["name"] == "op"
    assert not log.refusals


@pytest.mark.parametrize(
    ("function", "node", "reason"),
    [
        ("einsum", ["_CONSTANT_VALUE", -1, "ab->ba", {}], "do not contain its tensors"),
        (
            "nn.avg_pool",
            ["in0", 0, 0, {"ksize": [1, 2, 1], "strides": 2, "padding": "SAME"}],
            "do not match the axes",
        ),
        (
            "nn.max_pool2d",
            ["in0", 0, 0, {"ksize": 2, "strides": 2, "padding": "SAME", "data_format": "NCHW"}],
            "channels_first",
        ),
        ("norm", ["in0", 0, 0, {"ord": 1, "axis": [1, 2]}], "matrix norm"),
        (
            "zeros_like",
            ["in0", 0, 0, {"dtype": "half-open"}],
            "a dtype that Keras 3 does not support",
        ),
    ],
)
def test_op_layer_that_keras3_cannot_express_is_rejected(
    tmp_path: Path, function: str, node: Any, reason: str
) -> None:
    """An op layer that Keras 3 cannot express is an error with the reason."""
    log = converted(keras2(function, node), tmp_path, "keras3.15")[1]
    assert [reason in one.message for one in log.refusals] == [True]


@pytest.mark.parametrize(
    ("equation", "tensors"),
    [
        ("...a->...", 1),
        ("abc", 1),
        ("aab->ab", 1),
        ("abc->abcd", 1),
        ("abc,abd,abe->ac", 3),
        ("abc,abc", 2),
    ],
)
def test_equations_that_are_not_products_are_rejected(
    tmp_path: Path, equation: str, tensors: int
) -> None:
    """
    An einsum that is not a product of two tensors is an error, such as ellipses, diagonals, missing
    or unknown axes in the result, and three tensors.
    """
    model = keras3("numpy", "Einsum", [tensor("in0")] * tensors, config={"subscripts": equation})
    log = converted(model, tmp_path, "tf_keras2.21")[1]
    assert ["Einsum" in one.message for one in log.refusals] == [True]


def test_a_dtype_in_the_call_is_read(tmp_path: Path) -> None:
    """
    The dtype of an operation is read from its call, where Keras 3.0 to 3.10 write it; later
    releases write it in the config.
    """
    model = keras3("numpy", "ZerosLike", [tensor("in0")])
    model["config"]["layers"][1]["inbound_nodes"][0]["kwargs"] = {"dtype": "bool"}
    layers, log = converted(model, tmp_path, "tf_keras2.21")
    assert layers[0]["inbound_nodes"] == [["in0", 0, 0, {"dtype": "bool"}]]
    assert not log.refusals


def test_a_number_in_front_stays_in_front(tmp_path: Path) -> None:
    """A number before a tensor stays the first argument, because ``1 - x`` is not ``x - 1``."""
    node = ["_CONSTANT_VALUE", -1, 1.0, {"y": ["in0", 0, 0], "name": None}]
    layers, _ = converted(keras2("math.subtract", node), tmp_path, "keras3.15")
    assert layers[0]["inbound_nodes"][0]["args"][0] == 1.0


def test_array_gets_the_dtype_of_the_other_tensor(tmp_path: Path) -> None:
    """
    An array in a call gets the dtype of the other tensor, as in TensorFlow; Keras 3 would promote
    both dtypes.
    """
    layers, _ = converted(
        keras2("math.add", ["in0", 0, 0, {"y": [1.0, 2.0, 3.0, 4.0]}], dtype="float16"),
        tmp_path,
        "keras3.15",
    )
    assert layers[0]["inbound_nodes"][0]["args"][1] == {
        "class_name": "__numpy__",
        "config": {"value": [1.0, 2.0, 3.0, 4.0], "dtype": "float16"},
    }


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (0, 0),
        ([ENDS, 0], [{"class_name": "__slice__", "config": ENDS}, 0]),
        (
            [{"class_name": "__ellipsis__"}, None],
            [{"class_name": "__ellipsis__", "config": {}}, None],
        ),
        (
            {"start": 1, "stop": None, "step": None},
            [{"class_name": "__slice__", "config": {"start": 1, "stop": None, "step": None}}],
        ),
    ],
)
def test_a_slice_becomes_get_item(tmp_path: Path, spec: Any, expected: Any) -> None:
    """A single slice is written in a list, because Keras 3 reads no slice outside a list."""
    model = keras2(
        "__operators__.getitem", ["in0", 0, 0, {"slice_spec": spec}], layer="SlicingOpLambda"
    )
    layers, log = converted(model, tmp_path, "keras3.15")
    assert layers[0]["inbound_nodes"][0]["args"][1] == expected
    assert not log.refusals


ELLIPSIS: Final = {"class_name": "__ellipsis__", "config": {}}


@pytest.mark.parametrize(
    ("shape", "key", "expected"),
    [
        ([None, 3, 4], [ELLIPSIS, 0], [ENDS, ENDS, 0]),
        ([None, 3, 4], [0, ELLIPSIS, None], [0, ENDS, ENDS, None]),
        ([None, 3, 4], ELLIPSIS, [ENDS, ENDS, ENDS]),
        ([None, 3], [0, ELLIPSIS, 1], [0, 1]),
        ([None], [ELLIPSIS, 0], None),
    ],
)
def test_ellipsis_is_replaced_if_the_rank_is_known(
    tmp_path: Path, shape: list[int | None], key: Any, expected: Any
) -> None:
    """
    An ellipsis is replaced with slices if the file contains the rank of the tensor; archives of
    Keras 2 cannot contain an ellipsis.
    """
    given = tensor("in0")
    given["config"]["shape"] = shape
    model = keras3("numpy", "GetItem", [given, key])
    layers, log = converted(model, tmp_path, "tf_keras2.21", "keras")
    if expected is None:
        assert any("ellipsis" in refusal.message for refusal in log.refusals)
    else:
        assert not log.refusals
        assert layers[0]["inbound_nodes"][0][-1]["slice_spec"] == expected


@pytest.mark.parametrize(
    ("function", "node", "dtype"),
    [
        ("einsum", ["_CONSTANT_VALUE", -1, "bij,bkj->bik", {}], "float32"),
        ("__operators__.eq", ["in0", 0, 0, {}], "float32"),
        ("math.reduce_mean", ["in0", 0, 0, {"axis": 1}], "int32"),
        ("nn.dropout", ["in0", 0, 0, {"rate": 0.1}], "float32"),
        ("math.cumsum", ["in0", 0, 0, {"axis": 1, "reverse": True}], "float32"),
        ("compat.v1.shape", ["in0", 0, 0, {"name": None, "out_type": "int32"}], "float32"),
    ],
)
def test_call_that_keras3_cannot_express_is_rejected(
    tmp_path: Path, function: str, node: Any, dtype: str
) -> None:
    """A call that Keras 3 cannot express is an error with the layer and the function."""
    _, log = converted(keras2(function, node, dtype=dtype), tmp_path, "keras3.15")
    assert [refusal.code for refusal in log.refusals] == ["operation"]


def test_operations_are_rejected_in_hdf5(tmp_path: Path) -> None:
    """No release loads operations from HDF5."""
    _, log = converted(
        keras2("nn.relu", ["in0", 0, 0, {"name": None}]), tmp_path, "keras3.15", "h5"
    )
    assert [refusal.code for refusal in log.refusals] == ["h5-operations"]


def test_operations_for_keras_3_6_have_no_name_in_the_config(tmp_path: Path) -> None:
    """The config of an operation has no name for Keras 3.6, whose Mean does not accept it."""
    model = keras2("math.reduce_mean", ["in0", 0, 0, {"axis": 1}])
    assert converted(model, tmp_path, "keras3.6")[0][0]["config"] == {"axis": 1, "keepdims": False}
    assert converted(model, tmp_path, "keras3.15")[0][0]["config"] == {
        "name": "op",
        "axis": 1,
        "keepdims": False,
    }


@pytest.mark.parametrize(
    ("op", "args", "config", "expected"),
    [
        ("Add", [tensor("in0"), 1], {}, ["math.add"]),
        ("Subtract", [1, tensor("in0")], {}, ["math.negative", "math.add"]),
        ("Greater", [1, tensor("in0")], {}, ["math.less"]),
        ("Argmax", [tensor("in0")], {"axis": -1, "keepdims": False}, ["math.argmax", "cast"]),
        (
            "GetItem",
            [tensor("in0"), [{"class_name": "__slice__", "config": ENDS}, 0]],
            {},
            ["__operators__.getitem"],
        ),
        ("Split", [tensor("in0")], {"indices_or_sections": [1, 3], "axis": -1}, ["split"]),
    ],
)
def test_an_operation_becomes_op_layers(
    tmp_path: Path, op: str, args: list[Any], config: Json, expected: list[str]
) -> None:
    """An operation becomes op layers in every release that has them, from TF 2.4 on."""
    for loader in ("tf2.4", "tf2.15", "tf_keras2.21"):
        layers, log = converted(keras3("numpy", op, args, config=config), tmp_path, loader)
        assert classes(layers) == expected
        assert layers[-1]["name"] == "op"
        assert not log.refusals


_NORM: Final = ["math.square", "math.reduce_sum", "math.sqrt"]


@pytest.mark.parametrize(
    ("which", "config", "dtype", "expected"),
    [
        (
            *("nn.Normalize", {"axis": -1}, "float32"),
            ["math.square", "math.reduce_sum", "math.rsqrt", "math.minimum", "math.multiply"],
        ),
        ("linalg.Norm", {"axis": None}, "float32", _NORM),
        ("linalg.Norm", {"axis": 1, "ord": 2}, "float32", _NORM),
        ("nn.HardSigmoid", {}, "float16", ["math.add", "nn.relu6", "math.divide"]),
        ("numpy.Log10", {}, "float64", ["math.log", "math.divide"]),
        ("image.Resize", {"size": [2, 2]}, "float32", ["image.resize"]),
        ("image.Resize", {"size": [2, 2]}, "float16", ["image.resize", "cast"]),
        (
            *("image.Resize", {"size": [2, 2], "interpolation": "nearest"}, "float16"),
            ["image.resize"],
        ),
        ("nn.OneHot", {"num_classes": 3, "axis": -1, "dtype": "float32"}, "int64", ["one_hot"]),
    ],
)
def test_an_operation_becomes_several_functions(
    tmp_path: Path, which: str, config: Json, dtype: str, expected: list[str]
) -> None:
    """
    An operation becomes several functions that compute as in the library
    (``tests/compat/op_models.py``).
    """
    module, _, op = which.partition(".")
    layers, log = converted(
        keras3(module, op, [tensor("in0")], dtype=dtype, config=config), tmp_path, "tf2.15"
    )
    assert not log.refusals
    assert classes(layers) == expected


@pytest.mark.parametrize(
    ("which", "config", "dtype"),
    [
        ("nn.Normalize", {"order": "fro"}, "float32"),
        ("nn.Normalize", {"axis": "last"}, "float32"),
        ("nn.HardSigmoid", {}, "int32"),
        ("linalg.Norm", {"axis": None, "ord": 2}, "float32"),
        ("linalg.Norm", {"axis": 1, "ord": "nuc"}, "float32"),
        ("image.Resize", {"size": [2, 2], "crop_to_aspect_ratio": True}, "float32"),
        ("image.Resize", {"size": [2, 2], "data_format": "channels_first"}, "float32"),
        ("image.Resize", {"size": None}, "float32"),
    ],
)
def test_operations_that_functions_cannot_compute_are_rejected(
    tmp_path: Path, which: str, config: Json, dtype: str
) -> None:
    """Other norms, integers, and other ways to resize."""
    module, _, op = which.partition(".")
    model = keras3(module, op, [tensor("in0")], dtype=dtype, config=config)
    assert "operation" in {one.code for one in converted(model, tmp_path, "tf2.15")[1].refusals}


def test_a_tuple_of_tensors_is_a_list(tmp_path: Path) -> None:
    tensors = [["in0", 0, 0, {"axis": -1}], ["in0", 0, 0, {"axis": -1}]]
    node = {"class_name": "__tuple__", "items": tensors}
    layers, log = converted(keras2("concat", node), tmp_path, "keras3.15")
    assert not log.refusals
    assert classes(layers) == ["Concatenate"]


@pytest.mark.parametrize(
    ("op", "args", "dtype", "loader"),
    [
        ("Add", [tensor("in0"), 1], "float32", "tf2.3"),
        ("Argmax", [tensor("in0")], "float32", "tf2.15"),
        ("TrueDivide", [tensor("in0"), 2], "int32", "tf2.15"),
        ("Nansum", [tensor("in0")], "float32", "tf2.15"),
    ],
)
def test_operations_that_keras2_does_not_support_are_rejected(
    tmp_path: Path, op: str, args: list[Any], dtype: str, loader: str
) -> None:
    """
    An operation is an error if Keras 2 does not support its key, class or dtype, or if the target
    release does not have it.
    """
    _, log = converted(
        keras3("numpy", op, args, dtype=dtype, config=CONFIGS.get(op)), tmp_path, loader
    )
    assert "operation" in {refusal.code for refusal in log.refusals}


def test_promotion() -> None:
    """The dtypes of several tensors are promoted as in Keras 3."""
    assert promoted_dtype(["float16", "float32"]) == "float32"
    assert promoted_dtype(["float16", "bfloat16"]) == "float32"
    assert promoted_dtype(["int64", "float16"]) == "float16"
    assert promoted_dtype(["int32", "bool"]) == "int32"
    assert promoted_dtype(["int32"], [1.5]) == "float32"
    assert promoted_dtype(["float16"], [1.5]) == "float16"
    assert promoted_dtype(["int8", "int32"]) is None
    assert promoted_dtype([None, "int32"]) is None


def test_every_row_is_of_a_release() -> None:
    """For each row, the newest releases have the operation, the function and the arguments."""
    for row in operation_rows():
        signature = keras_operations.signature("keras3.15", row.module, row.op)
        assert signature is not None, row.op
        assert keras_operations.resolves("tf_keras2.21", row.functions[0]), row.functions[0]
        assert [pair.keras3 for pair in row.call_arguments] == list(signature.call)[
            : len(row.call_arguments)
        ], row.op
        assert {pair.keras3 for pair in row.pairs if pair not in row.call_arguments} <= {
            *signature.config,
            *signature.required,
        }, row.op


def test_known_functions_exist_in_tf_keras() -> None:
    """No file contains a name that no release finds."""
    assert {
        name for name in FUNCTIONS if not keras_operations.resolves("tf_keras2.21", name)
    } == set()
