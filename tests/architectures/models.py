"""
Write architectures with random weights, and their inputs: ``python -m tests.architectures.models
DIR SIZE NAME...``, under an interpreter with Keras 3.

``SIZE`` is the width of images in pixels. Each model gets ``NAME.keras`` and ``NAME.npy``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import keras  # type: ignore[import-not-found,unused-ignore]
import numpy as np

ROWS: Final = 8
STEPS: Final = 24
WIDTH: Final = 32
WORDS: Final = 400

IMAGES: Final = {
    "MobileNetV2": keras.applications.MobileNetV2,
    "ResNet50": keras.applications.ResNet50,
    "EfficientNetV2B0": keras.applications.EfficientNetV2B0,
}


def transformer() -> Any:
    """Return two encoder blocks on words."""
    layers = keras.layers
    inputs = keras.Input((STEPS,), dtype="int32", name="words")
    value = layers.Embedding(WORDS, WIDTH, name="embedding")(inputs)
    for block in range(2):
        attention = layers.MultiHeadAttention(4, WIDTH // 4, name=f"attention_{block}")
        value = layers.Add(name=f"sum_{block}")([value, attention(value, value)])
        value = layers.LayerNormalization(name=f"norm_{block}")(value)
        hidden = layers.Dense(4 * WIDTH, activation="gelu", name=f"hidden_{block}")(value)
        hidden = layers.Dense(WIDTH, name=f"narrow_{block}")(hidden)
        value = layers.Add(name=f"residual_{block}")([value, hidden])
        value = layers.LayerNormalization(name=f"last_norm_{block}")(value)
    value = layers.GlobalAveragePooling1D(name="pool")(value)
    return keras.Model(inputs, layers.Dense(10, activation="softmax", name="out")(value))


def lstm() -> Any:
    """Return two recurrent layers on series."""
    layers = keras.layers
    inputs = keras.Input((STEPS, 8), name="series")
    value = layers.LSTM(WIDTH, return_sequences=True, name="lstm_0")(inputs)
    value = layers.LSTM(WIDTH, name="lstm_1")(value)
    return keras.Model(inputs, layers.Dense(1, name="out")(value))


SEQUENCES: Final = {"transformer": transformer, "LSTM": lstm}


def normalize(model: Any, rows: Any) -> None:
    """
    Set the statistics of batch normalizations by one training step, because values of deep models
    with random weights otherwise grow from layer to layer.
    """
    normalizations = [
        layer for layer in model.layers if isinstance(layer, keras.layers.BatchNormalization)
    ]
    momenta = [layer.momentum for layer in normalizations]
    for layer in normalizations:
        layer.momentum = 0.0
    model(rows, training=True)
    for layer, momentum in zip(normalizations, momenta, strict=True):
        layer.momentum = momentum


def main(directory: Path, size: int, *names: str) -> None:
    """Write the models and their inputs."""
    for name in names:
        keras.utils.set_random_seed(1)
        random = np.random.default_rng(1)
        if name in IMAGES:
            model = IMAGES[name](input_shape=(size, size, 3), weights=None, classes=10)
            rows = random.uniform(0, 255, (ROWS, size, size, 3)).astype("float32")
            normalize(model, rows)
        else:
            model = SEQUENCES[name]()
            rows = random.normal(size=(ROWS, *model.input_shape[1:])).astype("float32")
            if name == "transformer":
                rows = random.integers(0, WORDS, rows.shape).astype("int32")
        model.save(directory / f"{name}.keras")
        np.save(directory / f"{name}.npy", rows)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
