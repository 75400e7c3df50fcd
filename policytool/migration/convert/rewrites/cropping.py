"""Cropping layers that remove their entire input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.migration.convert.rewrites._base import ConversionContext, rewrite
from policytool.migration.convert.tensor_shapes import input_shape
from policytool.migration.convert.traversal import walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.migration.convert.architecture import Unit, Value

_CLASSES: Final = frozenset({"Cropping1D", "Cropping2D", "Cropping3D"})


@rewrite(
    after=("inputs",),  # has the shapes of inputs where Keras 3 has them
    applies=lambda situation: situation.crosses and situation.to_keras3,
)
def cropping(root: Unit, situation: ConversionContext) -> Unit:
    """
    Reports Cropping layers that remove their entire input: Keras 2 returns an empty tensor, but
    Keras 3 raises an error (``compute_output_shape`` in keras/src/layers/reshaping/cropping3d.py).
    """
    for model in walk(root):
        network = model.network
        for unit in network.units if network is not None else ():
            if unit.class_name not in _CLASSES or unit.custom or network is None:
                continue
            if any(size <= crop for size, crop in _axes(unit, input_shape(unit, network))):
                situation.log.refuse(
                    "argument",
                    unit,
                    f"{unit.path} ({unit.class_name}) removes its entire input, which "
                    f"{situation.target.name} does not support",
                )
    return root


def _axes(unit: Unit, shape: Value) -> Iterator[tuple[int, int]]:
    """Yield the size of each axis that is known, and how much of it is cropped."""
    crops = unit.config.get("cropping")
    rows = [crops] if unit.class_name == "Cropping1D" else crops
    if not isinstance(shape, list) or not isinstance(rows, list):
        return
    sizes = shape[2:] if unit.config.get("data_format") == "channels_first" else shape[1:]
    for size, row in zip(sizes, rows, strict=False):
        if isinstance(size, int) and isinstance(row, list):
            yield size, sum(item for item in row if isinstance(item, int))
