"""
Models whose inputs have a range that only their layers tell: ``python -m
tests.compat.probed_models DIRECTORY`` writes them, in a directory for each library, all in float32.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

LIBRARIES: Final = ("tf_keras", "keras")
FEATURES: Final = 4
MEAN: Final = 86_000.0
"""Beyond the largest number of float16, 65,504."""

WEIGHT: Final = 400.0
"""What each of the inputs of the layer ``wide`` is multiplied with before they are added up."""


def normalization(keras: Any) -> Any:
    """Return one whose Normalization was adapted to a feature that float16 cannot hold."""
    values = keras.Input((FEATURES,), name="values")
    random = np.random.default_rng(3)
    layer = keras.layers.Normalization(name="adapted")
    layer.adapt(random.normal([0.0, 1.0, MEAN, -5.0], [1.0, 2.0, 1000.0, 3.0], (512, FEATURES)))
    return _classified(keras, values, layer(values))


def batch_normalization(keras: Any) -> Any:
    """Return one whose BatchNormalization has a feature that float16 cannot hold."""
    return _classified(keras, *_normalized(keras, [0.0, 1.0, MEAN, -5.0], [1.0, 4.0, 1e6, 9.0]))


def narrow(keras: Any) -> Any:
    """
    Return one for inputs of a standard deviation of 0.1, whose exponential overflows for others.
    """
    values, normal = _normalized(keras, [0.0] * FEATURES, [1e-2] * FEATURES)
    grown = keras.layers.Activation("exponential", name="grown")(normal)
    return _classified(keras, values, grown)


def broad(keras: Any) -> Any:
    """
    Return one for inputs with a large mean and a large variance, which are all the same to it if
    they are not.
    """
    values, normal = _normalized(keras, [300.0, -200.0, 0.0, 900.0], [1e4, 1e4, 1e6, 1e5])
    return _classified(keras, values, normal)


def wide(keras: Any) -> Any:
    """Return one whose sums leave float16 for inputs that are some times larger than 3."""
    values = keras.Input((FEATURES,), name="values")
    layer = keras.layers.Dense(
        6, kernel_initializer=keras.initializers.Constant(WEIGHT), name="wide"
    )
    return _classified(keras, values, keras.layers.LayerNormalization(name="unit")(layer(values)))


def ids(keras: Any) -> Any:
    """Return one that takes integers, which nothing can be said of at other sizes."""
    values = keras.Input((FEATURES,), dtype="int32", name="values")
    embedded = keras.layers.Embedding(9, 3, name="words")(values)
    return _classified(keras, values, keras.layers.Flatten(name="flat")(embedded))


MODELS: Final = (normalization, batch_normalization, narrow, broad, wide, ids)


def _normalized(keras: Any, mean: list[float], variance: list[float]) -> tuple[Any, Any]:
    """Return an input, and what a BatchNormalization with these statistics makes of it."""
    values = keras.Input((FEATURES,), name="values")
    layer = keras.layers.BatchNormalization(epsilon=1e-6, name="normal")
    result = layer(values)
    layer.set_weights([np.ones(FEATURES), np.zeros(FEATURES), np.array(mean), np.array(variance)])
    return values, result


def _classified(keras: Any, values: Any, features: Any) -> Any:
    hidden = keras.layers.Dense(8, activation="relu", name="hidden")(features)
    scores = keras.layers.Dense(3, activation="softmax", name="scores")(hidden)
    return keras.Model(values, scores, name="net")


def main() -> None:
    """Write all models."""
    for library in LIBRARIES:
        keras = import_module(library)
        folder = Path(sys.argv[1]) / library
        folder.mkdir()
        for make in MODELS:
            keras.utils.set_random_seed(1)
            make(keras).save(folder / f"{make.__name__}.keras")


if __name__ == "__main__":
    main()
