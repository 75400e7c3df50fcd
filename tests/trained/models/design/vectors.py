"""Models that return vectors of which the nearest matter."""

from __future__ import annotations

from typing import Any

from tests.trained.models.samples import blobs
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
def unit_vectors(k: Any) -> Task:
    """Return vectors of length 1."""
    x, y = blobs(40, 32, 0.9, 50)
    (a, b), (c, _) = split(x, y)
    inputs = k.Input((32,), name="x")
    hidden = k.layers.Dense(16, name="vector")(dense(k, inputs, 64))
    outputs = k.layers.Dense(40, activation="softmax")(hidden)
    fitted(k, k.Model(inputs, outputs), a, b, "sparse_categorical_crossentropy", epochs=8)
    norm = (
        k.layers.UnitNormalization(name="y")
        if hasattr(k.layers, "UnitNormalization")
        else k.layers.LayerNormalization(name="y")
    )
    return judged(k.Model(inputs, norm(hidden)), c, None, "neighbours")


@model
def bottleneck(k: Any) -> Task:
    """Return the code of an autoencoder."""
    random = rng(51)
    x = (random.normal(size=(TRAINED + TESTED, 12)) @ random.normal(size=(12, 64))).astype(
        "float32"
    )
    inputs = k.Input((64,), name="x")
    code = k.layers.Dense(16, name="y")(dense(k, inputs, 64))
    again = k.layers.Dense(64)(dense(k, code, 64))
    fitted(k, k.Model(inputs, again), x[:TRAINED], x[:TRAINED], "mse", epochs=10)
    return judged(k.Model(inputs, code), x[TRAINED:], None, "neighbours")


@model
def dense_vectors(k: Any) -> Task:
    """Return vectors that lie close together, so that small errors change the nearest."""
    random = rng(52)
    x = (5 + 0.05 * random.normal(size=(TRAINED + TESTED, 32))).astype("float32")
    inputs = k.Input((32,), name="x")
    outputs = k.layers.Dense(24, name="y")(inputs)
    return judged(k.Model(inputs, outputs), x[TRAINED:], None, "neighbours")
