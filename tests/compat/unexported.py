"""
Models with layers that keras.applications has for itself: ``python unexported.py make LIBRARY
FOLDER`` and ``python unexported.py run LIBRARY FILE FOLDER``.

``make`` saves one as HDF5 and as an archive, with inputs and what it makes of them; ``run`` loads a
file and writes what it makes of the same inputs.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

SHAPE = (4, 4, 3)


def made(keras: Any, library: str) -> Any:
    """Return a model; tf_keras does not read its own LayerScale back, so its model has none."""
    layers = keras.layers
    sums = import_module(f"{library}.src.applications.inception_resnet_v2").CustomScaleLayer
    inputs = keras.Input(SHAPE)
    hidden = sums(scale=0.17)([inputs, layers.Conv2D(3, 1)(inputs)])
    shared = sums(scale=0.3)
    hidden = shared([inputs, shared([hidden, inputs])])
    if library == "keras":
        scale = import_module("keras.src.applications.convnext").LayerScale
        hidden = scale(0.2, 5)(layers.Conv2D(5, 2)(scale(0.1, 3)(hidden)))
    return keras.Model(inputs, layers.Flatten()(hidden))


def make(library: str, folder: Path) -> None:
    """Save a model with random weights."""
    keras: Any = import_module(library)
    random = np.random.default_rng(7)
    model = made(keras, library)
    model.set_weights(
        [random.uniform(-1, 1, weight.shape).astype("float32") for weight in model.get_weights()]
    )
    inputs = random.uniform(-1, 1, (2, *SHAPE)).astype("float32")
    np.save(folder / "inputs.npy", inputs)
    np.save(folder / "expected.npy", model.predict(inputs, verbose=0))
    for suffix in (".h5", ".keras"):
        model.save(folder / f"model{suffix}")


def run(library: str, path: Path, folder: Path) -> None:
    """Write what a file's model makes of the inputs."""
    keras: Any = import_module(library)
    np.save(
        folder / "found.npy",
        keras.models.load_model(path, compile=False).predict(
            np.load(folder / "inputs.npy"), verbose=0
        ),
    )


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2], Path(sys.argv[3]))
    else:
        run(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
