"""
Read checkpoints and SavedModels with TensorFlow's own readers: ``python checkpoints.py PATHS
RESULTS``.

PATHS is a JSON list of prefixes of checkpoints and of directories of SavedModels; RESULTS gets, for
each, ``{"tensors": {key: [dtype, shape, hash]}}``, and for a SavedModel ``{"variables": {node:
hash}}`` too: what the loader restored into the variable of that node of the object graph. A hash is
the SHA-256 of the values, for strings that of the list of them in Python.
"""

from __future__ import annotations

import hashlib
import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

tf: Any = import_module("tensorflow")
load: Any = import_module(
    "tensorflow.python.saved_model.load"
)  # the public function keeps the numbers of nodes to itself
import_module("tf_keras")  # without its optimizers the loader refuses SavedModels that have slots


def digest(value: Any, *, text: bool = False) -> str:
    """Return the hash of a tensor's values."""
    if text:
        return hashlib.sha256(
            repr(np.asarray(value, dtype=object).ravel().tolist()).encode()
        ).hexdigest()
    return hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()


def tensors(prefix: str) -> dict[str, list[Any]]:
    """Return what the reader of checkpoints says of each key."""
    reader = tf.train.load_checkpoint(prefix)
    shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    return {
        key: [
            dtypes[key].name,
            shapes[key],
            digest(reader.get_tensor(key), text=dtypes[key] == tf.string),
        ]
        for key in shapes
    }


class Loader(load.Loader):  # type: ignore[misc]
    """The loader of SavedModels, which remembers itself."""

    last: Any = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        Loader.last = self
        super().__init__(*arguments, **options)


def variables(path: str) -> dict[int, str]:
    """Return what was restored into each variable, by its node."""
    load.Loader, Loader.last = Loader, None
    tf.saved_model.load(path)
    nodes = (
        Loader.last._nodes if Loader.last else ()  # noqa: SLF001  # those of TF 1 have no objects, and another loader
    )
    return {
        index: digest(node.numpy())
        for index, node in enumerate(nodes)
        if isinstance(node, tf.Variable)
    }


def main() -> None:
    """Read every path and write down what it holds."""
    paths, results = sys.argv[1:]
    found = {}
    for path in json.loads(Path(paths).read_text(encoding="utf-8")):
        inside = Path(path, "variables/variables")
        saved_model = inside.with_name("variables.index").exists()
        found[path] = {
            "tensors": tensors(str(inside) if saved_model else path),
            **({"variables": variables(path)} if saved_model else {}),
        }
    Path(results).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
