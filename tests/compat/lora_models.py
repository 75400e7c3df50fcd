"""
Models with LoRA weights: ``python -m tests.compat.lora_models FOLDER [predict]``.

Keras saves each in both formats, beside inputs and outputs. With ``predict``, tf_keras writes the
outputs of the converted files.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

SHAPES: Final[dict[str, tuple[int, ...]]] = {
    "Dense": (5,),
    "EinsumDense": (4, 5),
    "Embedding": (4,),
    "Conv1D": (8, 3),
    "Conv2D": (8, 8, 3),
    "Conv3D": (5, 5, 5, 2),
}
ARGUMENTS: Final[dict[str, tuple[Any, ...]]] = {
    "Dense": (3,),
    "EinsumDense": ("abc,cd->abd", (4, 3), None, "d"),
    "Embedding": (7, 6),
}
ALPHA: Final = {"EinsumDense": 5.0, "Conv1D": 6.0, "Conv2D": 4.0}


def make(folder: Path) -> None:
    """Save a model of each class."""
    keras = import_module("keras")
    for name, shape in SHAPES.items():
        random, integers = np.random.default_rng(5), name == "Embedding"
        inputs = keras.Input(shape, dtype="int32" if integers else "float32")
        layer = getattr(keras.layers, name)(*ARGUMENTS.get(name, (4, 3)))
        model = keras.Model(inputs, layer(inputs))
        layer.enable_lora(2, lora_alpha=ALPHA.get(name))
        model.set_weights([random.uniform(-1, 1, weight.shape) for weight in model.get_weights()])
        values = random.integers(0, 7, (2, *shape)) if integers else random.normal(size=(2, *shape))
        values = values.astype("int32" if integers else "float32")
        np.savez(folder / f"{name}.npz", values, model.predict(values, verbose=0))
        model.save(folder / f"{name}.keras")
        model.save(folder / f"{name}.h5")


def predict(folder: Path) -> None:
    """Write the outputs of every converted file."""
    keras = import_module("tf_keras")
    for file in sorted(folder.glob("*.converted.h5")):
        values = np.load(folder / f"{file.name.split('.')[0]}.npz")["arr_0"]
        model = keras.models.load_model(file, compile=False)
        np.save(file.with_suffix(".npy"), model.predict(values, verbose=0))


if __name__ == "__main__":
    (predict if "predict" in sys.argv else make)(Path(sys.argv[1]))
