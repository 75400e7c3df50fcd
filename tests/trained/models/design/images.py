"""Models that return images and masks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tests.trained.models.samples import shapes
from tests.trained.models.tasks import Task, dense, fitted, judged, model, rng, split

if TYPE_CHECKING:
    from collections.abc import Callable


def _image_to_image(
    k: Any, x: Any, y: Any, build: Callable[[Any], Any], *, loss: str, metric: str
) -> Task:
    (a, b), (c, d) = split(x, y)
    inputs = k.Input(a.shape[1:], name="x")
    fitted_values = fitted(k, k.Model(inputs, build(inputs)), a, b, loss, epochs=4)
    return judged(fitted_values, c, d, metric)


@model
def denoising(k: Any) -> Task:
    """Remove noise from images."""
    x, _, clean = shapes(60)

    def build(x: Any) -> Any:
        for _ in range(3):
            x = k.layers.Conv2D(16, 3, padding="same", activation="relu")(x)
        return k.layers.Conv2D(1, 3, padding="same", name="y")(x)

    return _image_to_image(k, x, clean, build, loss="mse", metric="psnr")


@model
def upscaling(k: Any) -> Task:
    """Double the size of images."""
    x, _, _ = shapes(61)

    def build(x: Any) -> Any:
        x = k.layers.Conv2D(32, 3, padding="same", activation="relu")(x)
        x = k.layers.UpSampling2D(interpolation="bilinear")(x)
        return k.layers.Conv2D(1, 3, padding="same", name="y")(x)

    return _image_to_image(k, x[:, ::2, ::2], x, build, loss="mae", metric="psnr")


@model
def reconstruction(k: Any) -> Task:
    """Restore images from 32 numbers."""
    x = np.clip(shapes(62)[0], 0, 1)

    def build(x: Any) -> Any:
        x = k.layers.Dense(32)(k.layers.Flatten()(x))
        x = k.layers.Dense(256, activation="sigmoid")(dense(k, x, 128))
        return k.layers.Reshape((16, 16, 1), name="y")(x)

    return _image_to_image(k, x, x, build, loss="mse", metric="psnr")


@model
def mask(k: Any) -> Task:
    """Return the mask of an object."""
    x, _, y = shapes(63)

    def build(x: Any) -> Any:
        wide = k.layers.Conv2D(16, 3, padding="same", activation="relu")(x)
        low = k.layers.Conv2D(16, 3, padding="same", activation="relu")(
            k.layers.MaxPooling2D()(wide)
        )
        x = k.layers.Concatenate()([wide, k.layers.UpSampling2D()(low)])
        return k.layers.Conv2D(1, 3, padding="same", activation="sigmoid", name="y")(x)

    return _image_to_image(k, x, y, build, loss="binary_crossentropy", metric="iou")


@model
def faint_mask(k: Any) -> Task:
    """Return the mask of noisy images, of which many pixels are near 0.5."""
    x, _, y = shapes(64)
    x = (x + 0.8 * rng(65).normal(size=x.shape)).astype("float32")

    def build(x: Any) -> Any:
        for _ in range(2):
            x = k.layers.Conv2D(12, 5, padding="same", activation="relu")(x)
        return k.layers.Conv2D(1, 1, activation="sigmoid", name="y")(x)

    return _image_to_image(k, x, y, build, loss="binary_crossentropy", metric="iou")
