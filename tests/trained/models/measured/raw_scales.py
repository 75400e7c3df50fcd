"""
Models that compute with values as instruments give them: small differences of large numbers,
intermediate values beyond the range of float16, and sums of many terms.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.trained.models.samples import blobs, shapes
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
CROSSENTROPY = "sparse_categorical_crossentropy"


@model
def walking_distance(k: Any) -> Task:
    """Return meters between two places, from their coordinates in degrees."""
    random = rng(601)
    start = random.uniform([45.8, 6.0], [47.8, 10.4], (COUNT, 2))
    step = random.normal(size=(COUNT, 2)) * 4e-3
    y = np.hypot(step[:, 0] * 111_000, step[:, 1] * 76_000)
    y = 1.3 * y + 40 * random.normal(size=COUNT)
    (a, b, e), (c, d, f) = split(
        start.astype("float32"), (start + step).astype("float32"), y[:, None].astype("float32")
    )
    first, second = k.Input((2,), name="start"), k.Input((2,), name="end")
    x = k.layers.Rescaling(250.0)(k.layers.Subtract()([second, first]))
    scores = k.layers.Dense(1)(dense(k, x, 32))
    outputs = k.layers.Rescaling(400.0, name="y")(scores)
    fitted_values = fitted(k, k.Model([first, second], outputs), [a, b], e, "mae", epochs=10)
    return judged(fitted_values, {"start": c, "end": d}, {"y": f}, "mae")


@model
def crowded_vectors(k: Any) -> Task:
    """Return vectors of readings that share a large common part."""
    x, y = blobs(60, 24, 0.6, 602)
    x = (40 + x).astype("float32")
    (a, b), (c, _) = split(x, y)
    inputs = k.Input((24,), name="x")
    centered = k.layers.BatchNormalization(momentum=0.9)(inputs)
    hidden = k.layers.Dense(16)(dense(k, centered, 48))
    fitted(
        k,
        k.Model(inputs, k.layers.Dense(60, activation="softmax")(hidden)),
        a,
        b,
        CROSSENTROPY,
        epochs=8,
    )
    result = k.Model(inputs, k.layers.UnitNormalization(name="y")(hidden))
    return judged(result, c, None, "neighbours")


@model
def power_meter(k: Any) -> Task:
    """Forecast the use of an hour, from the readings of a counter in kilowatt hours."""
    random = rng(603)
    level = random.gamma(4, 0.6, (COUNT, 1))
    use = level * np.exp(0.4 * random.normal(size=(COUNT, 25)))
    readings = random.uniform(5000, 60_000, (COUNT, 1)) + np.cumsum(use, 1)
    (a, b), (c, d) = split(readings[:, :24, None].astype("float32"), use[:, 24:].astype("float32"))
    inputs = k.Input((24, 1), name="x")
    change = k.layers.Conv1D(1, 2, use_bias=False, trainable=False)(inputs)
    x = dense(k, k.layers.Flatten()(change), 32)
    built = k.Model(inputs, k.layers.Dense(1, name="y")(x))
    built.layers[1].set_weights([np.array([[[-1.0]], [[1.0]]])])
    return judged(fitted(k, built, a, b, "mae", epochs=8), c, d, "mae")


@model
def heart_rhythm(k: Any) -> Task:
    """Classify rhythms by the times of beats in milliseconds since the recording started."""
    random = rng(604)
    y = random.integers(0, 3, COUNT)
    spread = np.array([15, 60, 140])[y][:, None]
    beats = random.normal(800, 90, (COUNT, 1)) + spread * random.normal(size=(COUNT, 24))
    times = random.uniform(0, 40_000, (COUNT, 1)) + np.cumsum(np.maximum(beats, 250), 1)
    (a, b), (c, d) = split(times[:, :-1].astype("float32"), y)
    later = np.concatenate([times[:TRAINED, 1:], times[TRAINED:, 1:]]).astype("float32")
    first, second = k.Input((23,), name="before"), k.Input((23,), name="after")
    change = k.layers.Rescaling(0.01, offset=-8.0)(k.layers.Subtract()([second, first]))
    x = k.layers.Multiply()([change, change])
    x = dense(k, k.layers.Concatenate()([change, x]), 48)
    outputs = k.layers.Dense(3, activation="softmax", name="y")(x)
    built = k.Model([first, second], outputs)
    fitted_values = fitted(k, built, [a, later[:TRAINED]], b, CROSSENTROPY, epochs=8)
    return judged(fitted_values, {"before": c, "after": later[TRAINED:]}, {"y": d}, "accuracy")


@model
def sound_level(k: Any) -> Task:
    """Return decibels from samples of sixteen bits, by the mean of their squares."""
    random = rng(605)
    level = random.uniform(1.5, 3.8, (COUNT, 1))
    x = np.clip(10**level * random.normal(size=(COUNT, 256)), -32_768, 32_767).round()
    y = 20 * level + 1.0 * random.normal(size=(COUNT, 1))
    (a, b), (c, d) = split(x[..., None].astype("float32"), y.astype("float32"))
    inputs = k.Input((256, 1), name="x")
    squares = k.layers.GlobalAveragePooling1D()(k.layers.Multiply()([inputs, inputs]))
    logarithm = operations(k).log(k.layers.Rescaling(1.0, offset=1.0)(squares))
    outputs = k.layers.Dense(1, name="y")(logarithm)
    fitted_values = fitted(k, k.Model(inputs, outputs), a, b, "mae", epochs=8, rate=0.05)
    return judged(fitted_values, c, d, "mae")


@model
def overdrawn(k: Any) -> Task:
    """Tell whether 300 payments end below zero, by a recurrent sum."""
    random = rng(606)
    payments = random.normal(0, 20, (COUNT, 300, 1)) + 2 * random.normal(size=(COUNT, 1, 1))
    payments[:, 0] += 400
    y = payments.sum(1) + 20 * random.normal(size=(COUNT, 1)) < 400
    (a, b), (c, d) = split(payments.astype("float32"), y.astype("float32"))
    inputs = k.Input((300, 1), name="x")
    balance = k.layers.SimpleRNN(
        1,
        activation="linear",
        kernel_initializer="ones",
        recurrent_initializer="ones",
        trainable=False,
    )(inputs)
    scaled = k.layers.Rescaling(0.01, offset=-4.0)(balance)
    outputs = k.layers.Dense(1, activation="sigmoid", name="y")(scaled)
    built = k.Model(inputs, outputs)
    fitted_values = fitted(k, built, a, b, "binary_crossentropy", epochs=4, rate=0.1)
    return judged(fitted_values, c, d, "accuracy")


@model
def thermal_camera(k: Any) -> Task:
    """Classify images of sixteen bits, whose contrast is small beside their level."""
    x, y, _ = shapes(607)
    x = (29_000 + 60 * x).round()
    (a, b), (c, d) = split(x.astype("float32"), y)
    inputs = k.Input((16, 16, 1), name="x")
    x = k.layers.BatchNormalization(momentum=0.9)(inputs)
    x = k.layers.Conv2D(16, 5, strides=2, activation="relu")(x)
    x = dense(k, k.layers.Flatten()(x), 32)
    outputs = k.layers.Dense(3, activation="softmax", name="y")(x)
    fitted_values = fitted(k, k.Model(inputs, outputs), a, b, CROSSENTROPY, epochs=6)
    return judged(fitted_values, c, d, "accuracy")


@model
def joint_probability(k: Any) -> Task:
    """Multiply six probabilities of independent signs for each of three causes."""
    random = rng(608)
    y = random.integers(0, 3, COUNT)
    logits = random.normal(-2.5, 1.2, (COUNT, 3, 6)) + 0.9 * (np.arange(3) == y[:, None])[..., None]
    chances = 1 / (1 + np.exp(-logits))
    (a, b), (c, d) = split(chances.transpose(0, 2, 1).astype("float32"), y)
    inputs = k.Input((6, 3), name="x")
    signs = [
        k.layers.Flatten()(k.layers.Cropping1D((place, 5 - place))(inputs)) for place in range(6)
    ]
    product = k.layers.Multiply()(signs)
    logarithm = operations(k).log(k.layers.Rescaling(1.0, offset=1e-12)(product))
    outputs = k.layers.Dense(3, activation="softmax", name="y")(logarithm)
    fitted_values = fitted(k, k.Model(inputs, outputs), a, b, CROSSENTROPY, epochs=8, rate=0.01)
    return judged(fitted_values, c, d, "accuracy")


@model
def spectral_line(k: Any) -> Task:
    """Return a speed from the wavelength of a line in nanometers."""
    random = rng(609)
    speed = random.normal(0, 60, (COUNT, 1))
    shifted = 589.0 * (1 + speed / 299_792) + 0.01 * random.normal(size=(COUNT, 1))
    other = 656.3 * (1 + speed / 299_792) + 0.01 * random.normal(size=(COUNT, 1))
    x = np.concatenate([shifted, other], 1)
    (a, b), (c, d) = split(x.astype("float32"), (speed / 60).astype("float32"))
    inputs = k.Input((2,), name="x")
    centered = k.layers.BatchNormalization(momentum=0.8, epsilon=1e-6)(inputs)
    outputs = k.layers.Dense(1, name="y")(dense(k, centered, 24))
    return judged(fitted(k, k.Model(inputs, outputs), a, b, "mse", epochs=10), c, d, "mse")


@model
def offset_stream(k: Any) -> Task:
    """Classify by small updates of a stream with a large constant part."""
    (a, b), (c, d) = split(*blobs(8, 20, 1.4, 610))
    layers = k.layers
    inputs = k.Input((20,), name="x")
    x = layers.Rescaling(1.0, offset=300.0)(layers.Dense(32)(inputs))
    for _ in range(6):
        inner = layers.BatchNormalization(momentum=0.8)(x)
        x = layers.Add()([x, layers.Dense(32)(dense(k, inner, 32))])
    x = layers.BatchNormalization(momentum=0.8)(x)
    outputs = layers.Dense(8, activation="softmax", name="y")(x)
    fitted_values = fitted(k, k.Model(inputs, outputs), a, b, CROSSENTROPY, epochs=6)
    return judged(fitted_values, c, d, "accuracy")


@model
def fourier_hours(k: Any) -> Task:
    """Return a load from the hour since the year began, by waves of known periods."""
    random = rng(611)
    hour = random.uniform(0, 8760, (COUNT, 1))
    y = np.sin(2 * np.pi * hour / 24) + 0.5 * np.cos(2 * np.pi * hour / 168)
    y += 0.3 * random.normal(size=(COUNT, 1))
    (a, b), (c, d) = split(hour.astype("float32"), y.astype("float32"))
    inputs = k.Input((1,), name="x")
    angles = k.layers.Dense(3, use_bias=False, trainable=False)(inputs)
    sines, cosines = (getattr(operations(k), name)(angles) for name in ("sin", "cos"))
    waves = k.layers.Concatenate()([sines, cosines])
    built = k.Model(inputs, k.layers.Dense(1, name="y")(dense(k, waves, 32)))
    built.layers[1].set_weights([2 * np.pi / np.array([[24.0, 168.0, 8760.0]])])
    return judged(fitted(k, built, a, b, "mae", epochs=8), c, d, "mae")


@model
def nearest_prototype(k: Any) -> Task:
    """Find the nearest of twelve prototypes by squares and products that nearly cancel."""
    random = rng(612)
    prototypes = 30 + 1.5 * random.normal(size=(12, 16))
    y = random.integers(0, 12, COUNT)
    x = prototypes[y] + 1.0 * random.normal(size=(COUNT, 16))
    (a, b), (c, d) = split(x.astype("float32"), y)
    inputs = k.Input((16,), name="x")
    products = k.layers.Dense(12, trainable=False)(inputs)
    outputs = k.layers.Dense(12, activation="softmax", kernel_initializer="identity", name="y")(
        products
    )
    built = k.Model(inputs, outputs)
    squares = -0.5 * (prototypes**2).sum(1)
    built.layers[1].set_weights([prototypes.T, squares])
    return judged(fitted(k, built, a, b, CROSSENTROPY, epochs=3, rate=1e-3), c, d, "accuracy")


@model
def price_spread(k: Any) -> Task:
    """Forecast which of two related prices rises, from the spreads of a week."""
    random = rng(613)
    level = random.uniform(3000, 5000, (COUNT, 1)) + np.cumsum(
        12 * random.normal(size=(COUNT, 7)), 1
    )
    spread = random.normal(0, 3, (COUNT, 1)) + 0.5 * random.normal(size=(COUNT, 7))
    y = spread.mean(1) + 0.8 * random.normal(size=COUNT) > 0
    x = np.stack([level, level + spread], 2)
    (a, b), (c, d) = split(x.astype("float32"), y[:, None].astype("float32"))
    inputs = k.Input((7, 2), name="x")
    spreads = k.layers.Dense(1, use_bias=False, trainable=False)(inputs)
    x = dense(k, k.layers.Flatten()(spreads), 24)
    built = k.Model(inputs, k.layers.Dense(1, activation="sigmoid", name="y")(x))
    built.layers[1].set_weights([np.array([[-1.0], [1.0]])])
    return judged(fitted(k, built, a, b, "binary_crossentropy", epochs=6), c, d, "accuracy")


@model
def plain_softmax(k: Any) -> Task:
    """Weigh items by exponentials without subtracting the largest score first."""
    random = rng(614)
    items = random.normal(size=(COUNT, 8, 6))
    best = (3 * items[..., 0] + items[..., 1]).argmax(1)
    y = items[np.arange(COUNT), best, 2:4].sum(1) + 0.2 * random.normal(size=COUNT)
    (a, b), (c, d) = split(items.astype("float32"), y[:, None].astype("float32"))
    layers = k.layers
    inputs = k.Input((8, 6), name="x")
    scores = layers.Dense(1, use_bias=False)(inputs)
    weights = layers.Activation("exponential")(layers.Rescaling(2.0)(scores))
    total = layers.Dot(1)([weights, inputs])
    mass = layers.Rescaling(8.0)(layers.GlobalAveragePooling1D()(weights))
    mean = operations(k).divide(layers.Flatten()(total), mass)
    built = k.Model(inputs, layers.Dense(1, name="y")(mean))
    built.layers[1].set_weights([np.array([[1.5], [0.5], [0.0], [0.0], [0.0], [0.0]])])
    return judged(fitted(k, built, a, b, "mae", epochs=10), c, d, "mae")
