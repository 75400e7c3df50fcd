"""
Tell the reduction depth of functions of TensorFlow's: ``python deepening.py`` prints a JSON object,
name to depth.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.compat.rewrites import runtime

tf: Any = import_module("tensorflow")

BATCH, LENGTH, WIDTH = 3, 50, 7

FUNCTIONS: Final[dict[str, Any]] = {
    "nothing": tf.nn.relu,
    "one axis": lambda x: tf.reduce_sum(x, 1),
    "two axes": lambda x: tf.reduce_mean(x, [1, 2]),
    "one after the other": lambda x: tf.reduce_sum(tf.reduce_sum(x, 2), 1),
    "running": lambda x: tf.cumsum(x, 1),
    "running, from the end": lambda x: tf.math.cumprod(x, -1),
    "softmax": lambda x: tf.raw_ops.Softmax(logits=x[0]),
    "product": lambda x: tf.matmul(x, x, transpose_a=True),
    "product, the other way": lambda x: tf.matmul(x, x, transpose_b=True),
    "einsum": lambda x: tf.einsum("bij,bkj->bik", x, x),
    "convolution": lambda x: tf.nn.conv1d(x, tf.ones([5, WIDTH, 4]), 1, "SAME"),
    "pooling": lambda x: tf.nn.avg_pool1d(x, 4, 1, "SAME"),
    "loop": lambda x: tf.map_fn(lambda row: tf.reduce_sum(row, 0), x),
}


def depth(function: Any) -> int:
    """Return the depth of a function of one tensor, as it is traced."""
    graph = (
        tf.function(function, autograph=False)
        .get_concrete_function(tf.TensorSpec([BATCH, LENGTH, WIDTH]))
        .graph
    )
    return int(runtime("engine.layer_hooks").reduction_depth(graph.get_operations()))


if __name__ == "__main__":
    sys.stdout.write(json.dumps({name: depth(function) for name, function in FUNCTIONS.items()}))
