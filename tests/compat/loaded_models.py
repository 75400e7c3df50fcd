"""
Loads files with ``policytool.load`` in the interpreter that runs this file, and writes their
predictions: ``loaded_models.py ROOT PACKAGES FILES RESULT``. PACKAGES is the directory with the
packages that policytool needs, and FILES is a JSON list, in which a pair is an architecture and its
weights.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT, PACKAGES, FILES, RESULT = sys.argv[1:]
sys.path.insert(0, ROOT)
sys.path.append(PACKAGES)

import numpy as np  # noqa: E402  # the library's own, so after the paths
import tensorflow as tf  # noqa: E402

import policytool  # noqa: E402


def batch(tensor: Any) -> Any:  # a symbolic tensor of any Keras
    """Return three rows for an input."""
    shape = [3, *(size or 4 for size in tensor.shape[1:])]
    dtype = tf.as_dtype(tensor.dtype)
    if dtype == tf.string:
        return tf.constant(np.full(shape, "a b"))
    values = np.random.default_rng(0).uniform(0, 2, shape)
    return tf.cast(values, dtype)


def predictions(model: Any) -> list[Any]:  # as above
    """Return the outputs of a model as lists."""
    batches = [batch(tensor) for tensor in model.inputs]
    outputs = model(batches[0] if len(batches) == 1 else batches)
    return [as_numbers(output).numpy().tolist() for output in tf.nest.flatten(outputs)]


def as_numbers(output: Any) -> Any:  # as above
    """Return the values of an output, or hashes of strings."""
    is_text = tf.as_dtype(output.dtype) == tf.string
    values = tf.strings.to_hash_bucket_fast(output, 2**30) if is_text else output
    return tf.cast(values, tf.float64)


def main() -> None:
    """Load each file, and write predictions by position."""
    files = json.loads(FILES)
    models = (policytool.load(tuple(file) if isinstance(file, list) else file) for file in files)
    Path(RESULT).write_text(json.dumps([predictions(model) for model in models]), encoding="utf-8")


main()
