"""
Write models of Keras 3, and the errors of their predictions in 16 bits: ``python -m
tests.compat.backend_models DIR``, under an interpreter with the backend in ``KERAS_BACKEND``.

``truth.json`` has the relative error of each model and policy, computed by plain Keras: the same
weights in a model that was built with the policy, whose last layer computes in float32.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import keras  # type: ignore[import-not-found,unused-ignore]
import numpy as np

POLICIES: Final = ("mixed_float16", "mixed_bfloat16")
LARGE: Final = 300.0
"""The scale of the kernel whose products overflow float16."""


def dense(policy: str) -> Any:
    """Return a network with a normalization."""
    inputs = value = keras.Input((16,), name="x")
    value = keras.layers.Dense(64, activation="relu", dtype=policy, name="wide")(value)
    value = keras.layers.LayerNormalization(dtype=policy, name="norm")(value)
    return keras.Model(inputs, keras.layers.Dense(8, activation="softmax", name="out")(value))


def image(policy: str) -> Any:
    """Return a convolutional network with a branch."""
    inputs = keras.Input((12, 12, 3), name="x")
    stem = keras.layers.Conv2D(8, 3, padding="same", dtype=policy, name="stem")(inputs)
    value = keras.layers.DepthwiseConv2D(3, padding="same", dtype=policy, name="depth")(stem)
    value = keras.layers.BatchNormalization(dtype=policy, name="norm")(value)
    value = keras.layers.Add(dtype=policy, name="sum")([stem, value])
    value = keras.layers.GlobalAveragePooling2D(dtype=policy, name="pool")(value)
    return keras.Model(inputs, keras.layers.Dense(4, name="out")(value))


def sequence(policy: str) -> Any:
    """Return a network with an attention and recurrent layers."""
    inputs = keras.Input((10, 8), name="x")
    value = keras.layers.Masking(-1.0, dtype=policy, name="masking")(inputs)
    value = keras.layers.MultiHeadAttention(2, 4, dtype=policy, name="attention")(value, value)
    value = keras.layers.LSTM(6, return_sequences=True, dtype=policy, name="lstm")(value)
    value = keras.layers.GRU(6, dtype=policy, name="gru")(value)
    return keras.Model(inputs, keras.layers.Dense(3, name="out")(value))


def overflow(policy: str) -> Any:
    """Return a network whose layer ``large`` overflows float16."""
    inputs = value = keras.Input((16,), name="x")
    scale = keras.initializers.Constant(LARGE)
    for name in ("before", "large"):
        value = keras.layers.Dense(16, kernel_initializer=scale, dtype=policy, name=name)(value)
    return keras.Model(inputs, keras.layers.Dense(3, name="out")(value))


MODELS: Final = (dense, image, sequence, overflow)


def main(directory: Path) -> None:
    """Write the models, their inputs and the errors."""
    truth: dict[str, dict[str, float]] = {}
    for build in MODELS:
        name = build.__name__
        keras.utils.set_random_seed(1)
        reference = build("float32")
        data = np.random.default_rng(1).normal(size=(64, *reference.input_shape[1:]))
        data = data.astype("float32")
        reference.save(directory / f"{name}.keras")
        np.save(directory / f"{name}.npy", data)
        expected = keras.ops.convert_to_numpy(reference(data, training=False)).astype("float64")
        truth[name] = {}
        for policy in POLICIES:
            candidate = build(policy)
            candidate.set_weights(reference.get_weights())
            actual = keras.ops.convert_to_numpy(candidate(data, training=False)).astype("float64")
            error = np.linalg.norm(actual - expected) / np.linalg.norm(expected)
            truth[name][policy] = float(error) if np.isfinite(error) else -1.0
    (directory / "truth.json").write_text(json.dumps(truth), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
