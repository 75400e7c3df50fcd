"""
Write models of Keras 3 that lose much if some of their layers are quantized:
``python -m tests.helpers.planted_quantizations DIR --seed N [--random]``, in the root of the
repository, under the interpreter with Keras 3.

A planted layer has one large weight for an input that is always zero. Quantization to int8 gives
all weights of a column one scale, so this weight makes all others zero, although it has no effect.
One of the layers that may be planted is inside an attention layer; its others are quantized.
With ``--random``, each Dense has such a weight, of another size.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

WIDTH: Final = 16
ROWS: Final = 64
TOLERANCE: Final = 0.1
PLANTED: Final = 1e4
"""The large weight of a planted layer, relative to the others."""

VALUE: Final = "attention/value"
"""The layer inside the attention layer that may be planted."""

MODE: Final = "int8"


def write_model(directory: Path, seed: int, *, is_random: bool) -> Mapping[str, Any]:
    """Write a model and its inputs, and return what is known of it."""
    import keras  # only the interpreter with Keras has it

    rng = np.random.default_rng(seed)
    keras.utils.set_random_seed(seed)
    base = f"random-quantized-{seed}" if is_random else f"quantized-{seed}"
    count = int(rng.integers(*((2, 4) if is_random else (3, 7))))
    names = [f"dense_{number}" for number in range(count)]
    weak = [*names, VALUE]
    planted = set(names) if is_random else set(rng.choice(weak, int(rng.integers(1, 3)), False))
    layers = keras.layers
    inputs = keras.Input((6,), dtype="int32", name="tokens")
    tensor = layers.Embedding(32, WIDTH, name="embedding")(inputs)
    if not is_random:
        attention = layers.MultiHeadAttention(2, WIDTH // 2, name="attention")
        tensor = layers.Add(name="sum")([tensor, attention(tensor, tensor)])
    tensor = layers.Dense(WIDTH, activation="relu", name="first")(tensor)
    for name in names:
        tensor = layers.Dense(WIDTH, activation="relu", name=name)(tensor)
    tensor = layers.GlobalAveragePooling1D(name="pooling")(tensor)
    model = keras.Model(inputs, layers.Dense(3, name="scores")(tensor), name="net")
    for before, name in zip(["first", *names], names, strict=False):
        if name not in planted:
            continue
        kernel, bias = model.get_layer(before).get_weights()
        kernel[:, 0], bias[0] = 0, -1  # so that this unit is always zero behind its relu
        model.get_layer(before).set_weights([kernel, bias])
        kernel, bias = model.get_layer(name).get_weights()
        size = float(np.exp(rng.uniform(0, 5))) if is_random else PLANTED
        kernel[0, :] = size * np.abs(kernel).max()
        model.get_layer(name).set_weights([kernel, bias])
    if VALUE in planted:
        (rows,) = model.get_layer("embedding").get_weights()
        rows[:, 0] = 0
        model.get_layer("embedding").set_weights([rows])
        weights = model.get_layer("attention").get_weights()
        kernel = weights[4]  # after the kernels and biases of query and key
        kernel[0] = PLANTED * np.abs(kernel).max()
        model.get_layer("attention").set_weights(weights)
    model.save(directory / f"{base}.keras")
    np.save(directory / f"{base}.npy", rng.integers(0, 32, (ROWS, 6)).astype("int32"))
    truth = {
        "model": f"{base}.keras",
        "inputs": f"{base}.npy",
        "to": MODE,
        "tolerance": TOLERANCE,
        "planted": sorted(f"net/{name}" for name in planted),
    }
    (directory / f"{base}.json").write_text(json.dumps(truth), encoding="utf-8")
    return truth


def main() -> None:
    """Write the models of the seeds."""
    parser = argparse.ArgumentParser(description="write models to quantize")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--seed", type=int, action="append", required=True)
    parser.add_argument("--random", action="store_true")
    given = parser.parse_args()
    for seed in given.seed:
        write_model(given.directory, seed, is_random=given.random)


if __name__ == "__main__":
    main()
