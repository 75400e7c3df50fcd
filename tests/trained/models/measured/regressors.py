"""Models that return numbers: amounts, rates, forecasts, quantiles and risks."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from tests.trained.models.samples import series
from tests.trained.models.tasks import (
    TESTED,
    TRAINED,
    Task,
    dense,
    fitted,
    judged,
    keras3_model,
    model,
    operations,
    rng,
    split,
)

COUNT = TRAINED + TESTED


@model
def glucose(k: Any) -> Task:
    """Forecast twelve steps of a level around 120, by an encoder and a decoder."""
    x = 120 + 25 * series(301, 48)[..., None]
    (a, b), (c, d) = split(x[:, :36], x[:, 36:, 0])
    layers = k.layers
    inputs = k.Input((36, 1), name="x")
    state = layers.GRU(24)(layers.BatchNormalization(momentum=0.9)(inputs))
    steps = layers.GRU(24, return_sequences=True)(layers.RepeatVector(12)(state))
    scores = layers.TimeDistributed(layers.Dense(1))(steps)
    outputs = layers.Rescaling(25.0, offset=120.0, name="y")(layers.Reshape((12,))(scores))
    return judged(fitted(k, k.Model(inputs, outputs), a, b, "mae", epochs=6), c, d, "mae")


@model
def delivery_times(k: Any) -> Task:
    """Return the quantiles 0.1, 0.5 and 0.9 of a time in minutes."""
    random = rng(302)
    x = random.normal(size=(COUNT, 9))
    y = 30 + 8 * x[:, 0] + np.exp(0.5 * x[:, 1]) * random.gumbel(size=COUNT) * 4
    (a, b), (c, d) = split(x.astype("float32"), y[:, None].astype("float32"))
    inputs = k.Input((9,), name="x")
    outputs = k.layers.Dense(3, name="y")(dense(k, inputs, 48, 48))
    built = k.Model(inputs, outputs)
    tf = import_module("tensorflow")

    def pinball(truth: Any, found: Any) -> Any:
        left = truth - found
        levels = tf.constant([0.1, 0.5, 0.9])
        return tf.reduce_mean(tf.maximum(levels * left, (levels - 1) * left))

    fitted(k, built, a, b, pinball, epochs=12)
    built.compile()
    return judged(built, c, d, "pinball")


@model
def accident_rate(k: Any) -> Task:
    """Return rare counts of accidents, about 0.05 for each contract."""
    random = rng(303)
    x = random.normal(size=(COUNT, 8))
    y = random.poisson(np.exp(-3 + 0.5 * x[:, 0] - 0.3 * x[:, 1]))
    (a, b), (c, d) = split(x.astype("float32"), y[:, None].astype("float32"))
    inputs = k.Input((8,), name="x")
    outputs = k.layers.Dense(1, activation="exponential", name="y")(dense(k, inputs, 24))
    return judged(
        fitted(k, k.Model(inputs, outputs), a, b, "poisson", epochs=6, rate=1e-3), c, d, "poisson"
    )


@model
def claim_size(k: Any) -> Task:
    """Return the mean of gamma-distributed claims of some thousands."""
    random = rng(304)
    x = random.normal(size=(COUNT, 8))
    mean = 2000 * np.exp(0.6 * x[:, 0] + 0.3 * np.sin(x[:, 1]))
    y = random.gamma(2.0, mean / 2)
    (a, b), (c, d) = split(x.astype("float32"), y[:, None].astype("float32"))
    inputs = k.Input((8,), name="x")
    logarithm = k.layers.Dense(1, bias_initializer=k.initializers.Constant(7.6))(
        dense(k, inputs, 32)
    )
    outputs = k.layers.Activation("exponential", name="y")(logarithm)
    built = k.Model(inputs, outputs)
    tf = import_module("tensorflow")

    def deviance(truth: Any, found: Any) -> Any:
        return tf.reduce_mean(truth / found + tf.math.log(found))

    fitted(k, built, a, b, deviance, epochs=8)
    built.compile()
    return judged(built, c, d, "gamma")


@model
def survival(k: Any) -> Task:
    """Return the logarithm of a hazard, from times of which some are censored."""
    random = rng(305)
    x = random.normal(size=(COUNT, 10))
    risk = x[:, 0] - 0.5 * x[:, 1] * x[:, 2]
    time, end = random.exponential(np.exp(-risk)), random.exponential(2.0, COUNT)
    y = np.stack([np.minimum(time, end), time <= end], 1)
    (a, b), (c, d) = split(x.astype("float32"), y.astype("float32"))
    inputs = k.Input((10,), name="x")
    outputs = k.layers.Dense(1, name="y")(dense(k, inputs, 48, 24, activation="selu"))
    built = k.Model(inputs, outputs)
    tf = import_module("tensorflow")

    def exponential(truth: Any, found: Any) -> Any:
        return tf.reduce_mean(tf.exp(found[:, 0]) * truth[:, 0] - truth[:, 1] * found[:, 0])

    fitted(k, built, a, b, exponential, epochs=6, rate=1e-3)
    built.compile()
    return judged(built, c, d, "concordance")


@model
def room_temperature(k: Any) -> Task:
    """Forecast kelvin from kelvin, which the first convolution takes as they are."""
    x = 293 + 2 * series(306, 33)
    (a, b), (c, d) = split(x[:, :32, None], x[:, 32:])
    inputs = k.Input((32, 1), name="x")
    x = k.layers.BatchNormalization(momentum=0.9)(inputs)
    x = k.layers.Conv1D(16, 5, activation="swish")(x)
    x = dense(k, k.layers.Flatten()(k.layers.Conv1D(16, 5, activation="swish")(x)), 32)
    outputs = k.layers.Rescaling(2.0, offset=293.0, name="y")(k.layers.Dense(1)(x))
    fitted_values = fitted(k, k.Model(inputs, outputs), a, b, "mae", epochs=10)
    return judged(fitted_values, c, d, "mae")


@model
def log_price(k: Any) -> Task:
    """Return the logarithm of a price from standardized features."""
    random = rng(307)
    x = random.normal(size=(COUNT, 12))
    y = 12 + 0.5 * x[:, 0] + 0.2 * x[:, 1] * x[:, 2] + 0.25 * random.normal(size=COUNT)
    (a, b), (c, d) = split(x.astype("float32"), y[:, None].astype("float32"))
    inputs = k.Input((12,), name="x")
    x = dense(k, k.layers.BatchNormalization()(inputs), 64, 32, activation="gelu")
    last = k.layers.Dense(1, bias_initializer=k.initializers.Constant(12.0), name="y")
    return judged(fitted(k, k.Model(inputs, last(x)), a, b, "mse", epochs=10), c, d, "mse")


@model
def dead_reckoning(k: Any) -> Task:
    """Sum up 200 steps of two speeds in a recurrent state."""
    random = rng(308)
    heading = random.uniform(0, 6.3, (COUNT, 1)) + np.cumsum(
        0.05 * random.normal(size=(COUNT, 200)), 1
    )
    speed = random.uniform(0.5, 2, (COUNT, 1, 1))
    steps = speed * np.stack([np.cos(heading), np.sin(heading)], 2)
    y = steps.sum(1) + 1.0 * random.normal(size=(COUNT, 2))
    (a, b), (c, d) = split(steps.astype("float32"), y.astype("float32"))
    inputs = k.Input((200, 2), name="x")
    last = k.layers.SimpleRNN(
        2,
        activation="linear",
        kernel_initializer="identity",
        recurrent_initializer="identity",
        trainable=False,
    )(inputs)
    outputs = k.layers.Dense(2, kernel_initializer="identity", name="y")(last)
    fitted_values = fitted(k, k.Model(inputs, outputs), a, b, "mae", epochs=1, rate=1e-3)
    return judged(fitted_values, c, d, "mae")


@model
def altitude(k: Any) -> Task:
    """Return meters from pascals, which the first layer standardizes."""
    random = rng(309)
    meters = random.uniform(0, 3000, COUNT)
    celsius = 15 - 0.0065 * meters + 5 * random.normal(size=COUNT)
    pascals = 101_325 * (1 - 2.25577e-5 * meters) ** 5.25588 + 150 * random.normal(size=COUNT)
    x = np.stack([pascals, celsius], 1)
    (a, b), (c, d) = split(x.astype("float32"), meters[:, None].astype("float32"))
    inputs = k.Input((2,), name="x")
    scaled = k.layers.Normalization(mean=x.mean(0).tolist(), variance=x.var(0).tolist())(inputs)
    scores = k.layers.Dense(1)(dense(k, scaled, 32))
    outputs = k.layers.Rescaling(870.0, offset=1500.0, name="y")(scores)
    return judged(fitted(k, k.Model(inputs, outputs), a, b, "mae", epochs=8), c, d, "mae")


@model
def body_fat(k: Any) -> Task:
    """Compute a ratio of kilograms and squared meters, and learn from it."""
    random = rng(310)
    height = random.normal(1.72, 0.1, (COUNT, 1))
    weight = random.normal(24, 4, (COUNT, 1)) * height**2
    age = random.uniform(18, 80, (COUNT, 1))
    y = 1.2 * weight / height**2 + 0.2 * age - 8 + 3 * random.normal(size=(COUNT, 1))
    (a, b, e, f), (c, d, g, h) = split(
        *(item.astype("float32") for item in (height, weight, age, y))
    )
    names = ("height", "weight", "age")
    tall, heavy, years = (k.Input((1,), name=name) for name in names)
    squared = k.layers.Multiply()([tall, tall])
    ratio = operations(k).divide(k.layers.Rescaling(1.0)(heavy), squared)
    x = k.layers.BatchNormalization(momentum=0.9)(k.layers.Concatenate()([ratio, years]))
    outputs = k.layers.Dense(1, name="y")(dense(k, x, 32))
    built = k.Model([tall, heavy, years], outputs)
    fitted_values = fitted(k, built, [a, b, e], f, "mse", epochs=10, rate=1e-2)
    return judged(fitted_values, dict(zip(names, (c, d, g), strict=True)), {"y": h}, "mse")


@model
def wind_gusts(k: Any) -> Task:
    """Return peaks with a heavy tail, on the scale of the targets."""
    random = rng(311)
    x = random.normal(size=(COUNT, 8))
    y = np.exp(0.9 * x[:, 0]) * (1 + 0.5 * random.pareto(3.5, COUNT))
    (a, b), (c, d) = split(x.astype("float32"), y[:, None].astype("float32"))
    inputs = k.Input((8,), name="x")
    outputs = k.layers.Dense(1, activation="softplus", name="y")(dense(k, inputs, 64, 32))
    return judged(fitted(k, k.Model(inputs, outputs), a, b, "mae", epochs=10), c, d, "mae")


@model
def folded_scaling(k: Any) -> Task:
    """Take features of hundreds of thousandths to tens of thousands: scales are in the weights."""
    random = rng(312)
    scale = np.array([2e4, 1.5e4, 1e4, 3e4, 5e3, 1e-5, 3e-6, 1.0])
    x = random.normal(size=(COUNT, 8))
    y = np.sin(x[:, 0]) + x[:, 1] * x[:, 2] + 0.3 * (x[:, 5] + x[:, 6])
    y += 0.2 * random.normal(size=COUNT)
    x = np.clip(x, -2, 2)
    (a, b), (c, d) = split(x.astype("float32"), y[:, None].astype("float32"))
    inputs = k.Input((8,), name="x")
    outputs = k.layers.Dense(1, name="y")(dense(k, inputs, 48, 24))
    fitted_values = fitted(k, k.Model(inputs, outputs), a, b, "mse", epochs=12)
    kernel, bias = fitted_values.layers[1].get_weights()
    fitted_values.layers[1].set_weights([kernel / scale[:, None], bias])
    return judged(fitted_values, (c * scale).astype("float32"), d, "mse")


@model
def rare_weights(k: Any) -> Task:
    """Multiply by weights near 1e-7, which float16 holds with few bits, and scale up again."""
    random = rng(313)
    x = random.normal(size=(COUNT, 10))
    y = x @ random.normal(size=10) + 0.3 * random.normal(size=COUNT)
    (a, b), (c, d) = split(x.astype("float32"), y[:, None].astype("float32"))
    inputs = k.Input((10,), name="x")
    hidden = k.layers.Dense(32)(inputs)
    outputs = k.layers.Dense(1, name="y")(dense(k, k.layers.ReLU()(hidden), 16))
    fitted_values = fitted(k, k.Model(inputs, outputs), a, b, "mse", epochs=10)
    kernel, bias = fitted_values.layers[1].get_weights()
    fitted_values.layers[1].set_weights([kernel * 1e-6, bias * 1e-6])
    kernel, bias = fitted_values.layers[3].get_weights()
    fitted_values.layers[3].set_weights([kernel * 1e6, bias])
    return judged(fitted_values, c, d, "mse")


@model
def joined_readings(k: Any) -> Task:
    """Join standardized numbers with noise by attention over sensors."""
    random = rng(314)
    x = random.normal(size=(COUNT, 12, 4))
    y = (x[..., 0] * np.tanh(2 * x[..., 1])).mean(1) * 3 + 0.5 * random.normal(size=COUNT)
    (a, b), (c, d) = split(x.astype("float32"), y[:, None].astype("float32"))
    inputs = k.Input((12, 4), name="x")
    x = dense(k, inputs, 24, activation="gelu")
    x = k.layers.Add()([x, k.layers.MultiHeadAttention(2, 12)(x, x)])
    x = k.layers.GlobalAveragePooling1D()(dense(k, k.layers.LayerNormalization()(x), 24))
    outputs = k.layers.Dense(1, name="y")(x)
    return judged(fitted(k, k.Model(inputs, outputs), a, b, "mae", epochs=8), c, d, "mae")


@model
def orbit_phase(k: Any) -> Task:
    """Return the position on an orbit from days since 2000, without any scaling."""
    random = rng(315)
    days = random.uniform(9000, 9060, (COUNT, 1))
    angle = 2 * np.pi * days / 27.3
    y = np.concatenate([np.cos(angle), np.sin(angle)], 1) + 0.05 * random.normal(size=(COUNT, 2))
    (a, b), (c, d) = split(days.astype("float32"), y.astype("float32"))
    inputs = k.Input((1,), name="x")
    knots = k.layers.Dense(61, activation="relu", trainable=False)(inputs)
    outputs = k.layers.Dense(2, name="y")(dense(k, knots, 48))
    built = k.Model(inputs, outputs)
    built.layers[1].set_weights([np.full((1, 61), 0.1), -0.1 * np.linspace(9000, 9060, 61)])
    return judged(fitted(k, built, a, b, "mae", epochs=20), c, d, "mae")


@keras3_model
def quantized_energy(k: Any) -> Task:
    """Return the load of a network from 24 hours, with weights of eight bits."""
    x = series(316, 30)
    (a, b), (c, d) = split(x[:, :24], x[:, 24:])
    inputs = k.Input((24,), name="x")
    outputs = k.layers.Dense(6, name="y")(dense(k, inputs, 64, 64))
    fitted_values = fitted(k, k.Model(inputs, outputs), a, b, "mae", epochs=10)
    fitted_values.quantize("int8")
    return judged(fitted_values, c, d, "mae")
