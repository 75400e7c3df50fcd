"""
Trains small models of both of the newest libraries, and goes on with what is saved of them.

Run as ``python -m tests.compat.training_steps FOLDER``: writes a model for each case, says the
files in a line of JSON, then answers each line of standard input (a library and a file) with the
weights after some more steps of training on one batch, or with the error. Models with one axis get
the batch of ``fixtures/writer/optimizers.py``.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

ALL: Final = ("adam", "sgd", "rmsprop", "nadam", "adamw", "ftrl", "adagrad", "adadelta", "adamax")
"""The names that both libraries find in ``compile``."""

STEPS: Final = 2
SHORT: Final = (8, 4)
"""The shape of the inputs in fixtures."""


@dataclass(frozen=True)
class TrainedCase:
    """What a model is compiled with, and the formats that it is saved in."""

    optimizer: str
    config: dict[str, Any] | None = None
    """None for the name alone, as in ``compile("adam")``."""

    libraries: tuple[str, ...] = ("keras", "tf_keras")
    formats: tuple[str, ...] = ("keras",)
    freezes: bool = False
    """Whether a layer is not trained."""

    scales: bool = False
    """Whether a wrapper scales the loss."""


CASES: Final[dict[str, TrainedCase]] = {
    **{name: TrainedCase(name) for name in ALL},
    "lion": TrainedCase("lion", libraries=("keras",)),  # tf_keras does not find the name
    "adafactor": TrainedCase("Adafactor", {}),
    "nadam_in_hdf5": TrainedCase("Nadam", {}, libraries=("tf_keras",), formats=("h5",)),
    "adafactor_in_hdf5": TrainedCase("Adafactor", {}, libraries=("tf_keras",), formats=("h5",)),
    "adam_frozen": TrainedCase("adam", freezes=True),
    **{  # tf_keras does not load an Adafactor in a wrapper
        f"{name.lower()}_scaled": TrainedCase(name, {}, libraries=("keras",), scales=True)
        for name in ("Adafactor", "Adam", "Nadam")
    },
}


def main() -> None:
    """Write all models, then answer about files."""
    import keras
    import tf_keras

    libraries = {module.__name__: module for module in (keras, tf_keras)}
    folder = Path(sys.argv[1])
    _tell(
        {
            name: {library: _save(libraries[library], name, folder) for library in case.libraries}
            for name, case in CASES.items()
        }
    )
    for line in sys.stdin:
        library, file = json.loads(line)
        try:
            _tell(_train_on(libraries[library], file))
        except Exception as error:  # noqa: BLE001  # whatever a library raises is its answer
            _tell(f"{type(error).__name__}: {' '.join(str(error).split())}"[:600])


def _save(keras: Any, name: str, folder: Path) -> list[str]:
    case = CASES[name]
    keras.backend.clear_session()
    keras.utils.set_random_seed(0)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((5, 3)),
            layers.Conv1D(2, 2, use_bias=False),
            layers.BatchNormalization(trainable=not case.freezes),
            layers.GlobalAveragePooling1D(),
            layers.Dense(4, activation="tanh"),
            layers.Dense(2),
        ]
    )
    optimizer = (
        case.optimizer
        if case.config is None
        else getattr(keras.optimizers, case.optimizer)(**case.config)
    )
    if case.scales:
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    model.compile(optimizer, "mse")
    model.fit(*_batch(1), epochs=3, batch_size=4, shuffle=False, verbose=0)
    files = [str(folder / f"{keras.__name__}-{name}.{kind}") for kind in case.formats]
    for file in files:
        model.save(file)
    return files


def _train_on(keras: Any, file: str) -> list[list[float]]:
    keras.backend.clear_session()
    model = keras.models.load_model(file)
    batch = _batch(2) if len(model.input_shape) > len(SHORT) else _short_batch()
    model.fit(*batch, epochs=STEPS, batch_size=8, shuffle=False, verbose=0)
    return [np.ravel(weight).tolist() for weight in model.get_weights()]


def _batch(seed: int) -> tuple[Any, Any]:
    numbers = np.random.default_rng(seed)
    return (
        numbers.normal(size=(8, 5, 3)).astype("float32"),
        numbers.normal(size=(8, 2)).astype("float32"),
    )


def _short_batch() -> tuple[Any, Any]:
    return (
        np.sin(np.arange(32) * 2).reshape(SHORT).astype("float32"),
        np.cos(np.arange(24) * 2).reshape(8, 3).astype("float32"),
    )


def _tell(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
