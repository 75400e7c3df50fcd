"""
What configs, graphs and policies are made of, and values that nobody expects: the dictionaries of
all mutations.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from policytool.releases import known_arguments, layer_classes, policy
from policytool.releases.releases import LOADERS
from tests.helpers.small_models import instance, instance3

if TYPE_CHECKING:
    from random import Random

CLASSES: Final = tuple(sorted(layer_classes.builtin_classes()))

_FRAME: Final = (
    *(
        "class_name",
        "config",
        "name",
        "layers",
        "module",
        "registered_name",
        "build_config",
        "input_shape",
        "inbound_nodes",
        "input_layers",
    ),
    *(
        "output_layers",
        "dtype",
        "batch_input_shape",
        "batch_shape",
        "trainable",
        "args",
        "kwargs",
        "keras_history",
        "layer",
        "cell",
        "cells",
        "backward_layer",
    ),
    *(
        "compile_config",
        "optimizer_config",
        "optimizer",
        "training_config",
        "loss_scale",
        "loss_scale_value",
        "initial_loss_scale",
        "initial_scale",
    ),
    *(
        "dynamic_growth_steps",
        "increment_period",
        "multiplier",
        "loss",
        "metrics",
        "weighted_metrics",
        "inner_optimizer",
        "source_name",
        "quantization_mode",
    ),
    *(
        "default_policy",
        "policy_map",
        "keras_version",
        "backend",
        "modelTopology",
        "weightsManifest",
        "weights",
        "paths",
        "shape",
        "quantization",
    ),
    *(
        "shared_object_id",
        "dtype_policy",
        "autocast",
        "amax_history_length",
        "functional",
        "model_config",
        "function",
        "output_shape",
        "node_def",
        "constants",
    ),
    *(
        "sublayers",
        "is_graph_network",
        "save_spec",
        "full_save_spec",
        "class_name_",
        "tensor_list",
        "node_index",
        "tensor_index",
        "axis",
        "units",
        "vocabulary",
    ),
)

KEYS: Final = tuple(
    dict.fromkeys(
        (
            *_FRAME,
            *sorted(
                {
                    key
                    for facts in known_arguments.measurements()["layers"].values()
                    for key in facts.get("writes", {})
                }
            ),
        )
    )
)
"""Names of keys: those of a config's frame, and those that any release writes for any layer."""

SCALE: Final[Any] = instance(
    "DynamicLossScale", initial_loss_scale=32768.0, increment_period=2000, multiplier=2.0
)

POLICIES: Final[tuple[Any, ...]] = (
    *policy.LISTED,
    *(
        "infer",
        "infer_with_float32_vars",
        "float16_with_float32_vars",
        "_infer",
        "int8_from_float32",
        "float8_from_mixed_bfloat16",
        "mixed_float8",
    ),
    *(
        {"class_name": kind, "config": {"name": "mixed_float16", "loss_scale": SCALE}}
        for kind in ("Policy", "PolicyV1")
    ),
    {"class_name": "PolicyV1", "config": {"name": "mixed_float16", "loss_scale": "dynamic"}},
    {**instance3("DTypePolicy", "keras", name="mixed_bfloat16"), "shared_object_id": 3},
    instance3("QuantizedDTypePolicy", "keras", mode="int8", source_name="float32"),
    instance3(
        "DTypePolicyMap",
        "keras",
        default_policy=None,
        policy_map={"mlp/.*": {**instance("DTypePolicy", name="float16"), "module": "keras"}},
    ),
)

CALLS: Final[tuple[Any, ...]] = (
    instance("__keras_tensor__", shape=[None, 4], dtype="float32", keras_history=["dense_a", 0, 0]),
    {"class_name": "__lambda__", "config": {"value": ["4wEAAAA=", None, None]}},
    {"class_name": "__tuple__", "items": [1, 2]},
    {"class_name": "TensorShape", "items": [None, 6]},
    {"class_name": "__numpy__", "config": {"value": [1, 2], "dtype": "float32"}},
    [["dense_a", 0, 0, {}]],
    {
        "args": [
            instance(
                "__keras_tensor__", shape=[None], dtype="float32", keras_history=["mlp", 1, -1]
            )
        ],
        "kwargs": {"mask": None},
    },
    {"module": "os", "class_name": "function", "config": "system", "registered_name": "system"},
)

TEXTS: Final = (
    *(
        "",
        "/",
        "..",
        "../../etc/passwd",
        "a/b/c",
        "~1",
        "~0",
        "a" * 300,
        "\0",
        "a\0b",
        "\ud800",
        "\udfff\ud800",
        "\x1b[2J",
        "\u202e",
        "é" * 40,
        "None",
        "null",
    ),
    *(
        "NaN",
        "Infinity",
        "-0",
        "1e999",
        "9" * 400,
        "float32\n",
        "=1+1",
        "|",
        "<script>",
        "[x](y)",
        "@all",
        "#1",
        "%s%n",
        "{0}",
        "keras.layers>Dense",
    ),
    *(
        "(a+)+$",
        "[",
        "(?P<n>x)(?P=n)",
        ".*" * 5,
        "\\",
        "*",
        "kernel:0",
        "bias:0",
        "\ufeff",
        "﷽",
        "ß",
        "İ",
        "０",
        "²",
        "mixed_float16 ",
    ),
)

NUMBERS: Final[tuple[Any, ...]] = (
    *(
        0,
        1,
        -1,
        2,
        7,
        255,
        256,
        2**31 - 1,
        2**31,
        -(2**31),
        2**32,
        2**53 + 1,
        2**63 - 1,
        2**63,
        -(2**63),
        2**64,
        10**30,
        10**400,
        -(10**400),
    ),
    *(
        0.0,
        -0.0,
        0.5,
        1e-320,
        1e308,
        1.7976931348623157e308,
        float("inf"),
        float("-inf"),
        float("nan"),
        True,
        False,
    ),
)

ODD: Final[tuple[Any, ...]] = (
    None,
    [],
    {},
    [None],
    [[]],
    {"": None},
    [[], {}],
    [1, "a", None],
    {"class_name": "Dense"},
    {"config": {}},
)


def odd(rng: Random) -> Any:
    """Return a value that stands where another is expected."""
    chosen = rng.choice(_KINDS)
    return (
        json.loads(json.dumps(rng.choice(chosen))) if chosen is not NUMBERS else rng.choice(chosen)
    )


_KINDS: Final[tuple[tuple[Any, ...], ...]] = (
    TEXTS,
    NUMBERS,
    ODD,
    POLICIES,
    CALLS,
    CLASSES,
    KEYS,
    LOADERS,
)
