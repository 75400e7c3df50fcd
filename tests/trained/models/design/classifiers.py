"""Models that return the probabilities or scores of classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tests.trained.models.samples import blobs, series, shapes, tokens
from tests.trained.models.tasks import (
    TESTED,
    TRAINED,
    Task,
    dense,
    fitted,
    judged,
    keras3_model,
    model,
    rng,
    split,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def _classifier(k: Any, x: Any, y: Any, classes: int, *sizes: int, **fit: Any) -> Task:
    (a, b), (c, d) = split(x, y)
    inputs = k.Input(a.shape[1:], name="x")
    outputs = k.layers.Dense(classes, activation="softmax", name="y")(dense(k, inputs, *sizes))
    fitted_values = fitted(
        k, k.Model(inputs, outputs), a, b, "sparse_categorical_crossentropy", **fit
    )
    return judged(fitted_values, c, d, "accuracy")


@model
def blobs10(k: Any) -> Task:
    """Tell ten overlapping groups of points apart."""
    return _classifier(k, *blobs(10, 20, 1.6, 1), 10, 64, 64)


@model
def blobs100(k: Any) -> Task:
    """Tell a hundred overlapping groups of points apart."""
    return _classifier(k, *blobs(100, 32, 2.0, 2), 100, 128, epochs=15)


@model
def weak_signal(k: Any) -> Task:
    """Tell groups apart that noise nearly hides, so that probabilities are nearly equal."""
    x, y = blobs(5, 12, 1.0, 3)
    return _classifier(k, (x + 6 * rng(4).normal(size=x.shape)).astype("float32"), y, 5, 32)


@model
def confident(k: Any) -> Task:
    """Tell groups apart that do not overlap."""
    return _classifier(k, *blobs(6, 24, 0.6, 5), 6, 64, 64, epochs=12)


def _image_classifier(k: Any, layers: Callable[[Any], Any], seed: int) -> Task:
    x, y, _ = shapes(seed)
    (a, b), (c, d) = split(x, y)
    inputs = k.Input(a.shape[1:], name="x")
    outputs = k.layers.Dense(3, activation="softmax", name="y")(layers(inputs))
    fitted_values = fitted(k, k.Model(inputs, outputs), a, b, "sparse_categorical_crossentropy")
    return judged(fitted_values, c, d, "accuracy")


@model
def cnn(k: Any) -> Task:
    """Classify images with one convolution and batch normalization."""
    layers = k.layers
    return _image_classifier(
        k,
        lambda x: layers.Flatten()(
            layers.MaxPooling2D()(
                layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(16, 3)(x)))
            )
        ),
        6,
    )


@model
def separable_cnn(k: Any) -> Task:
    """Classify images with separable convolutions."""
    layers = k.layers

    def build(x: Any) -> Any:
        for size in (16, 32, 32):
            x = layers.SeparableConv2D(size, 3, padding="same")(x)
            x = layers.Activation("swish")(layers.BatchNormalization()(x))
        return layers.GlobalAveragePooling2D()(x)

    return _image_classifier(k, build, 7)


@model
def deep_residual(k: Any) -> Task:
    """Classify images with twelve residual blocks without normalization."""
    layers = k.layers

    def build(x: Any) -> Any:
        x = layers.Conv2D(16, 3, padding="same")(x)
        for _ in range(12):
            inner = layers.Conv2D(16, 3, padding="same", activation="relu")(x)
            x = layers.Add()([x, layers.Conv2D(16, 3, padding="same")(inner)])
        return layers.GlobalAveragePooling2D()(x)

    return _image_classifier(k, build, 8)


@model
def text(k: Any) -> Task:
    """Classify texts by the mean of embeddings."""
    (a, b), (c, d) = split(*tokens(9))
    inputs = k.Input((24,), dtype="int32", name="x")
    x = k.layers.GlobalAveragePooling1D()(k.layers.Embedding(400, 16)(inputs))
    outputs = k.layers.Dense(4, activation="softmax", name="y")(dense(k, x, 16))
    fitted_values = fitted(k, k.Model(inputs, outputs), a, b, "sparse_categorical_crossentropy")
    return judged(fitted_values, c, d, "accuracy")


@model
def transformer(k: Any) -> Task:
    """Classify texts by two blocks of attention; the scores have no softmax."""
    (a, b), (c, d) = split(*tokens(10))
    layers = k.layers
    inputs = k.Input((24,), dtype="int32", name="x")
    x = layers.Embedding(400, 32)(inputs)
    for _ in range(2):
        x = layers.LayerNormalization()(layers.Add()([x, layers.MultiHeadAttention(4, 8)(x, x)]))
        x = layers.LayerNormalization()(layers.Add()([x, dense(k, dense(k, x, 64), 32)]))
    x = layers.GlobalAveragePooling1D()(x)
    outputs = layers.Dense(4, name="y")(x)
    loss = k.losses.SparseCategoricalCrossentropy(from_logits=True)
    fitted_values = fitted(k, k.Model(inputs, outputs), a, b, loss, epochs=4)
    return judged(fitted_values, c, d, "accuracy")


@model
def lstm(k: Any) -> Task:
    """Classify series by the last state of an LSTM."""
    x = series(11, 20)
    y = (x[:, 10:].mean(1) > x[:, :10].mean(1)).astype("int32") + (x.std(1) > 0.7)
    (a, b), (c, d) = split(x[..., None], y.astype("int32"))
    inputs = k.Input((20, 1), name="x")
    outputs = k.layers.Dense(3, activation="softmax", name="y")(k.layers.LSTM(24)(inputs))
    fitted_values = fitted(
        k, k.Model(inputs, outputs), a, b, "sparse_categorical_crossentropy", epochs=5
    )
    return judged(fitted_values, c, d, "accuracy")


@model
def tagger(k: Any) -> Task:
    """Classify each word of a text."""
    x, _ = tokens(12, length=16, words=100)
    y = (x // 25 + np.roll(x, 1, 1) % 2) % 4
    (a, b), (c, d) = split(x, y.astype("int32"))
    inputs = k.Input((16,), dtype="int32", name="x")
    x = k.layers.Bidirectional(k.layers.GRU(24, return_sequences=True))(
        k.layers.Embedding(100, 16)(inputs)
    )
    outputs = k.layers.Dense(4, activation="softmax", name="y")(x)
    fitted_values = fitted(
        k, k.Model(inputs, outputs), a, b, "sparse_categorical_crossentropy", epochs=5
    )
    return judged(fitted_values, c, d, "accuracy")


@model
def segmentation(k: Any) -> Task:
    """Classify each pixel of an image."""
    x, kind, mask = shapes(13)
    y = (mask[..., 0] * (kind[:, None, None] + 1)).astype("int32")
    (a, b), (c, d) = split(x, y)
    inputs = k.Input(a.shape[1:], name="x")
    x = inputs
    for size in (16, 16, 16):
        x = k.layers.Conv2D(size, 5, padding="same", activation="relu")(x)
    outputs = k.layers.Conv2D(4, 1, activation="softmax", name="y")(x)
    fitted_values = fitted(
        k, k.Model(inputs, outputs), a, b, "sparse_categorical_crossentropy", epochs=4
    )
    return judged(fitted_values, c, d, "accuracy")


def _raw(seed: int) -> tuple[Any, Any]:
    """Return features as sensors give them, one of which is a time of the day in seconds."""
    random = rng(seed)
    count = TRAINED + TESTED
    time = random.uniform(0, 86_040, (count, 1))
    rest = random.normal(size=(count, 7)) * [1, 10, 100, 0.01, 5, 900, 0.3] + [
        *(0, 60, 800, 0.02, 20, 1013, 1)
    ]
    scaled = (rest - rest.mean(0)) / rest.std(0)
    score = scaled @ random.normal(size=7) + 2 * np.sin(time[:, 0] / 13_700)
    y = np.digitize(score + 0.5 * random.normal(size=count), [-2, 0, 2])
    return np.concatenate([time, rest], 1).astype("float32"), y.astype("int32")


@model
def raw_features(k: Any) -> Task:
    """Classify features of different sizes, which batch normalization standardizes."""
    (a, b), (c, d) = split(*_raw(14))
    inputs = k.Input((8,), name="x")
    x = dense(k, k.layers.BatchNormalization(momentum=0.9)(inputs), 64, 64)
    outputs = k.layers.Dense(4, activation="softmax", name="y")(x)
    fitted_values = fitted(
        k, k.Model(inputs, outputs), a, b, "sparse_categorical_crossentropy", epochs=10
    )
    return judged(fitted_values, c, d, "accuracy")


@model
def normalised_features(k: Any) -> Task:
    """Classify features of different sizes, which Normalization standardizes."""
    (a, b), (c, d) = split(*_raw(15))
    inputs = k.Input((8,), name="x")
    normal = k.layers.Normalization()
    normal.adapt(a)
    outputs = k.layers.Dense(4, activation="softmax", name="y")(dense(k, normal(inputs), 64, 64))
    fitted_values = fitted(
        k, k.Model(inputs, outputs), a, b, "sparse_categorical_crossentropy", epochs=10
    )
    return judged(fitted_values, c, d, "accuracy")


@model
def sharp_scores(k: Any) -> Task:
    """Classify by large scores: a temperature of 1/30."""
    x, y = blobs(20, 16, 1.5, 16)
    (a, b), (c, d) = split(x, y)
    inputs = k.Input((16,), name="x")
    x = k.layers.Dense(20)(dense(k, inputs, 64))
    outputs = k.layers.Softmax(name="y")(k.layers.Rescaling(30.0)(x))
    fitted_values = fitted(
        k, k.Model(inputs, outputs), a, b, "sparse_categorical_crossentropy", rate=3e-4, epochs=15
    )
    return judged(fitted_values, c, d, "accuracy")


@model
def random_weights(k: Any) -> Task:
    """Return nearly equal classes, of a model that was not trained."""
    x, y = blobs(50, 16, 1.0, 73)
    inputs = k.Input((16,), name="x")
    outputs = k.layers.Dense(50, activation="softmax", name="y")(dense(k, inputs, 64, 64, 64))
    result = k.Model(inputs, outputs)
    result.compile("adam", "sparse_categorical_crossentropy")
    return judged(result, x[TRAINED:], y[TRAINED:], "accuracy")


@keras3_model
def quantised(k: Any) -> Task:
    """Classify with weights of eight bits."""
    task = blobs10(k)
    task.model.quantize("int8")
    return task


@keras3_model
def group_normalised(k: Any) -> Task:
    """Classify images with group normalization."""
    layers = k.layers

    def build(x: Any) -> Any:
        for size in (16, 32):
            x = layers.Conv2D(size, 3, strides=2, padding="same")(x)
            x = layers.Activation("gelu")(layers.GroupNormalization(4)(x))
        return layers.GlobalMaxPooling2D()(x)

    return _image_classifier(k, build, 74)
