"""Models that return numbers."""

from __future__ import annotations

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
    model,
    rng,
    split,
)


def _regressor(
    k: Any, x: Any, y: Any, *sizes: int, metric: str = "mae", last: str = "linear", **fit: Any
) -> Task:
    (a, b), (c, d) = split(x.astype("float32"), y.astype("float32"))
    inputs = k.Input(a.shape[1:], name="x")
    outputs = k.layers.Dense(b.shape[1], activation=last, name="y")(dense(k, inputs, *sizes))
    loss = fit.pop("loss", "mse")
    return judged(fitted(k, k.Model(inputs, outputs), a, b, loss, **fit), c, d, metric)


@model
def housing(k: Any) -> Task:
    """Learn a noisy function."""
    random = rng(30)
    x = random.normal(size=(TRAINED + TESTED, 8))
    y = x[:, :1] * 2 + np.sin(x[:, 1:2]) + 0.6 * random.normal(size=(len(x), 1))
    return _regressor(k, x, y, 64, 32, epochs=8)


@model
def surrogate(k: Any) -> Task:
    """Learn a smooth function without noise nearly exactly."""
    x = rng(31).uniform(-1, 1, (TRAINED + TESTED, 3))
    y = np.sin(2 * x[:, :1]) * np.cos(x[:, 1:2]) + x[:, 2:] ** 2
    return _regressor(k, x, y, 64, 64, epochs=40, metric="mse")


@model
def targets_of_all_sizes(k: Any) -> Task:
    """Return five numbers whose sizes differ by a factor of up to 300."""
    random = rng(32)
    x = random.normal(size=(TRAINED + TESTED, 10))
    y = x @ random.normal(size=(10, 5)) + 0.5 * random.normal(size=(len(x), 5))
    return _regressor(k, x, y * [1, 10, 0.1, 3, 30], 64, epochs=20)


@model
def heavy_tail(k: Any) -> Task:
    """Return numbers of which few are very large."""
    random = rng(33)
    x = random.normal(size=(TRAINED + TESTED, 6))
    y = np.exp(1.2 * x[:, :1] + 0.5 * x[:, 1:2] + 0.4 * random.normal(size=(len(x), 1)))
    return _regressor(k, x, y, 64, last="exponential", loss="mae", epochs=10, rate=1e-3)


@model
def counts(k: Any) -> Task:
    """Return the mean of a Poisson distribution."""
    random = rng(34)
    x = random.normal(size=(TRAINED + TESTED, 6))
    y = random.poisson(np.exp(0.6 * x[:, :1] + 1))
    return _regressor(k, x, y, 32, last="softplus", loss="poisson", metric="poisson")


@model
def large_targets(k: Any) -> Task:
    """Return numbers of about a million."""
    random = rng(35)
    x = random.normal(size=(TRAINED + TESTED, 6))
    y = x[:, :1] + x[:, 1:2] * x[:, 2:3] + 0.3 * random.normal(size=(len(x), 1))
    (a, b), (c, d) = split(x.astype("float32"), (1e6 + 1e5 * y).astype("float32"))
    inputs = k.Input((6,), name="x")
    scores = k.layers.Dense(1)(dense(k, inputs, 64))
    outputs = k.layers.Rescaling(1e5, offset=1e6, name="y")(scores)
    fitted_values = fitted(k, k.Model(inputs, outputs), a, b, "mae", epochs=10)
    return judged(fitted_values, c, d, "mae")


@model
def kelvin(k: Any) -> Task:
    """Forecast kelvin; the offset comes before the last layer."""
    x = 283 + 6 * series(36, 25)[..., None]
    (a, b), (c, d) = split(x[:, :24].astype("float32"), x[:, 24].astype("float32"))
    inputs = k.Input((24, 1), name="x")
    centred = k.layers.Rescaling(1 / 6, offset=-283 / 6)(inputs)
    scores = k.layers.Dense(1)(k.layers.LSTM(24)(centred))
    outputs = k.layers.Reshape((1,), name="y")(
        k.layers.Dense(1)(k.layers.Rescaling(6.0, offset=283.0)(scores))
    )
    result = k.Model(inputs, outputs)
    result.layers[-2].set_weights([np.ones((1, 1)), np.zeros(1)])
    return judged(fitted(k, result, a, b, "mae", epochs=8), c, d, "mae")


@model
def forecast(k: Any) -> Task:
    """Forecast twelve steps with dilated convolutions."""
    x = series(37, 60)[..., None]
    (a, b), (c, d) = split(x[:, :48], x[:, 48:, 0])
    inputs = k.Input((48, 1), name="x")
    x = inputs
    for step in (1, 2, 4, 8):
        x = k.layers.Conv1D(16, 3, dilation_rate=step, padding="causal", activation="relu")(x)
    outputs = k.layers.Dense(12, name="y")(k.layers.Flatten()(x))
    fitted_values = fitted(k, k.Model(inputs, outputs), a, b, "mae", epochs=6)
    return judged(fitted_values, c, d, "mae")


@model
def long_sum(k: Any) -> Task:
    """Add 4,096 values, which float16 cannot hold."""
    random = rng(38)
    count = 1500
    x = random.uniform(0, 60, (count, 4096)).astype("float32") * random.uniform(
        0.5, 1, (count, 1)
    ).astype("float32")
    y = (x.sum(1, keepdims=True) / 4096 - 22) / 5
    inputs = k.Input((4096,), name="x")
    total = k.layers.Dense(1, kernel_initializer="ones", trainable=False)(inputs)
    outputs = k.layers.Dense(1, name="y")(k.layers.Rescaling(1 / 20_000, offset=-4.5)(total))
    fitted_values = fitted(
        k, k.Model(inputs, outputs), x[:500], y[:500], "mse", rate=0.05, epochs=20
    )
    return judged(fitted_values, x[500:], y[500:], "mae")


@model
def squared_distance(k: Any) -> Task:
    """Return the sum of squares, nearly exactly."""
    random = rng(39)
    x = random.normal(size=(TRAINED + TESTED, 64)) * 8
    y = (x**2).sum(1, keepdims=True)
    (a, b), (c, d) = split(x.astype("float32"), y.astype("float32"))
    inputs = k.Input((64,), name="x")
    squared = k.layers.Dot(1)([inputs, inputs])
    outputs = k.layers.Dense(1, kernel_initializer="ones", name="y")(squared)
    fitted_values = fitted(k, k.Model(inputs, outputs), a, b, "mae", rate=1e-5, epochs=2)
    return judged(fitted_values, c, d, "mae")


@model
def variance(k: Any) -> Task:
    """Compute the mean of squares less the square of the mean, for values far from zero."""
    random = rng(40)
    size = random.uniform(0.5, 2, (TRAINED + TESTED, 1, 1))
    x = 30 + size * random.normal(size=(TRAINED + TESTED, 64, 1))
    (a, b), (c, d) = split(x.astype("float32"), size[..., 0].astype("float32"))
    inputs = k.Input((64, 1), name="x")
    mean = k.layers.GlobalAveragePooling1D()(inputs)
    squares = k.layers.GlobalAveragePooling1D()(k.layers.Multiply()([inputs, inputs]))
    result = k.layers.Subtract()([squares, k.layers.Multiply()([mean, mean])])
    outputs = k.layers.Dense(1, name="y")(dense(k, result, 16))
    fitted_values = fitted(k, k.Model(inputs, outputs), a, b, "mae", epochs=12)
    return judged(fitted_values, c, d, "mae")


@model
def phases(k: Any) -> Task:
    """Return a fast wave of the input, whose phase needs many digits."""
    x = rng(41).uniform(0, 40, (TRAINED + TESTED, 1))
    y = np.sin(x)
    (a, b), (c, d) = split(x.astype("float32"), y.astype("float32"))
    inputs = k.Input((1,), name="x")
    scaled = k.layers.Rescaling(1.0)(inputs)
    hidden = k.layers.Dense(512, activation="relu")(scaled)
    hidden = k.layers.Dense(64, activation="relu")(hidden)
    outputs = k.layers.Dense(1, name="y")(hidden)
    result = k.Model(inputs, outputs)
    result.layers[2].set_weights([np.ones((1, 512)), -np.linspace(0, 40, 512)])
    return judged(fitted(k, result, a, b, "mse", epochs=15, rate=1e-3), c, d, "mae")


@model
def anomaly(k: Any) -> Task:
    """Return the error of an autoencoder, which is small beside what it reconstructs."""
    random = rng(42)
    base = random.normal(size=(TRAINED + TESTED, 4)) @ random.normal(size=(4, 24))
    x = (base + 0.05 * random.normal(size=base.shape) + 5).astype("float32")
    inputs = k.Input((24,), name="x")
    again = k.layers.Dense(24)(k.layers.Dense(6)(inputs))
    error = k.layers.Subtract()([inputs, again])
    outputs = k.layers.Dot(1, name="y")([error, error])
    fitted_values = fitted(
        k,
        k.Model(inputs, outputs),
        x[:TRAINED],
        np.zeros((TRAINED, 1)),
        "mae",
        epochs=25,
        rate=3e-3,
    )
    expected = np.asarray(fitted_values.predict(x[TRAINED:], verbose=0))
    return judged(fitted_values, x[TRAINED:], expected, "psnr")


@model
def ranking(k: Any) -> Task:
    """Return the rating that a user gives an item."""
    random = rng(43)
    count = TRAINED + TESTED
    users, items = (random.integers(0, 300, (count, 1)).astype("int32") for _ in range(2))
    tables = random.normal(size=(2, 300, 4))
    y = (tables[0, users[:, 0]] * tables[1, items[:, 0]]).sum(1, keepdims=True)
    y = y + random.normal(size=y.shape)
    (a, b, e), (c, d, f) = split(users, items, y.astype("float32"))
    first, second = (k.Input((1,), dtype="int32", name=name) for name in ("user", "item"))
    towers = [k.layers.Flatten()(k.layers.Embedding(300, 8)(ids)) for ids in (first, second)]
    outputs = k.layers.Dot(1, name="y")(towers)
    fitted_values = fitted(k, k.Model([first, second], outputs), [a, b], e, "mse", rate=0.02)
    return judged(fitted_values, {"user": c, "item": d}, {"y": f}, "mae")


@model
def mixture_density(k: Any) -> Task:
    """Return the weights, means and widths of three normal distributions."""
    random = rng(44)
    count = TRAINED + TESTED
    x = random.uniform(-2, 2, (count, 1))
    y = np.sin(2 * x) * random.choice([-1, 1], (count, 1)) + 0.1 * random.normal(size=(count, 1))
    (a, b), (c, d) = split(x.astype("float32"), y.astype("float32"))
    inputs = k.Input((1,), name="x")
    outputs = k.layers.Dense(9, name="y")(dense(k, inputs, 64, 64, activation="tanh"))
    result = k.Model(inputs, outputs)
    import tensorflow as tf

    def loss(truth: Any, found: Any) -> Any:
        weights, means, widths = tf.split(found, 3, -1)
        logs = tf.nn.log_softmax(weights) - widths - 0.5 * ((truth - means) / tf.exp(widths)) ** 2
        return -tf.reduce_logsumexp(logs, -1)

    fitted(k, result, a, b, loss, epochs=25)
    result.compile()
    return judged(result, c, d, "mixture")


@model
def multiplying_gates(k: Any) -> Task:
    """Multiply products: values grow beyond float16 for some inputs."""
    random = rng(72)
    x = random.exponential(size=(TRAINED + TESTED, 6))
    y = np.log1p((x[:, :3] * 12).prod(1, keepdims=True))
    (a, b), (c, d) = split(x.astype("float32"), y.astype("float32"))
    inputs = k.Input((6,), name="x")
    parts = k.layers.Dense(8, activation="relu")(k.layers.Rescaling(12.0)(inputs))
    cube = k.layers.Multiply()([k.layers.Multiply()([parts, parts]), parts])
    squashed = k.layers.BatchNormalization(momentum=0.9)(cube)
    outputs = k.layers.Dense(1, name="y")(dense(k, squashed, 32))
    return judged(fitted(k, k.Model(inputs, outputs), a, b, "mae", epochs=10), c, d, "mae")
