"""What a trained model is judged on, the list of all models, and how they are trained."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

TRAINED = 3000
"""Rows that a model is trained on."""

TESTED = 4000
"""Rows that it is judged on."""


@dataclass
class Task:
    """A trained model, and what it is judged on."""

    model: Any
    inputs: dict[str, Any]
    """By the name of the input; rows that the model was not trained on."""

    labels: dict[str, Any] = field(default_factory=dict)
    """By the name of the output."""

    metrics: dict[str, str] = field(default_factory=dict)
    """
    How predictions are scored, by output: ``accuracy``, ``auc``, ``nll``, ``mae``, ``mse``,
    ``poisson``, ``psnr``, ``iou``, or ``neighbours`` for vectors, which have no labels.
    """


MODELS: dict[str, Callable[[Any], Task]] = {}
"""By name; each takes a Keras."""

ONLY_KERAS3: set[str] = set()
ONLY_TF_KERAS: set[str] = set()


def model(build: Callable[[Any], Task]) -> Callable[[Any], Task]:
    """Add a model to the list."""
    MODELS[build.__name__] = build
    return build


def keras3_model(build: Callable[[Any], Task]) -> Callable[[Any], Task]:
    """Add a model that only Keras 3 can have."""
    ONLY_KERAS3.add(build.__name__)
    return model(build)


def tf_keras_model(build: Callable[[Any], Task]) -> Callable[[Any], Task]:
    """Add a model that only tf_keras can have."""
    ONLY_TF_KERAS.add(build.__name__)
    return model(build)


def rng(seed: int) -> Any:
    """Return a generator of random numbers."""
    return np.random.default_rng(seed)


def dense(k: Any, x: Any, *sizes: int, activation: str = "relu") -> Any:
    """Return the output of dense layers of these sizes, one after the other."""
    for size in sizes:
        x = k.layers.Dense(size, activation=activation)(x)
    return x


def operations(k: Any) -> Any:
    """Return the functions of tensors that become layers of a functional model."""
    if hasattr(k, "ops"):
        return k.ops
    return import_module("tensorflow").math


def fitted(
    k: Any,
    built: Any,
    x: Any,
    y: Any,
    loss: Any,
    *,
    epochs: int = 6,
    rate: float = 3e-3,
    **compiled: Any,
) -> Any:
    """Train a model, and return it."""
    built.compile(k.optimizers.Adam(rate), loss, **compiled)
    built.fit(x, y, batch_size=64, epochs=epochs, verbose=0)
    return built


def split(*arrays: Any, rows: int = TRAINED) -> tuple[list[Any], list[Any]]:
    """Return the first rows, for training, and the others, for the test."""
    return [array[:rows] for array in arrays], [array[rows:] for array in arrays]


def judged(built: Any, x: Any, y: Any = None, metric: str | dict[str, str] = "") -> Task:
    """Return a task: inputs and labels are one array, or arrays by name."""
    names = list(built.output_names)
    inputs = x if isinstance(x, dict) else {built.inputs[0].name.partition(":")[0]: x}
    labels = {} if y is None else y if isinstance(y, dict) else {names[0]: y}
    metrics = metric if isinstance(metric, dict) else {names[0]: metric}
    return Task(built, inputs, labels, metrics)
