"""
Op layers of TF 1.15 to 2.3 with numbers, and whether releases of Keras 2 load them.

TF 2.1 and 2.3 saved 596 models with such ops; TF 1.15 to 2.15 and tf_keras 2.21 agree on each.
"""

from __future__ import annotations

from typing import Any, Final

CASES: Final[tuple[tuple[str, dict[str, str], dict[str, Any], bool], ...]] = (
    ("Mul", {"T": "DT_FLOAT"}, {"1": 2.0}, True),
    ("Mul", {"T": "DT_HALF"}, {"1": 2.0}, False),
    ("Sub", {"T": "DT_HALF"}, {"0": 1.0}, False),
    ("Maximum", {"T": "DT_DOUBLE"}, {"1": [0.0, 0.0, 1.0, 1.0]}, False),
    ("AddV2", {"T": "DT_INT32"}, {"1": 1}, True),
    ("AddV2", {"T": "DT_INT64"}, {"1": 1}, False),
    ("Square", {"T": "DT_HALF"}, {}, True),
    ("Sum", {"T": "DT_HALF", "Tidx": "DT_INT32"}, {"1": 1}, True),
    ("Sum", {"T": "DT_UINT8", "Tidx": "DT_INT32"}, {"1": [-1]}, True),
    ("Split", {"T": "DT_INT64"}, {"0": 1}, True),
    ("TopKV2", {"T": "DT_INT64"}, {"1": 2}, True),
    ("OneHot", {"T": "DT_FLOAT", "TI": "DT_INT64"}, {"1": 3, "2": 1.0, "3": 0.0}, True),
)
"""An op, its dtypes, the numbers by the position of the input, and whether releases load it."""

_DTYPES: Final = {"DT_HALF": "float16", "DT_DOUBLE": "float64", "DT_INT64": "int64"}


def model(op: str, dtypes: dict[str, str], numbers: dict[str, Any]) -> dict[str, Any]:
    """Return the config of a functional model that applies an op to its input, as in TF 2.3."""
    input_enum = dtypes.get("TI", dtypes["T"])
    dtype = _DTYPES.get(input_enum, input_enum.removeprefix("DT_").lower())
    position = next(place for place in range(5) if str(place) not in numbers)
    attributes: dict[str, Any] = {key: {"type": value} for key, value in dtypes.items()}
    if op == "Split":
        attributes["num_split"] = {"i": "2"}
    inputs = ["a" if place == position else f"c{place}" for place in range(1 + len(numbers))]
    node = {"name": "b", "op": op, "input": inputs, "attr": attributes}
    config = {
        "name": "tf_op_layer_b",
        "trainable": True,
        "dtype": "float32",
        "node_def": node,
        "constants": numbers,
    }
    source = {"batch_input_shape": [None, 4], "dtype": dtype, "sparse": False, "name": "a"}
    layers = [
        {"class_name": "InputLayer", "config": source, "name": "a", "inbound_nodes": []},
        {
            "class_name": "TensorFlowOpLayer",
            "config": config,
            "name": "tf_op_layer_b",
            "inbound_nodes": [[["a", 0, 0, {}]]],
        },
    ]
    return {
        "class_name": "Functional",
        "config": {
            "name": "m",
            "layers": layers,
            "input_layers": [["a", 0, 0]],
            "output_layers": [["tf_op_layer_b", 0, 0]],
        },
        "keras_version": "2.4.0",
        "backend": "tensorflow",
    }
