"""Models with several outputs, or with a list of scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.trained.models.samples import shapes
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

COUNT = TRAINED + TESTED


@model
def detector(k: Any) -> Task:
    """Return objectness, class scores and a box for each cell of a grid of 4 by 4."""
    x, kind, mask = shapes(501)
    rows, columns = mask[..., 0].any(2), mask[..., 0].any(1)
    top, left = rows.argmax(1), columns.argmax(1)
    height, width = rows.sum(1), columns.sum(1)
    cell = (top + height // 2) // 4 * 4 + (left + width // 2) // 4
    is_object = np.arange(16) == cell[:, None]
    box = np.stack([top, left, height, width], 1)[:, None] / 16
    boxes = np.repeat(box, 16, 1)
    kinds = np.repeat(kind[:, None], 16, 1)
    (a, b, e, f), (c, d, g, h) = split(
        x, is_object[..., None].astype("float32"), kinds, boxes.astype("float32")
    )
    layers = k.layers
    inputs = k.Input((16, 16, 1), name="x")
    x = layers.Conv2D(16, 3, padding="same", activation="relu")(inputs)
    x = layers.Conv2D(32, 4, strides=4, activation="relu")(x)
    x = layers.Conv2D(32, 3, padding="same", activation="relu")(x)
    x = layers.Reshape((16, 32))(x)
    names = ("object", "kind", "box")
    outputs = [
        layers.Dense(1, activation="sigmoid", name="object")(x),
        layers.Dense(3, activation="softmax", name="kind")(x),
        layers.Dense(4, name="box")(x),
    ]
    losses = ["binary_crossentropy", "sparse_categorical_crossentropy", "mae"]
    fitted_values = fitted(k, k.Model(inputs, outputs), a, [b, e, f], losses, epochs=5)
    labels = dict(zip(names, (d, g, h), strict=True))
    metrics = dict(zip(names, ("accuracy", "accuracy", "mae"), strict=True))
    return judged(fitted_values, c, labels, metrics)


@model
def customer(k: Any) -> Task:
    """Return a segment, the probability of a purchase and its amount."""
    random = rng(502)
    x = random.normal(size=(COUNT, 16))
    segment = (x[:, :4] + 0.7 * random.normal(size=(COUNT, 4))).argmax(1)
    buys = random.random(COUNT) < 1 / (1 + np.exp(2 - x[:, 4] - x[:, 5]))
    amount = 50 + 20 * x[:, 6] + 10 * x[:, 7] * x[:, 8] + 8 * random.normal(size=COUNT)
    (a, b, e, f), (c, d, g, h) = split(
        x.astype("float32"),
        segment,
        buys[:, None].astype("float32"),
        amount[:, None].astype("float32"),
    )
    inputs = k.Input((16,), name="x")
    x = k.layers.BatchNormalization()(dense(k, inputs, 64))
    names = ("segment", "buys", "amount")
    outputs = [
        k.layers.Dense(4, activation="softmax", name="segment")(dense(k, x, 32)),
        k.layers.Dense(1, activation="sigmoid", name="buys")(dense(k, x, 16)),
        k.layers.Dense(1, name="amount")(dense(k, x, 32)),
    ]
    losses = ["sparse_categorical_crossentropy", "binary_crossentropy", "mae"]
    fitted_values = fitted(k, k.Model(inputs, outputs), a, [b, e, f], losses, epochs=12)
    labels = dict(zip(names, (d, g, h), strict=True))
    metrics = dict(zip(names, ("accuracy", "nll", "mae"), strict=True))
    return judged(fitted_values, c, labels, metrics)


@model
def search_results(k: Any) -> Task:
    """Score lists of ten results, trained listwise."""
    random = rng(503)
    x = random.normal(size=(COUNT, 10, 6))
    worth = x[..., 0] + np.maximum(x[..., 1], 0) * x[..., 2] + 0.5 * random.normal(size=(COUNT, 10))
    (a, b), (c, d) = split(x.astype("float32"), worth.astype("float32"))
    inputs = k.Input((10, 6), name="x")
    scores = k.layers.Dense(1)(dense(k, inputs, 48, 24))
    outputs = k.layers.Reshape((10,), name="y")(scores)
    built = k.Model(inputs, outputs)
    expected = np.exp(2 * b) / np.exp(2 * b).sum(1, keepdims=True)
    loss = k.losses.CategoricalCrossentropy(from_logits=True)
    fitted_values = fitted(k, built, a, expected, loss, epochs=8)
    fitted_values.compile()
    return judged(fitted_values, c, d, "order")


@model
def two_towers(k: Any) -> Task:
    """Return a vector of a user and one of an item, trained by their dot products."""
    random = rng(504)
    hidden = random.normal(size=(COUNT, 6))
    pair = [
        hidden @ random.normal(size=(6, 20)) + 0.4 * random.normal(size=(COUNT, 20))
        for _ in range(2)
    ]
    (a, b), (c, d) = split(*(item.astype("float32") for item in pair))
    names = ("user", "item")
    first, second = (k.Input((20,), name=name) for name in names)
    vectors = [
        k.layers.UnitNormalization(name=f"{name}_vector")(
            k.layers.Dense(16)(dense(k, given, 48, activation="tanh"))
        )
        for name, given in zip(names, (first, second), strict=True)
    ]
    score = k.layers.Dense(1, activation="sigmoid")(k.layers.Dot(1)(vectors))
    trained = k.Model([first, second], score)
    both = [np.concatenate([a, a]), np.concatenate([b, np.roll(b, 1, 0)])]
    y = np.repeat([1.0, 0.0], len(a))[:, None]
    fitted(k, trained, both, y, "binary_crossentropy", epochs=6)
    metrics = {f"{name}_vector": "neighbours" for name in names}
    result = k.Model([first, second], vectors)
    return judged(result, {"user": c, "item": d}, {}, metrics)


@model
def triplets(k: Any) -> Task:
    """Return vectors trained so that an anchor is nearer to its kind than to others."""
    random = rng(505)
    kinds = random.normal(size=(300, 24))
    y = random.integers(0, 300, COUNT)
    x = (kinds[y] + 0.5 * random.normal(size=(COUNT, 24))).astype("float32")
    inputs = k.Input((24,), name="x")
    hidden = k.layers.Dense(12)(dense(k, inputs, 64, activation="gelu"))
    tower = k.Model(inputs, k.layers.UnitNormalization(name="y")(hidden))
    same = (kinds[y] + 0.5 * random.normal(size=(COUNT, 24))).astype("float32")
    anchor, near, far = (k.Input((24,), name=name) for name in ("anchor", "near", "far"))
    cosines = [k.layers.Dot(1)([tower(anchor), tower(item)]) for item in (far, near)]
    margin = k.layers.Subtract()(cosines)
    trained = k.Model([anchor, near, far], margin)
    rows = [x[:TRAINED], same[:TRAINED], np.roll(x, 1, 0)[:TRAINED]]
    fitted(k, trained, rows, np.full((TRAINED, 1), -1.0), "hinge", epochs=6)
    return judged(tower, x[TRAINED:], None, "neighbours")


@model
def machine_noise(k: Any) -> Task:
    """Return how far a sound is from the center of the healthy ones."""
    random = rng(506)
    is_broken = random.random(COUNT) < 0.1
    mixed = random.normal(size=(5, 32))
    x = random.normal(size=(COUNT, 5)) @ mixed + 0.5 * random.normal(size=(COUNT, 32))
    x += is_broken[:, None] * 0.5 * random.normal(size=(COUNT, 32))
    (a, b), (c, d) = split(x.astype("float32"), is_broken[:, None].astype("float32"))
    inputs = k.Input((32,), name="x")
    again = k.layers.Dense(32)(dense(k, k.layers.Dense(6)(dense(k, inputs, 48)), 48))
    fitted(k, k.Model(inputs, again), a[b[:, 0] == 0], a[b[:, 0] == 0], "mse", epochs=12)
    error = k.layers.Subtract()([inputs, again])
    return judged(k.Model(inputs, k.layers.Dot(1, name="y")([error, error])), c, d, "auc")
