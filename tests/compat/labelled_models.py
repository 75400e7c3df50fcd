"""
Models with inputs and labels, written by the libraries themselves, and what the libraries say of
their metrics: ``python -m tests.compat.labelled_models DIRECTORY``.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np

from policytool.runtime.engine.task_metrics import LibraryMetric
from policytool.runtime.library import Library, Refused

SUFFIXES: Final = {"tf_keras": ".h5", "keras": ".keras"}
FAMILIES: Final = {"tf_keras": "keras2", "keras": "keras3"}
ROWS: Final = 200
CLASSES: Final = 5
OFFSET: Final = 3000.0
"""Added to logits; float16 then has steps of 2, more than the logits differ by."""

SCALE: Final = 1e5
"""Times weights; the activations of float16 overflow."""

METRICS: Final = {
    "classes": (
        "accuracy",
        "sparse_categorical_accuracy",
        "sparse_categorical_crossentropy",
        "sparse_top_k_categorical_accuracy",
    ),
    "numbers": (
        "mean_squared_error",
        "mae",
        "root_mean_squared_error",
        "huber",
        "log_cosh",
        "cosine_similarity",
    ),
    "binary": ("auc", "accuracy", "precision", "recall", "binary_crossentropy", "hinge"),
}
"""By kind of labels."""


def write(library: str, base: Path) -> dict[str, Any]:
    """Write the models of one library, and return the metrics of the reference."""
    keras = importlib.import_module(library)
    keras.utils.set_random_seed(1)
    layers, suffix = keras.layers, SUFFIXES[library]
    inputs = keras.Input((16,), name="features")
    hidden = layers.Dense(64, activation="relu", name="hidden")(inputs)
    classes = layers.Dense(CLASSES, activation="softmax", name="classes")(hidden)
    model = keras.Model(inputs, classes, name="net")
    model.save(base / f"classes{suffix}")
    several = keras.Model(
        inputs,
        [
            classes,
            layers.Dense(1, name="numbers")(hidden),
            layers.Dense(1, activation="sigmoid", name="binary")(hidden),
        ],
        name="net",
    )
    several.save(base / f"several{suffix}")
    bias = keras.initializers.Constant(OFFSET)
    logits = layers.Dense(CLASSES, bias_initializer=bias, name="logits")(hidden)
    shifted = keras.Model(inputs, layers.Activation("linear", name="out")(logits), name="net")
    shifted.save(base / f"shifted{suffix}")
    rows = np.random.RandomState(0).normal(size=(ROWS, 16)).astype("float32")
    np.savez(base / "inputs.npz", features=rows)
    scores, numbers, binary = (np.asarray(item) for item in several(rows))
    labels = {"classes": scores.argmax(-1), "numbers": numbers[:, 0] + 0.5}
    labels["binary"] = (binary[:, 0] > np.median(binary)).astype("int64")
    labels["classes"][:20] = (labels["classes"][:20] + 1) % CLASSES
    labels["binary"][:30] = 1 - labels["binary"][:30]
    np.savez(base / f"{library}.npz", **labels)
    np.save(base / f"{library}-classes.npy", labels["classes"])
    np.save(base / f"{library}-shifted.npy", np.asarray(shifted(rows)).argmax(-1))
    for name, array in labels.items():
        np.savez(base / f"{library}-{name}.npz", **{name: array})
    truth = {kind: _evaluated(keras, several, kind, labels[kind], rows) for kind in METRICS}
    kernel, zeros = model.get_layer("hidden").get_weights()
    model.get_layer("hidden").set_weights([kernel * SCALE, zeros])
    model.save(base / f"scaled{suffix}")
    return truth


def _evaluated(keras: Any, model: Any, kind: str, labels: Any, rows: Any) -> dict[str, float]:
    """Return every metric of an output as ``evaluate`` computes it."""
    own = keras.Model(model.inputs, model.get_layer(kind).output)
    found = {}
    for name in METRICS[kind]:
        metric = {
            "auc": keras.metrics.AUC,
            "precision": keras.metrics.Precision,
            "recall": keras.metrics.Recall,
            "root_mean_squared_error": keras.metrics.RootMeanSquaredError,
            "cosine_similarity": keras.metrics.CosineSimilarity,
            "huber": lambda: keras.losses.huber,
            "log_cosh": lambda: keras.losses.log_cosh,
        }.get(name, lambda name=name: name)()
        own.compile(loss="mse", metrics=[metric])
        values = own.evaluate(
            rows, labels.reshape(-1, 1), batch_size=8, verbose=0, return_dict=True
        )
        found[name] = next(value for key, value in values.items() if key != "loss")
    return found


def directions() -> dict[str, Any]:
    """Return, for each metric that Keras 3 has a direction for, that and policytool's."""
    library = Library("keras3")
    found = {}
    for name, one in vars(library.keras.metrics).items():
        if inspect.isclass(one):
            try:
                direction = getattr(one(), "_direction")  # noqa: B009  # nothing public says it
                ours = LibraryMetric(library, name, "")
            except (TypeError, AttributeError, Refused):
                continue
            found[name] = [direction, ours.higher_is_better]
    return found


def main() -> None:
    """Write the models of both libraries, and what is true of them."""
    base = Path(sys.argv[1])
    truth = {library: write(library, base) for library in SUFFIXES}
    (base / "truth.json").write_text(
        json.dumps({**truth, "directions": directions()}), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
