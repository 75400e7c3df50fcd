"""Preprocessing of numbers and images, and layers that only one library has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.random_models.steps import Step

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.random_models.drawing import Draw
    from tests.random_models.steps import Maker, Value


def _rescaling(draw: Draw, value: Value) -> Step:
    config = {"scale": draw.pick((0.5, 1 / 127.5, 2.0)), "offset": draw.pick((0.0, -1.0))}
    return Step(what="Rescaling", config=config, shape=value.shape)


def _normalization(draw: Draw, value: Value) -> Step | None:
    if value.channels is None:
        return None
    config: dict[str, Any] = {"axis": -1}
    if draw.chance(0.5):
        config["adapt"] = [size or 4 for size in value.shape]
    else:
        numbers = [draw.number_between(-1, 1) for _ in range(value.channels)]
        config |= {"mean": numbers, "variance": [abs(item) + 0.5 for item in numbers]}
    if draw.chance(0.15):
        config["invert"] = True
    return Step(what="Normalization", config=config, shape=value.shape)


def _resizing(draw: Draw, value: Value) -> Step | None:
    if value.rank != 3 or value.channels is None:
        return None
    height, width = draw.whole(3, 8), draw.whole(3, 8)
    config = {
        "height": height,
        "width": width,
        "interpolation": draw.pick(("bilinear", "nearest")),
    }
    return Step(what="Resizing", config=config, shape=(height, width, value.channels))


def _center_crop(draw: Draw, value: Value) -> Step | None:
    if value.rank != 3 or value.shape[0] is None or value.shape[1] is None:
        return None
    height, width = draw.whole(1, value.shape[0]), draw.whole(1, value.shape[1])
    return Step(
        what="CenterCrop",
        config={"height": height, "width": width},
        shape=(height, width, value.channels),
    )


_AUGMENTATIONS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("RandomFlip", {"mode": "horizontal"}),
    ("RandomRotation", {"factor": 0.1}),
    ("RandomZoom", {"height_factor": 0.2}),
    ("RandomTranslation", {"height_factor": 0.1, "width_factor": 0.2}),
    ("RandomContrast", {"factor": 0.2}),
    ("RandomBrightness", {"factor": 0.2}),
    ("RandomCrop", {"height": 3, "width": 4}),
)


def _augmentation(draw: Draw, value: Value) -> Step | None:
    if value.rank != 3 or value.channels != 3:
        return None
    what, config = draw.pick(_AUGMENTATIONS)
    if what != "RandomCrop":
        return Step(what=what, config=config, shape=value.shape)
    if any(size is None or size < 4 for size in value.shape[:2]):
        return None
    return Step(what=what, config=config, shape=(3, 4, value.channels))


def _rms_normalization(draw: Draw, value: Value) -> Step | None:
    if not draw.keras3 or value.channels is None:
        return None
    return Step(what="RMSNormalization", shape=value.shape)


def _thresholded(draw: Draw, value: Value) -> Step | None:
    return None if draw.keras3 else Step(what="ThresholdedReLU", shape=value.shape)


def _locally_connected(draw: Draw, value: Value) -> Step | None:
    if draw.keras3 or value.rank != 2 or value.shape[0] is None or value.shape[0] < 2:
        return None
    filters = draw.units()
    return Step(
        what="LocallyConnected1D",
        config={"filters": filters, "kernel_size": 2},
        shape=(value.shape[0] - 1, filters),
    )


MAKERS: Final[Mapping[str, Maker]] = {
    "Rescaling": _rescaling,
    "Normalization": _normalization,
    "Resizing": _resizing,
    "CenterCrop": _center_crop,
    "Augmentation": _augmentation,
}


def _gated(_: Draw, value: Value) -> Step | None:
    return Step(what="custom:Gated", shape=value.shape) if value.channels else None


def _block(draw: Draw, value: Value) -> Step | None:
    if not value.channels:
        return None
    units = draw.units()
    return Step(what="custom:Block", config={"units": units}, shape=(*value.shape[:-1], units))


RARE: Final[Mapping[str, Maker]] = {
    "custom:Gated": _gated,
    "custom:Block": _block,
    "RMSNormalization": _rms_normalization,
    "ThresholdedReLU": _thresholded,
    "LocallyConnected": _locally_connected,
}
