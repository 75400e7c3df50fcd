"""Models that return images, masks and maps."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.trained.models.samples import shapes
from tests.trained.models.tasks import TESTED, TRAINED, Task, fitted, judged, model, rng, split

COUNT = TRAINED + TESTED


def _smooth(image: Any) -> Any:
    """Return images with each pixel averaged with its neighbors."""
    for axis in (1, 2):
        image = (np.roll(image, 1, axis) + 2 * image + np.roll(image, -1, axis)) / 4
    return image


@model
def super_resolution(k: Any) -> Task:
    """Double the size of images with values up to 255, by transposed convolutions."""
    _, _, clean = shapes(401)
    x = np.clip(_smooth(clean) * 200 + 30 + 5 * rng(402).normal(size=clean.shape), 0, 255)
    (a, b), (c, d) = split(x[:, ::2, ::2].astype("float32"), x.astype("float32"))
    layers = k.layers
    inputs = k.Input((8, 8, 1), name="x")
    x = layers.Rescaling(1 / 255)(inputs)
    x = layers.Conv2D(24, 3, padding="same", activation="swish")(x)
    x = layers.Conv2DTranspose(24, 4, strides=2, padding="same", activation="swish")(x)
    x = layers.Conv2D(1, 3, padding="same")(x)
    outputs = layers.Rescaling(255.0, name="y")(x)
    return judged(fitted(k, k.Model(inputs, outputs), a, b, "mae", epochs=3), c, d, "psnr")


@model
def depth_map(k: Any) -> Task:
    """Return distances in meters, from the sizes of objects."""
    _, _, mask = shapes(403)
    far = rng(404).uniform(2, 30, (COUNT, 1, 1, 1))
    x = mask / np.sqrt(far) + 0.05 * rng(405).normal(size=mask.shape)
    y = np.where(mask > 0, far, 40.0)
    (a, b), (c, d) = split(x.astype("float32"), y.astype("float32"))
    layers = k.layers
    inputs = k.Input((16, 16, 1), name="x")
    x = layers.Conv2D(16, 3, padding="same", activation="relu")(inputs)
    x = layers.DepthwiseConv2D(5, padding="same")(x)
    x = layers.Conv2D(16, 1, activation="relu")(layers.BatchNormalization(momentum=0.9)(x))
    outputs = layers.Conv2D(1, 3, padding="same", activation="softplus", name="y")(x)
    fitted_values = fitted(k, k.Model(inputs, outputs), a, b, "mae", epochs=5, rate=1e-2)
    return judged(fitted_values, c, d, "mae")


@model
def stars(k: Any) -> Task:
    """Return a mask of objects of one to four pixels."""
    random = rng(406)
    mask = np.zeros((COUNT, 20, 20, 1), "float32")
    for _ in range(3):
        row, column = random.integers(0, 19, (2, COUNT))
        is_large = random.random(COUNT) < 0.4
        mask[np.arange(COUNT), row, column] = 1
        mask[np.arange(COUNT)[is_large], row[is_large] + 1, column[is_large]] = 1
    x = mask * random.uniform(0.5, 1.5, (COUNT, 1, 1, 1)) + 0.25 * random.normal(size=mask.shape)
    (a, b), (c, d) = split(x.astype("float32"), mask)
    inputs = k.Input((20, 20, 1), name="x")
    x = k.layers.Conv2D(12, 3, padding="same", activation="relu")(inputs)
    x = k.layers.Conv2D(12, 3, padding="same", activation="relu")(x)
    outputs = k.layers.Conv2D(1, 1, activation="sigmoid", name="y")(x)
    fitted_values = fitted(
        k, k.Model(inputs, outputs), a, b, "binary_crossentropy", epochs=4, rate=1e-2
    )
    return judged(fitted_values, c, d, "iou")


@model
def key_points(k: Any) -> Task:
    """Return a heat map for each of two points."""
    random = rng(407)
    place = random.uniform(2, 13, (COUNT, 2, 2))
    grid = np.arange(16)
    near = [(grid - place[:, :, axis, None]) ** 2 for axis in (0, 1)]
    maps = np.exp(-(near[0][..., None] + near[1][:, :, None]) / 4).transpose(0, 2, 3, 1)
    x = maps @ np.array([[1.0, 0.3], [0.3, 1.0]]) + 0.1 * random.normal(size=maps.shape)
    (a, b), (c, d) = split(x.astype("float32"), maps.astype("float32"))
    inputs = k.Input((16, 16, 2), name="x")
    x = k.layers.Conv2D(16, 5, padding="same", activation="relu")(inputs)
    x = k.layers.Conv2D(16, 5, padding="same", activation="relu")(x)
    outputs = k.layers.Conv2D(2, 1, activation="sigmoid", name="y")(x)
    fitted_values = fitted(k, k.Model(inputs, outputs), a, b, "binary_crossentropy", epochs=3)
    return judged(fitted_values, c, d, "peak")


@model
def group_autoencoder(k: Any) -> Task:
    """Restore images from 24 numbers, with group normalization."""
    _, _, clean = shapes(408)
    x = _smooth(clean).astype("float32")
    layers = k.layers
    inputs = k.Input((16, 16, 1), name="x")
    x1 = layers.Conv2D(16, 3, strides=2, padding="same")(inputs)
    x1 = layers.Activation("swish")(layers.GroupNormalization(4)(x1))
    code = layers.Dense(24)(layers.Flatten()(layers.Conv2D(16, 3, strides=2, padding="same")(x1)))
    x2 = layers.Reshape((4, 4, 16))(layers.Dense(256, activation="swish")(code))
    for size in (16, 8):
        x2 = layers.Conv2DTranspose(size, 4, strides=2, padding="same")(x2)
        x2 = layers.Activation("swish")(layers.GroupNormalization(4)(x2))
    outputs = layers.Conv2D(1, 3, padding="same", name="y")(x2)
    fitted_values = fitted(k, k.Model(inputs, outputs), x[:TRAINED], x[:TRAINED], "mse", epochs=5)
    return judged(fitted_values, x[TRAINED:], x[TRAINED:], "psnr")


@model
def local_contrast(k: Any) -> Task:
    """Return the variance around each pixel: a mean of squares less the square of the mean."""
    x, _, _ = shapes(409)
    x = 150 + 20 * x
    mean = _smooth(x)
    y = np.sqrt(np.maximum(_smooth(x * x) - mean * mean, 0))
    (a, b), (c, d) = split(x.astype("float32"), y.astype("float32"))
    layers = k.layers
    inputs = k.Input((16, 16, 1), name="x")
    pool = layers.AveragePooling2D(3, strides=1, padding="same")
    mean, squares = pool(inputs), pool(layers.Multiply()([inputs, inputs]))
    variance = layers.Subtract()([squares, layers.Multiply()([mean, mean])])
    x = layers.Conv2D(16, 3, padding="same", activation="relu")(layers.Rescaling(0.05)(variance))
    outputs = layers.Conv2D(1, 1, name="y")(x)
    fitted_values = fitted(k, k.Model(inputs, outputs), a, b, "mae", epochs=4)
    return judged(fitted_values, c, d, "psnr")


@model
def change_map(k: Any) -> Task:
    """Mask what changed between two photographs of a bright scene."""
    random = rng(410)
    _, _, mask = shapes(411)
    scene = 2000 + 400 * random.normal(size=mask.shape)
    later = scene + 6 * mask + random.normal(size=mask.shape)
    (a, b, e), (c, d, f) = split(scene.astype("float32"), later.astype("float32"), mask)
    first, second = k.Input((16, 16, 1), name="before"), k.Input((16, 16, 1), name="after")
    x = k.layers.Rescaling(0.2)(k.layers.Subtract()([second, first]))
    x = k.layers.Conv2D(12, 3, padding="same", activation="relu")(x)
    outputs = k.layers.Conv2D(1, 3, padding="same", activation="sigmoid", name="y")(x)
    built = k.Model([first, second], outputs)
    fitted_values = fitted(k, built, [a, b], e, "binary_crossentropy", epochs=4)
    return judged(fitted_values, {"before": c, "after": d}, {"y": f}, "iou")
