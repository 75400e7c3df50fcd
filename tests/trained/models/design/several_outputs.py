"""Models with several outputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.trained.models.samples import shapes
from tests.trained.models.tasks import Task, dense, fitted, judged, model, split


@model
def class_and_box(k: Any) -> Task:
    """Return the class of an object and its box."""
    x, kind, result = shapes(70)
    rows, columns = result[..., 0].any(2), result[..., 0].any(1)
    box = (
        np.stack(
            [
                rows.argmax(1),
                columns.argmax(1),
                16 - rows[:, ::-1].argmax(1),
                16 - columns[:, ::-1].argmax(1),
            ],
            1,
        ).astype("float32")
        / 16
    )
    (a, b, e), (c, d, f) = split(x, kind, box)
    inputs = k.Input(a.shape[1:], name="x")
    x = k.layers.MaxPooling2D()(k.layers.Conv2D(16, 3, activation="relu")(inputs))
    x = dense(k, k.layers.Flatten()(k.layers.Conv2D(16, 3, activation="relu")(x)), 32)
    outputs = [
        k.layers.Dense(3, activation="softmax", name="kind")(x),
        k.layers.Dense(4, name="box")(x),
    ]
    fitted_values = fitted(
        k, k.Model(inputs, outputs), a, [b, e], ["sparse_categorical_crossentropy", "mae"], epochs=5
    )
    names = list(fitted_values.output_names)
    return judged(
        fitted_values,
        c,
        dict(zip(names, (d, f), strict=True)),
        dict(zip(names, ("accuracy", "mae"), strict=True)),
    )


@model
def anchors(k: Any) -> Task:
    """Return, for each cell of a grid, whether it holds an object, and its size."""
    x, _, result = shapes(71)
    cells = result[..., 0].reshape(-1, 4, 4, 4, 4).mean((2, 4)).reshape(-1, 16, 1)
    (a, b, e), (c, d, f) = split(x, (cells > 0.3).astype("float32"), cells.astype("float32"))
    inputs = k.Input(a.shape[1:], name="x")
    x = k.layers.Conv2D(24, 4, 4, activation="relu")(
        k.layers.Conv2D(16, 3, padding="same", activation="relu")(inputs)
    )
    x = k.layers.Reshape((16, 24))(x)
    outputs = [
        k.layers.Dense(1, activation="sigmoid", name="object")(x),
        k.layers.Dense(1, name="size")(x),
    ]
    fitted_values = fitted(
        k, k.Model(inputs, outputs), a, [b, e], ["binary_crossentropy", "mse"], epochs=5
    )
    names = list(fitted_values.output_names)
    return judged(
        fitted_values,
        c,
        dict(zip(names, (d, f), strict=True)),
        dict(zip(names, ("accuracy", "mae"), strict=True)),
    )
