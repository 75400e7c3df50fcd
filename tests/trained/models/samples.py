"""Made-up samples that several models are trained on."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.trained.models.tasks import TESTED, TRAINED, rng


def blobs(classes: int, size: int, spread: float, seed: int) -> tuple[Any, Any]:
    """Return points around the centers of classes, and their classes."""
    random = rng(seed)
    centres = random.normal(size=(classes, size))
    y = random.integers(0, classes, TRAINED + TESTED)
    x = centres[y] + spread * random.normal(size=(len(y), size))
    return x.astype("float32"), y.astype("int32")


def shapes(seed: int, size: int = 16) -> tuple[Any, Any, Any]:
    """Return noisy images of a disc, a square or a cross, which of them it is, and its mask."""
    random = rng(seed)
    count = TRAINED + TESTED
    kind = random.integers(0, 3, count)
    place = random.uniform(4, size - 5, (2, count, 1, 1))
    radius = random.uniform(2, 4, (count, 1, 1))
    grid = np.mgrid[:size, :size][:, None]
    far = np.abs(grid - place)
    forms = [
        np.hypot(*far) <= radius,
        np.maximum(*far) <= radius,
        (np.minimum(*far) <= 1) & (np.maximum(*far) <= radius + 1),
    ]
    mask = np.choose(kind[:, None, None], forms)
    image = mask * random.uniform(0.4, 1, (count, 1, 1)) + 0.15 * random.normal(size=mask.shape)
    return (
        image[..., None].astype("float32"),
        kind.astype("int32"),
        mask[..., None].astype("float32"),
    )


def series(seed: int, length: int) -> Any:
    """Return sums of two waves with noise, as (rows, steps)."""
    random = rng(seed)
    count = TRAINED + TESTED
    time = np.arange(length)
    waves = [
        random.uniform(0.3, 1, (count, 1))
        * np.sin(time * random.uniform(0.1, 0.6, (count, 1)) + random.uniform(0, 6.3, (count, 1)))
        for _ in range(2)
    ]
    noise = 0.1 * random.normal(size=(count, length))
    return (sum(waves) + noise).astype("float32")


def tokens(seed: int, length: int = 24, words: int = 400) -> tuple[Any, Any]:
    """Return words as integers, and which of four topics a quarter of them is about."""
    random = rng(seed)
    count = TRAINED + TESTED
    y = random.integers(0, 4, count)
    is_topic = random.random((count, length)) < 0.25
    topical = y[:, None] * (words // 4) + random.integers(0, words // 4, (count, length))
    return np.where(is_topic, topical, random.integers(0, words, (count, length))).astype(
        "int32"
    ), y
