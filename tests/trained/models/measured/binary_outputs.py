"""Models that return one or more independent probabilities, or the score of one."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.trained.models.samples import series, tokens
from tests.trained.models.tasks import (
    TESTED,
    TRAINED,
    Task,
    dense,
    fitted,
    judged,
    model,
    operations,
    rng,
    split,
)

COUNT = TRAINED + TESTED
CROSSENTROPY = "binary_crossentropy"
MANY = 40_000
"""Rows for training where positive ones are rare."""


def _chances(logits: Any) -> Any:
    return 1 / (1 + np.exp(-logits))


def _rare(seed: int, offset: float) -> tuple[Any, Any]:
    """Return features of transactions, and the few of them that are positive."""
    random = rng(seed)
    x = random.normal(size=(MANY + TESTED, 12))
    logits = offset + 1.2 * x[:, 0] + 0.8 * x[:, 1] * x[:, 2] - x[:, 3]
    y = random.random(len(x)) < _chances(logits)
    return x.astype("float32"), y[:, None].astype("float32")


@model
def fraud(k: Any) -> Task:
    """Return the probability of an event with a base rate of about 0.1 %."""
    (a, b), (c, d) = split(*_rare(201, -9.0), rows=MANY)
    inputs = k.Input((12,), name="x")
    x = k.layers.BatchNormalization()(dense(k, inputs, 32, activation="swish"))
    outputs = k.layers.Dense(1, activation="sigmoid", name="y")(dense(k, x, 16))
    fitted_values = fitted(k, k.Model(inputs, outputs), a, b, CROSSENTROPY, epochs=3)
    return judged(fitted_values, c, d, "nll")


@model
def churn(k: Any) -> Task:
    """Return the probability of an event with a base rate of about 1 %."""
    (a, b), (c, d) = split(*_rare(202, -6.0), rows=MANY)
    inputs = k.Input((12,), name="x")
    outputs = k.layers.Dense(1, activation="sigmoid", name="y")(dense(k, inputs, 48, 24))
    fitted_values = fitted(k, k.Model(inputs, outputs), a, b, CROSSENTROPY, epochs=3)
    return judged(fitted_values, c, d, "auc")


@model
def click_rate(k: Any) -> Task:
    """Return a calibrated probability that depends little on the features."""
    random = rng(203)
    x = random.normal(size=(COUNT, 16))
    y = random.random(COUNT) < _chances(-1.1 + 0.3 * x[:, 0] + 0.2 * x[:, 1])
    (a, b), (c, d) = split(x.astype("float32"), y[:, None].astype("float32"))
    inputs = k.Input((16,), name="x")
    scores = k.layers.Dense(1)(dense(k, inputs, 16, activation="tanh"))
    calibrated = k.layers.Dense(1, activation="sigmoid", name="y")(scores)
    fitted_values = fitted(k, k.Model(inputs, calibrated), a, b, CROSSENTROPY, epochs=4, rate=1e-3)
    return judged(fitted_values, c, d, "nll")


@model
def coin_tosses(k: Any) -> Task:
    """Return probabilities that are all near 0.5."""
    random = rng(204)
    x = random.normal(size=(COUNT, 8))
    y = random.random(COUNT) < _chances(0.05 * x[:, 0])
    (a, b), (c, d) = split(x.astype("float32"), y[:, None].astype("float32"))
    inputs = k.Input((8,), name="x")
    outputs = k.layers.Dense(1, activation="sigmoid", name="y")(dense(k, inputs, 16, 16))
    fitted_values = fitted(k, k.Model(inputs, outputs), a, b, CROSSENTROPY, epochs=2, rate=3e-4)
    return judged(fitted_values, c, d, "accuracy")


@model
def tags(k: Any) -> Task:
    """Return 20 labels of a text by attention pooling."""
    x, _ = tokens(205, length=20, words=200)
    y = np.stack([((x // 10) == tag).any(1) for tag in range(20)], 1)
    (a, b), (c, d) = split(x, y.astype("float32"))
    layers = k.layers
    inputs = k.Input((20,), dtype="int32", name="x")
    table = layers.Embedding(200, 24)(inputs)
    weights = layers.Softmax(axis=1)(layers.Dense(4)(table))
    x = layers.Flatten()(layers.Dot(1)([weights, table]))
    outputs = layers.Dense(20, activation="sigmoid", name="y")(dense(k, x, 64))
    fitted_values = fitted(k, k.Model(inputs, outputs), a, b, CROSSENTROPY, epochs=15, rate=5e-3)
    return judged(fitted_values, c, d, "accuracy")


@model
def severity(k: Any) -> Task:
    """Return whether an ordinal grade exceeds each of four thresholds."""
    random = rng(206)
    x = random.normal(size=(COUNT, 10))
    score = x[:, 0] * 1.5 + np.abs(x[:, 1]) - x[:, 2] * x[:, 3] + 0.4 * random.normal(size=COUNT)
    y = score[:, None] > np.array([-1.5, 0, 1.5, 3])
    (a, b), (c, d) = split(x.astype("float32"), y.astype("float32"))
    inputs = k.Input((10,), name="x")
    x = k.layers.LayerNormalization()(dense(k, inputs, 64))
    outputs = k.layers.Dense(4, activation="sigmoid", name="y")(dense(k, x, 32))
    fitted_values = fitted(k, k.Model(inputs, outputs), a, b, CROSSENTROPY, epochs=8)
    return judged(fitted_values, c, d, "accuracy")


@model
def saturated(k: Any) -> Task:
    """Return probabilities of 0 and 1 nearly always: logits of hundreds."""
    x = series(207, 32)
    y = np.abs(x).max(1) > 1.2
    (a, b), (c, d) = split(x[..., None], y[:, None].astype("float32"))
    inputs = k.Input((32, 1), name="x")
    x = k.layers.Conv1D(16, 5, activation="relu")(k.layers.Rescaling(50.0)(inputs))
    x = dense(k, k.layers.GlobalMaxPooling1D()(x), 16)
    outputs = k.layers.Dense(1, activation="sigmoid", name="y")(x)
    fitted_values = fitted(k, k.Model(inputs, outputs), a, b, CROSSENTROPY, epochs=8)
    return judged(fitted_values, c, d, "accuracy")


@model
def raw_score(k: Any) -> Task:
    """Return one score without a sigmoid."""
    random = rng(208)
    x = random.normal(size=(COUNT, 14))
    y = (x[:, :5] ** 2).sum(1) + random.normal(size=COUNT) > 4.5
    (a, b), (c, d) = split(x.astype("float32"), y[:, None].astype("float32"))
    inputs = k.Input((14,), name="x")
    outputs = k.layers.Dense(1, name="y")(dense(k, inputs, 64, 32, activation="elu"))
    loss = k.losses.BinaryCrossentropy(from_logits=True)
    fitted_values = fitted(k, k.Model(inputs, outputs), a, b, loss, epochs=8)
    return judged(fitted_values, c, d, "sign")


@model
def exchange_rates(k: Any) -> Task:
    """Tell whether a rate rises, from the relative change of nearly equal quotes."""
    random = rng(209)
    start = random.uniform(1.05, 1.2, (COUNT, 1))
    quotes = start * np.exp(np.cumsum(4e-4 * random.normal(size=(COUNT, 8)), 1))
    trend = np.log(quotes[:, -1] / quotes[:, 0]) + 3e-4 * random.normal(size=COUNT)
    (a, b, e), (c, d, f) = split(
        quotes[:, :7].astype("float32"),
        quotes[:, 1:].astype("float32"),
        (trend > 0)[:, None].astype("float32"),
    )
    one, other = k.Input((7,), name="before"), k.Input((7,), name="after")
    plain = k.layers.Rescaling(1.0)
    first, second = plain(one), plain(other)
    change = operations(k).divide(k.layers.Subtract()([second, first]), first)
    x = dense(k, k.layers.Rescaling(2000.0)(change), 16)
    outputs = k.layers.Dense(1, activation="sigmoid", name="y")(x)
    fitted_values = fitted(k, k.Model([one, other], outputs), [a, b], e, CROSSENTROPY, epochs=8)
    return judged(fitted_values, {"before": c, "after": d}, {"y": f}, "accuracy")


@model
def better_of_two(k: Any) -> Task:
    """Rank two items by one scorer: the sigmoid of the difference of their scores."""
    random = rng(210)
    items = random.normal(size=(2, COUNT, 10))
    worth = [np.sin(item[:, 0]) + item[:, 1] * item[:, 2] for item in items]
    y = worth[0] - worth[1] + 0.3 * random.normal(size=COUNT) > 0
    (a, b, e), (c, d, f) = split(*items.astype("float32"), y[:, None].astype("float32"))
    first, second = k.Input((10,), name="one"), k.Input((10,), name="other")
    scorer = k.Sequential(
        [
            k.layers.Dense(48, activation="relu"),
            k.layers.Dense(24, activation="relu"),
            k.layers.Dense(1),
        ]
    )
    margin = k.layers.Subtract()([scorer(first), scorer(second)])
    outputs = k.layers.Activation("sigmoid", name="y")(margin)
    fitted_values = fitted(k, k.Model([first, second], outputs), [a, b], e, CROSSENTROPY, epochs=10)
    return judged(fitted_values, {"one": c, "other": d}, {"y": f}, "accuracy")


@model
def same_person(k: Any) -> Task:
    """Compare two vectors by one tower and the cosine."""
    random = rng(211)
    people = random.normal(size=(200, 8))
    who = random.integers(0, 200, (2, COUNT))
    who[1] = np.where(random.random(COUNT) < 0.5, who[0], who[1])
    mixed = random.normal(size=(8, 24))
    pair = people[who] @ mixed + 0.5 * random.normal(size=(2, COUNT, 24))
    (a, b, e), (c, d, f) = split(
        *pair.astype("float32"), (who[0] == who[1])[:, None].astype("float32")
    )
    first, second = k.Input((24,), name="one"), k.Input((24,), name="other")
    tower = k.Sequential([k.layers.Dense(48, activation="gelu"), k.layers.Dense(16)])
    cosine = k.layers.Dot(1, normalize=True)([tower(first), tower(second)])
    outputs = k.layers.Dense(1, activation="sigmoid", name="y")(cosine)
    fitted_values = fitted(
        k, k.Model([first, second], outputs), [a, b], e, CROSSENTROPY, epochs=10, rate=1e-2
    )
    return judged(fitted_values, {"one": c, "other": d}, {"y": f}, "accuracy")


@model
def flat_angles(k: Any) -> Task:
    """Tell small angles apart by one less the cosine."""
    random = rng(212)
    angle = random.uniform(0, 0.06, COUNT)
    start = random.uniform(0, 6.3, COUNT)
    pair = [np.stack([np.cos(item), np.sin(item)], 1) for item in (start, start + angle)]
    (a, b, e), (c, d, f) = split(
        *(item.astype("float32") for item in pair), (angle > 0.03)[:, None].astype("float32")
    )
    first, second = k.Input((2,), name="one"), k.Input((2,), name="other")
    far = k.layers.Rescaling(-4000.0, offset=4000.0)(k.layers.Dot(1)([first, second]))
    outputs = k.layers.Dense(1, activation="sigmoid", name="y")(far)
    fitted_values = fitted(
        k, k.Model([first, second], outputs), [a, b], e, CROSSENTROPY, epochs=10, rate=0.03
    )
    return judged(fitted_values, {"one": c, "other": d}, {"y": f}, "accuracy")
