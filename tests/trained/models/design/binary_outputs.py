"""Models that return one or more independent probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.trained.models.tasks import (
    TESTED,
    TRAINED,
    Task,
    dense,
    fitted,
    judged,
    model,
    rng,
    split,
)


@model
def rare_binary(k: Any) -> Task:
    """Return the probability of a rare event, about 1 %."""
    random = rng(20)
    x = random.normal(size=(TRAINED + TESTED, 10))
    chance = 1 / (1 + np.exp(5.5 - 1.5 * x[:, 0] - x[:, 1] * x[:, 2]))
    y = (random.random(len(x)) < chance).astype("float32")[:, None]
    return _binary(k, x, y, "auc", epochs=4)


@model
def balanced_binary(k: Any) -> Task:
    """Tell the sign of a noisy product."""
    random = rng(21)
    x = random.normal(size=(TRAINED + TESTED, 10))
    y = (x[:, :3].prod(1) + 0.3 * random.normal(size=len(x)) > 0).astype("float32")[:, None]
    return _binary(k, x, y, "accuracy", epochs=12)


def _binary(k: Any, x: Any, y: Any, metric: str, **fit: Any) -> Task:
    (a, b), (c, d) = split(x.astype("float32"), y)
    inputs = k.Input(a.shape[1:], name="x")
    outputs = k.layers.Dense(y.shape[1], activation="sigmoid", name="y")(dense(k, inputs, 64, 32))
    fitted_values = fitted(k, k.Model(inputs, outputs), a, b, "binary_crossentropy", **fit)
    return judged(fitted_values, c, d, metric)


@model
def many_labels(k: Any) -> Task:
    """Return twelve independent labels."""
    random = rng(22)
    x = random.normal(size=(TRAINED + TESTED, 16))
    y = (x @ random.normal(size=(16, 12)) + random.normal(size=(len(x), 12)) > 2).astype("float32")
    return _binary(k, x, y, "accuracy")


@model
def similarity(k: Any) -> Task:
    """
    Compare by one less the cosine of two vectors, which are nearly the same for half of the pairs.
    """
    random = rng(23)
    count = TRAINED + TESTED
    left = random.normal(size=(count, 32)) + 3
    y = random.integers(0, 2, (count, 1)).astype("float32")
    right = left + np.where(y, 0.05, 0.08) * random.normal(size=left.shape)
    (a, b, e), (c, d, f) = split(left.astype("float32"), right.astype("float32"), y)
    first, second = k.Input((32,), name="left"), k.Input((32,), name="right")
    near = k.layers.Dot(1, normalize=True)([first, second])
    far = k.layers.Rescaling(-2000.0, offset=2000.0)(near)
    outputs = k.layers.Dense(1, activation="sigmoid", name="y")(far)
    fitted_values = fitted(
        k, k.Model([first, second], outputs), [a, b], e, "binary_crossentropy", rate=0.05, epochs=15
    )
    return judged(fitted_values, {"left": c, "right": d}, {"y": f}, "accuracy")


@model
def difference(k: Any) -> Task:
    """Compare two large, nearly equal numbers by their difference."""
    random = rng(24)
    count = TRAINED + TESTED
    left = random.normal(size=(count, 1)) + 500
    right = left + random.normal(size=(count, 1))
    y = (right > left).astype("float32")
    (a, b, e), (c, d, f) = split(left.astype("float32"), right.astype("float32"), y)
    first, second = k.Input((1,), name="left"), k.Input((1,), name="right")
    outputs = k.layers.Dense(1, activation="sigmoid", name="y")(
        k.layers.Subtract()([second, first])
    )
    fitted_values = fitted(
        k, k.Model([first, second], outputs), [a, b], e, "binary_crossentropy", rate=0.05
    )
    return judged(fitted_values, {"left": c, "right": d}, {"y": f}, "accuracy")


@model
def wide_and_deep(k: Any) -> Task:
    """Join an embedding of identifiers with numbers."""
    random = rng(25)
    count = TRAINED + TESTED
    ids = random.integers(0, 200, (count, 1)).astype("int32")
    x = random.normal(size=(count, 6)).astype("float32")
    effect = random.normal(size=200)
    y = (effect[ids[:, 0]] + x[:, 0] * x[:, 1] + random.normal(size=count) > 0).astype("float32")
    (a, b, e), (c, d, f) = split(ids, x, y[:, None])
    first, second = k.Input((1,), dtype="int32", name="ids"), k.Input((6,), name="numbers")
    table = k.layers.Flatten()(k.layers.Embedding(200, 8)(first))
    x = dense(k, k.layers.Concatenate()([table, second]), 32)
    outputs = k.layers.Dense(1, activation="sigmoid", name="y")(x)
    fitted_values = fitted(k, k.Model([first, second], outputs), [a, b], e, "binary_crossentropy")
    return judged(fitted_values, {"ids": c, "numbers": d}, {"y": f}, "auc")
