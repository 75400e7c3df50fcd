"""
Models whose verdicts no fixture shows: nested in each other, and compiled with every kind of loss,
metric and optimizer.

Run as ``python -m tests.compat.verdict_models save LIBRARY FOLDER``, which saves all as HDF5 and as
archives, and ``... load LIBRARY FOLDER FILE...``, which prints what the library makes of each of
these files, without and with its training configuration.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

LOSSES: Final = (
    *("mse", "MAE", "kld", "bce", "mean_squared_error", "huber", "huber_loss", "logcosh"),
    *("kullback_leibler_divergence", "cosine_similarity", "categorical_focal_crossentropy"),
)
METRICS: Final = (
    *("accuracy", "ce", "mse", "KLD", "kl_divergence", "huber", "cosine_proximity", "AUC"),
    *("binary_focal_crossentropy", "top_k_categorical_accuracy"),
)
OPTIMIZERS: Final = ("SGD", "Adam", "Nadam", "Lion", "Adafactor", "Lamb")
BEHIND: Final = (
    *("Dense", "ReLU", "Flatten", "BatchNormalization", "Dropout", "Reshape", "Activation"),
    *("LayerNormalization", "UnitNormalization", "RepeatVector"),
)
_ARGUMENTS: Final[dict[str, tuple[Any, ...]]] = {
    "Dense": (2,),
    "Dropout": (0.1,),
    "Reshape": ((2, 4),),
    "Activation": ("relu",),
    "RepeatVector": (2,),
}
_WITHOUT_FUNCTION: Final = "CategoricalGeneralizedCrossEntropy"
WIDTH: Final = 8


def _functional(keras: Any, **options: Any) -> Any:
    inputs = keras.Input((WIDTH,))
    return keras.Model(inputs, keras.layers.Dense(WIDTH)(inputs), **options)


def _sequential(keras: Any) -> Any:
    return keras.Sequential([keras.Input((WIDTH,)), keras.layers.Dense(WIDTH)])


def nested(keras: Any) -> Iterator[tuple[str, Any]]:
    """Yield models that hold models, by their names."""
    dense, x = keras.layers.Dense, keras.Input((WIDTH,))
    for name, make in (("functional", _functional), ("sequential", _sequential)):
        yield f"{name}_last", keras.Model(x, make(keras)(dense(WIDTH)(x)))
        yield f"{name}_first", keras.Model(x, dense(2)(make(keras)(x)))
        inner = make(keras)
        first, second = inner(x), inner(dense(WIDTH)(x))
        yield f"{name}_twice", keras.Model(x, [first, second])
        yield f"{name}_read_once", keras.Model(x, [dense(2)(first), second])
        yield f"{name}_read_last", keras.Model(x, [first, dense(2)(second)])
        inner = make(keras)
        yield f"{name}_on_itself", keras.Model(x, inner(inner(x)))
    middle = keras.Model(x, _functional(keras)(dense(WIDTH)(x)))
    yield "functional_twice_nested", keras.Model(x, middle(dense(WIDTH)(x)))
    yield "functional_in_sequential_twice_nested", keras.Sequential([x, middle])
    yield "functional_ends_sequential", keras.Sequential([x, dense(WIDTH), _functional(keras)])
    several = [_functional(keras, name="one"), _functional(keras, name="other")]
    yield "functionals_in_sequential", keras.Sequential([x, *several])
    for name in BEHIND:
        layer = getattr(keras.layers, name)(*_ARGUMENTS.get(name, ()))
        yield f"functional_before_{name}", keras.Sequential([x, _functional(keras), layer])


def _own_loss(labels: Any, predicted: Any) -> Any:
    return labels - predicted


def compiled(keras: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what models are compiled with, by the name of the model."""
    plain = {"optimizer": "sgd", "loss": "mean_squared_error"}
    yield from ((f"loss_{name}", {**plain, "loss": name}) for name in LOSSES)
    yield from ((f"metric_{name}", {**plain, "metrics": [name]}) for name in METRICS)
    yield "loss_object", {**plain, "loss": keras.losses.Huber()}
    if hasattr(keras.losses, _WITHOUT_FUNCTION):
        yield "loss_nameless", {**plain, "loss": getattr(keras.losses, _WITHOUT_FUNCTION)()}
    yield "metric_object", {**plain, "metrics": [keras.metrics.MeanIoU(2)]}
    yield "loss_own", {**plain, "loss": _own_loss}
    yield "metric_own", {**plain, "metrics": [_own_loss]}
    yield "loss_lambda", {**plain, "loss": lambda labels, predicted: labels - predicted}
    for name in OPTIMIZERS:
        result = getattr(keras.optimizers, name, None)
        if result is not None:
            yield f"optimizer_{name}", {**plain, "optimizer": result()}
            yield f"scaled_{name}", {**plain, "optimizer": _scaled(keras, result())}
    yield "optimizer_renamed", {**plain, "optimizer": keras.optimizers.Adam(name="mine")}


def _scaled(keras: Any, optimizer: Any) -> Any:
    home = keras.mixed_precision if keras.__name__ == "tf_keras" else keras.optimizers
    return home.LossScaleOptimizer(optimizer)


def models(keras: Any) -> Iterator[tuple[str, Any]]:
    """Yield all models; those that are compiled untrained, and optimizers after a step too."""
    yield from nested(keras)
    # archives of functional models of tf_keras are refused, whatever they are compiled with
    make = _sequential if keras.__name__ == "tf_keras" else _functional
    for name, options in compiled(keras):
        model = make(keras)
        model.compile(**options)
        yield name, model
        if name.startswith(("optimizer", "scaled")):
            zeros = np.zeros((2, WIDTH), "float32")
            model.fit(zeros, zeros, verbose=0)
            yield f"{name}_trained", model
    for name in OPTIMIZERS:
        result = getattr(keras.optimizers, name, None)
        if result is not None:
            model = make(keras)
            model.trainable = False
            model.compile(result(), "mean_squared_error")
            yield f"frozen_{name}", model


def save(keras: Any, folder: Path) -> None:
    """Write every model; HDF5 of Keras 3 cannot hold Adafactor's variables."""
    for name, model in models(keras):
        model.save(folder / f"{keras.__name__}-{name}.keras")
        if not (keras.__name__ == "keras" and "Adafactor" in name):
            model.save(folder / f"{keras.__name__}-{name}.h5")


def outcome(keras: Any, path: Path, *, whole: bool) -> str | None:
    """Return what a library refuses a file with; None where it loads."""
    keras.backend.clear_session()
    try:
        keras.models.load_model(path, compile=whole)
    except Exception as error:  # noqa: BLE001  # whatever a library raises is its refusal
        return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
    return None


def main() -> None:
    """Save, or load and print."""
    action, library, folder = sys.argv[1], import_module(sys.argv[2]), Path(sys.argv[3])
    if action == "save":
        save(library, folder)
        return
    actual = {
        path.name: [outcome(library, path, whole=whole) for whole in (False, True)]
        for path in (folder / name for name in sys.argv[4:])
    }
    sys.stdout.write(f"FOUND {json.dumps(actual)}\n")


if __name__ == "__main__":
    main()
