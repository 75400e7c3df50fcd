"""Models that return the probabilities or scores of classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.trained.models.samples import blobs, shapes, tokens
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
    tf_keras_model,
)

COUNT = TRAINED + TESTED
CROSSENTROPY = "sparse_categorical_crossentropy"


@model
def product_search(k: Any) -> Task:
    """Find a query's product among 300, by the cosine of two vectors."""
    random = rng(101)
    y = random.integers(0, 300, COUNT)
    products = random.normal(size=(300, 12)) @ random.normal(size=(12, 40))
    x = products[y] + 1.5 * random.normal(size=(COUNT, 40))
    (a, b), (c, d) = split(x.astype("float32"), y)
    inputs = k.Input((40,), name="x")
    query = k.layers.UnitNormalization()(k.layers.Dense(24)(dense(k, inputs, 96)))
    limit = k.constraints.UnitNorm(axis=0)
    cosines = k.layers.Dense(300, use_bias=False, kernel_constraint=limit)(query)
    outputs = k.layers.Softmax(name="y")(k.layers.Rescaling(16.0)(cosines))
    return judged(
        fitted(k, k.Model(inputs, outputs), a, b, CROSSENTROPY, epochs=15), c, d, "accuracy"
    )


@model
def soft_teacher(k: Any) -> Task:
    """Return probabilities at a temperature of 30, which are nearly equal, as for distillation."""
    (a, b), (c, d) = split(*blobs(8, 20, 1.4, 102))
    inputs = k.Input((20,), name="x")
    scores = k.layers.Dense(8)(dense(k, inputs, 64, 64, activation="gelu"))
    trained = k.Model(inputs, k.layers.Softmax()(scores))
    fitted(k, trained, a, b, CROSSENTROPY, epochs=8)
    outputs = k.layers.Softmax(name="y")(k.layers.Rescaling(1 / 30)(scores))
    return judged(k.Model(inputs, outputs), c, d, "accuracy")


@model
def hashed_visits(k: Any) -> Task:
    """Sum up embeddings of hashed identifiers."""
    x, y = tokens(103, length=12, words=1200)
    (a, b), (c, d) = split(x.astype("int64") * 7919 + 10**6, y)
    inputs = k.Input((12,), dtype="int64", name="x")
    bins = k.layers.Hashing(num_bins=4000)(inputs)
    x = k.layers.GlobalMaxPooling1D()(k.layers.Embedding(4000, 16)(bins))
    outputs = k.layers.Dense(4, activation="softmax", name="y")(dense(k, x, 32))
    fitted_values = fitted(k, k.Model(inputs, outputs), a, b, CROSSENTROPY, epochs=12, rate=1e-2)
    return judged(fitted_values, c, d, "accuracy")


@model
def city_and_budget(k: Any) -> Task:
    """Look up words, and join them with numbers."""
    random = rng(104)
    cities = np.array(["Bern", "Oslo", "Lima", "Cairo", "Perth", "Quito"])
    place = random.integers(0, 6, COUNT)
    budget = random.normal(size=(COUNT, 3))
    effect = random.normal(size=(6, 3))
    y = (effect[place] * budget + 0.7 * random.normal(size=(COUNT, 3))).argmax(1)
    words, (a, b) = cities[place][:, None], (budget.astype("float32"), y)
    (g, a, b), (h, c, d) = split(words, a, b)
    first = k.Input((1,), dtype="string", name="city")
    second = k.Input((3,), name="budget")
    ids = k.layers.StringLookup(vocabulary=list(cities), output_mode="one_hot")(first)
    x = dense(k, k.layers.Concatenate()([ids, second]), 48, 48, activation="elu")
    outputs = k.layers.Dense(3, activation="softmax", name="y")(x)
    tensors = import_strings(g)
    fitted_values = fitted(
        k, k.Model([first, second], outputs), [tensors, a], b, CROSSENTROPY, epochs=12
    )
    return judged(fitted_values, {"city": h, "budget": c}, {"y": d}, "accuracy")


def import_strings(words: Any) -> Any:
    """Return words as a tensor, because Keras 3 has no NumPy dtype for strings."""
    import tensorflow as tf

    return tf.constant(words)


@model
def sparse_counts(k: Any) -> Task:
    """Classify documents by sparse counts of 800 words."""
    words, y = tokens(105, length=30, words=800)
    counts = np.zeros((COUNT, 800), "float32")
    np.add.at(counts, (np.arange(COUNT)[:, None], words), 1)
    (a, b), (c, d) = split(counts, y)
    import tensorflow as tf

    inputs = k.Input((800,), sparse=True, name="x")
    outputs = k.layers.Dense(4, activation="softmax", name="y")(dense(k, inputs, 24))
    fitted_values = fitted(k, k.Model(inputs, outputs), tf.sparse.from_dense(a), b, CROSSENTROPY)
    return judged(fitted_values, c, d, "accuracy")


@tf_keras_model
def ragged_words(k: Any) -> Task:
    """Classify texts of different lengths; -1 pads the rows that are saved."""
    x, y = tokens(106)
    length = rng(107).integers(6, 25, COUNT)
    x = np.where(np.arange(24) < length[:, None], x, -1)
    (a, b), (c, d) = split(x.astype("int32"), y)
    import tensorflow as tf

    inputs = k.Input((None,), dtype="int32", ragged=True, name="x")
    x = k.layers.LSTM(24)(k.layers.Embedding(400, 16)(inputs))
    outputs = k.layers.Dense(4, activation="softmax", name="y")(x)
    rows = tf.RaggedTensor.from_tensor(a, padding=-1)
    fitted_values = fitted(k, k.Model(inputs, outputs), rows, b, CROSSENTROPY, epochs=8, rate=5e-3)
    return judged(fitted_values, c, d, "accuracy")


@model
def masked_words(k: Any) -> Task:
    """Classify padded texts with a mask and a GRU."""
    x, y = tokens(108)
    length = rng(109).integers(6, 25, COUNT)
    x = np.where(np.arange(24) < length[:, None], x + 1, 0)
    (a, b), (c, d) = split(x.astype("int32"), y)
    inputs = k.Input((24,), dtype="int32", name="x")
    x = k.layers.GRU(24)(k.layers.Embedding(401, 16, mask_zero=True)(inputs))
    outputs = k.layers.Dense(4, name="y")(x)
    loss = k.losses.SparseCategoricalCrossentropy(from_logits=True)
    fitted_values = fitted(k, k.Model(inputs, outputs), a, b, loss, epochs=6, rate=5e-3)
    return judged(fitted_values, c, d, "accuracy")


@model
def gestures(k: Any) -> Task:
    """Classify raw accelerations in thousandths of g, with gravity on one axis."""
    random = rng(110)
    y = random.integers(0, 6, COUNT)
    time = np.arange(40)[None, :, None]
    rate = (0.15 + 0.08 * (y % 3))[:, None, None]
    phase = random.uniform(0, 6.3, (COUNT, 1, 3))
    size = np.where(y < 3, 250, 600)[:, None, None]
    x = size * np.sin(rate * time + phase) + 220 * random.normal(size=(COUNT, 40, 3))
    (a, b), (c, d) = split((x + np.array([0, 0, 1000])).astype("float32"), y)
    inputs = k.Input((40, 3), name="x")
    x = k.layers.BatchNormalization(momentum=0.9)(inputs)
    x = k.layers.Conv1D(16, 5, strides=2, activation="gelu")(x)
    x = k.layers.GRU(16)(x)
    outputs = k.layers.Dense(6, activation="softmax", name="y")(x)
    fitted_values = fitted(k, k.Model(inputs, outputs), a, b, CROSSENTROPY, epochs=8, rate=5e-3)
    return judged(fitted_values, c, d, "accuracy")


@model
def patch_transformer(k: Any) -> Task:
    """Classify images by attention over patches."""
    x, y, _ = shapes(111)
    (a, b), (c, d) = split(x, y)
    layers = k.layers
    inputs = k.Input((16, 16, 1), name="x")
    x = layers.Reshape((16, 32))(layers.Conv2D(32, 4, strides=4)(inputs))
    x = layers.Dense(32, activation="gelu")(x)
    for _ in range(3):
        normal = layers.LayerNormalization()(x)
        x = layers.Add()([x, layers.MultiHeadAttention(4, 8)(normal, normal)])
        normal = layers.LayerNormalization()(x)
        x = layers.Add()([x, dense(k, dense(k, normal, 64, activation="gelu"), 32)])
    x = layers.Flatten()(layers.LayerNormalization()(x))
    outputs = layers.Dense(3, activation="softmax", name="y")(x)
    fitted_values = fitted(k, k.Model(inputs, outputs), a, b, CROSSENTROPY, epochs=5, rate=1e-3)
    return judged(fitted_values, c, d, "accuracy")


@model
def pointed_item(k: Any) -> Task:
    """Read the item whose key is nearest to a query, by attention with large scores."""
    random = rng(112)
    keys = random.normal(size=(COUNT, 10, 8)) + 6
    chosen = random.integers(0, 10, COUNT)
    query = keys[np.arange(COUNT), chosen][:, None] + 0.1 * random.normal(size=(COUNT, 1, 8))
    items = random.integers(0, 5, (COUNT, 10))
    (a, b, e, f), (c, d, g, h) = split(
        keys.astype("float32"),
        query.astype("float32"),
        items.astype("int32"),
        items[np.arange(COUNT), chosen],
    )
    layers = k.layers
    key, expected = k.Input((10, 8), name="keys"), k.Input((1, 8), name="query")
    item = k.Input((10,), dtype="int32", name="items")
    norms = layers.Dot(2)([expected, key])
    squares = layers.Multiply()([key, key])
    halves = layers.Permute((2, 1))(
        layers.Dense(1, use_bias=False, kernel_initializer="ones", trainable=False)(squares)
    )
    near = layers.Softmax()(
        layers.Rescaling(5.0)(layers.Subtract()([norms, layers.Rescaling(0.5)(halves)]))
    )
    read = layers.Dot((2, 1))([near, layers.Embedding(5, 8)(item)])
    outputs = layers.Dense(5, activation="softmax", name="y")(layers.Flatten()(read))
    built = k.Model([key, expected, item], outputs)
    fitted_values = fitted(k, built, [a, b, e], f, CROSSENTROPY, epochs=8, rate=1e-2)
    return judged(fitted_values, {"keys": c, "query": d, "items": g}, {"y": h}, "accuracy")


@model
def weighted_segmentation(k: Any) -> Task:
    """Classify pixels with rare classes weighted up, after a transposed convolution."""
    x, kind, mask = shapes(113)
    y = (mask[..., 0] * (1 + (kind[:, None, None] > 0))).astype("int32")
    (a, b), (c, d) = split(x, y)
    layers = k.layers
    inputs = k.Input((16, 16, 1), name="x")
    wide = layers.Conv2D(12, 3, padding="same", activation="relu")(inputs)
    x = layers.DepthwiseConv2D(5, strides=2, padding="same")(wide)
    x = layers.ReLU()(layers.BatchNormalization(momentum=0.9)(layers.Conv2D(24, 1)(x)))
    x = layers.Conv2DTranspose(12, 4, strides=2, padding="same", activation="relu")(x)
    x = layers.Concatenate()([wide, x])
    outputs = layers.Conv2D(3, 3, padding="same", activation="softmax", name="y")(x)
    built = k.Model(inputs, outputs)
    built.compile(k.optimizers.Adam(3e-3), CROSSENTROPY)
    weights = np.array([1.0, 6.0, 4.0])[b]
    built.fit(a, b, sample_weight=weights, batch_size=64, epochs=4, verbose=0)
    return judged(built, c, d, "accuracy")


@model
def growing_stream(k: Any) -> Task:
    """Add 24 blocks to a stream whose values grow from block to block."""
    (a, b), (c, d) = split(*blobs(10, 24, 1.3, 114))
    layers = k.layers
    inputs = k.Input((24,), name="x")
    x = layers.Dense(48)(inputs)
    for place in range(24):
        inner = dense(k, layers.LayerNormalization()(x), 48, activation="swish")
        x = layers.Add()([x, layers.Rescaling(1.18**place)(layers.Dense(48)(inner))])
    x = layers.LayerNormalization()(x)
    outputs = layers.Dense(10, activation="softmax", name="y")(x)
    fitted_values = fitted(k, k.Model(inputs, outputs), a, b, CROSSENTROPY, epochs=5, rate=1e-3)
    return judged(fitted_values, c, d, "accuracy")


@model
def mass_spectra(k: Any) -> Task:
    """Classify counts of a detector, up to about 100,000, that are not scaled."""
    random = rng(115)
    y = random.integers(0, 5, COUNT)
    place = np.arange(64)[None]
    peaks = random.uniform(5, 59, (5, 3))[y]
    size = random.lognormal(9.2, 0.7, (COUNT, 3))
    x = (size[..., None] * np.exp(-0.5 * (place[:, None] - peaks[..., None]) ** 2)).sum(1)
    x = random.poisson(x + 400)
    (a, b), (c, d) = split(x[..., None].astype("float32"), y)
    inputs = k.Input((64, 1), name="x")
    x = k.layers.Conv1D(12, 5, strides=2)(inputs)
    x = k.layers.ReLU()(k.layers.BatchNormalization(momentum=0.9)(x))
    outputs = k.layers.Dense(5, activation="softmax", name="y")(k.layers.Flatten()(x))
    fitted_values = fitted(k, k.Model(inputs, outputs), a, b, CROSSENTROPY, epochs=8)
    return judged(fitted_values, c, d, "accuracy")


@model
def work_shifts(k: Any) -> Task:
    """Tell the shift from seconds since 1970, which the first layer standardizes."""
    random = rng(116)
    first = 1_700_006_400
    time = first + random.uniform(0, 2 * 86_400, (COUNT, 1))
    y = ((time[:, 0] - first) % 86_400 // 28_800).astype("int32")
    (a, b), (c, d) = split(time.astype("float32"), y)
    inputs = k.Input((1,), name="x")
    scaled = k.layers.Normalization(mean=[float(time.mean())], variance=[float(time.var())])(inputs)
    knots = k.layers.Dense(128, activation="relu")(scaled)
    outputs = k.layers.Dense(3, activation="softmax", name="y")(dense(k, knots, 64))
    built = k.Model(inputs, outputs)
    built.layers[2].set_weights([np.ones((1, 128)), -np.linspace(-1.8, 1.8, 128)])
    return judged(fitted(k, built, a, b, CROSSENTROPY, epochs=15), c, d, "accuracy")


@model
def log_likelihoods(k: Any) -> Task:
    """Join small likelihoods of sensors by their logarithms."""
    random = rng(117)
    y = random.integers(0, 3, COUNT)
    logs = random.normal(-9, 3, (COUNT, 3, 6)) + 2.0 * (np.arange(3) == y[:, None])[..., None]
    x = np.exp(np.minimum(logs, -0.5)).reshape(COUNT, 18)
    (a, b), (c, d) = split(x.astype("float32"), y)
    inputs = k.Input((18,), name="x")
    floored = k.layers.Rescaling(1.0, offset=1e-9)(inputs)
    logarithms = operations(k).log(floored)
    x = dense(k, k.layers.BatchNormalization(momentum=0.9)(logarithms), 32)
    outputs = k.layers.Dense(3, activation="softmax", name="y")(x)
    fitted_values = fitted(k, k.Model(inputs, outputs), a, b, CROSSENTROPY, epochs=8)
    return judged(fitted_values, c, d, "accuracy")
