"""
Write residual streams of 24 blocks with classes that are far apart: ``python -m
tests.compat.residual_models DIR``, under the interpreter with TensorFlow.

In ``NAME.keras`` (Keras 3) and ``NAME.h5`` (tf_keras), blocks leave the range of float16 and come
back, or the stream has an offset of which bfloat16 rounds the differences away. ``inputs.npz`` is
for all of them.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection

BLOCKS: Final = 24
CLASSES: Final = 8
ROWS: Final = 400
"""Without a change, 299 rows show that at most 1% change."""

GAIN: Final = 3e4
"""A block with it has activations beyond 65,504, the largest value of float16."""

OFFSET: Final = 256.0
"""From here on, two values of bfloat16 are 2 apart, and two of float16 0.25."""

OVERFLOWING: Final = {"one": (9,), "some": tuple(range(5, 17)), "all": tuple(range(BLOCKS))}
"""By model, the blocks that leave the range of float16."""

SUFFIXES: Final = {"keras": ".keras", "tf_keras": ".h5"}


def residual(keras: Any, overflowing: Collection[int], offset: float = 0.0) -> Any:
    """Return a stream that adds two layers for each block to it."""
    random = np.random.default_rng(1)
    eye, zeros = np.eye(CLASSES), np.zeros(CLASSES)
    weights: dict[str, list[Any]] = {"stem": [eye, zeros + offset], "head": [eye, zeros - offset]}
    stream = inputs = keras.Input((CLASSES,), name="x")
    stream = keras.layers.Dense(CLASSES, name="stem")(stream)
    for number in range(BLOCKS):
        gain = GAIN if number in overflowing else 1.0
        up, down = (f"blk_{number}_{name}" for name in ("up", "down"))
        inner = keras.layers.Dense(CLASSES, activation="tanh" if offset else None, name=up)(stream)
        inner = keras.layers.Dense(CLASSES, name=down)(inner)
        stream = keras.layers.Add(name=f"add_{number}")([stream, inner])
        weights[up] = [random.normal(size=(CLASSES, CLASSES)) * gain, zeros]
        shift = random.normal(size=CLASSES) if offset else zeros
        weights[down] = [random.normal(size=(CLASSES, CLASSES)) * 0.003 / gain, shift]
        weights["head"][1] = weights["head"][1] - shift
    outputs = keras.layers.Dense(CLASSES, activation="softmax", name="head")(stream)
    model = keras.Model(inputs, outputs, name="net")
    for name, values in weights.items():
        model.get_layer(name).set_weights(values)
    return model


def main(directory: Path) -> None:
    """Write all models, and their inputs."""
    random = np.random.default_rng(2)
    classes = random.integers(CLASSES, size=ROWS)
    rows = 4 * np.eye(CLASSES)[classes] + random.normal(size=(ROWS, CLASSES)) * 0.3
    np.savez(directory / "inputs.npz", x=rows.astype("float32"))
    for library, suffix in SUFFIXES.items():
        keras = importlib.import_module(library)
        for name, overflowing in OVERFLOWING.items():
            residual(keras, overflowing).save(directory / f"{name}{suffix}")
        residual(keras, (), OFFSET).save(directory / f"offset{suffix}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
