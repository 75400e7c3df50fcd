"""
Values of Keras 1's configs that have another shape in Keras 2: penalties, paddings, what a
Deconvolution2D says of its output.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import ObjectKind, Thing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.migration.convert.architecture import Unit, Value
    from policytool.migration.convert.rewrites._base import ConversionContext

KERNELS: Final = frozenset(
    {
        *(
            "Convolution2D",
            "AtrousConvolution2D",
            "Convolution3D",
            "Deconvolution2D",
            "SeparableConvolution2D",
            "ConvLSTM2D",
        ),
        *("MaxPooling2D", "AveragePooling2D", "MaxPooling3D", "AveragePooling3D"),
    }
)
"""Classes that slide something over an image, whose channels may stand first."""

_SEQUENCE: Final = ("left_pad", "right_pad")
_IMAGE: Final = ("top_pad", "bottom_pad", "left_pad", "right_pad")


def penalty(key: str, value: Mapping[str, Value]) -> Thing | None:
    """
    Return a regulariser or constraint of Keras 1, which stands as its name beside its arguments;
    None for one that is gone.
    """
    name = value.get("name")
    if key.endswith("_constraint"):
        kept = {
            ("max_value" if item == "m" else item): value[item] for item in value if item != "name"
        }
        found = {"MaxNorm": "MaxNorm", "NonNeg": "NonNeg", "UnitNorm": "UnitNorm"}.get(str(name))
        return (
            Thing(kind=ObjectKind.CONSTRAINT, class_name=found, config=kept)
            if found is not None
            else None
        )
    if name not in {"WeightRegularizer", "ActivityRegularizer", "L1L2Regularizer", "L1L2"}:
        return None
    return Thing(
        kind=ObjectKind.REGULARIZER,
        class_name="L1L2",
        config={"l1": value.get("l1", 0.0), "l2": value.get("l2", 0.0)},
    )


def pad_config(config: dict[str, Value], class_name: str) -> dict[str, Value]:
    """
    Return a config whose padding of an image stands as Keras 2 has it: by axis, each with its two
    sides.
    """
    padding = config.get("padding")
    if class_name == "ZeroPadding1D" and isinstance(padding, dict):
        config["padding"] = [padding.get(side, 0) for side in _SEQUENCE]
    if class_name == "ZeroPadding2D":
        sides = [padding.get(side, 0) for side in _IMAGE] if isinstance(padding, dict) else padding
        if isinstance(sides, list) and len(sides) == len(_IMAGE):
            config["padding"] = [sides[:2], sides[2:]]
    return config


def deconvolution(
    config: dict[str, Value], unit: Unit, situation: ConversionContext
) -> dict[str, Value]:
    """
    Return the config of a Conv2DTranspose that gives what a Deconvolution2D says that it gives.

    Keras 2 works the size out by itself: n steps give n * stride (``same``), or that and what a
    kernel is longer than a stride (``valid``). Another size is refused; ``output_padding``, which
    could say it, is dropped by Keras 3.0 to 3.12.
    """
    shape = config.pop("output_shape", None)
    axes = slice(2, 4) if config.get("data_format") == "channels_first" else slice(1, 3)
    sizes = shape[axes] if isinstance(shape, list) else []
    strides, kernel = config.get("strides"), config.get("kernel_size")
    fits = isinstance(strides, list) and isinstance(kernel, list) and len(sizes) == len(strides)
    for size, step, side in zip(
        sizes,
        strides if isinstance(strides, list) else (),
        kernel if isinstance(kernel, list) else (),
        strict=False,
    ):
        whole = isinstance(size, int) and isinstance(step, int) and isinstance(side, int)
        fits = (
            fits
            and whole
            and (size - (max(side - step, 0) if config.get("padding") == "valid" else 0)) % step  # type: ignore[operator]
            == 0
        )
    if not fits:
        situation.log.refuse(
            "argument",
            unit,
            f"{unit.path} (Deconvolution2D) has an output_shape that differs from the one that "
            "Conv2DTranspose computes from its input",
        )
    return config
