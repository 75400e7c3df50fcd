"""
Compare a saved model under float32 and mixed_float16 in as few lines as a user would write:
``python bare_check.py MODEL [POLICY]``.

It is what the cost of ``policytool check`` is measured against. Runs under the interpreter that has
TensorFlow. HDF5 files are loaded by tf_keras, and ``.keras`` files by Keras 3.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
BATCH = 8


def main(path: str, policy: str = "mixed_float16") -> None:
    """Print the relative error of the outputs for one batch of random inputs."""
    keras = importlib.import_module("keras" if path.endswith(".keras") else "tf_keras")
    model = keras.models.load_model(path, compile=False)
    inputs = np.random.default_rng(1).random((BATCH, *model.input_shape[1:]), "float32")
    predictions = []
    for name in ("float32", policy):

        def copy(layer: Any, name: str = name) -> Any:
            return type(layer).from_config({**layer.get_config(), "dtype": name})

        clone = keras.models.clone_model(model, clone_function=copy)
        clone.set_weights(model.get_weights())
        predictions.append(clone.predict(inputs, verbose=0).astype("float64"))
    reference, candidate = predictions
    error = np.linalg.norm(candidate - reference) / np.linalg.norm(reference)
    sys.stdout.write(f"relative error {error:.3g}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
