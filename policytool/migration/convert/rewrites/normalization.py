"""The axis of BatchNormalization layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policytool.migration.convert.rewrites._base import ConversionContext, layer_rewrite
from policytool.releases.layer_classes import layer_facts

if TYPE_CHECKING:
    from policytool.migration.convert.architecture import Unit


@layer_rewrite(
    applies=lambda situation: situation.to_keras3,
)
def normalization(unit: Unit, situation: ConversionContext) -> Unit:
    """
    Converts the axis of BatchNormalization layers: Keras 2.3 and Keras 3 store a number; TF 1.15
    and later and tf_keras store a list, which may contain several axes.
    """
    axis = unit.config.get("axis")
    if not isinstance(axis, list) or not layer_facts(unit.class_name).keeps_moving_statistics:
        return unit
    if len(axis) == 1:
        situation.log.change(
            "axis", unit, "axis becomes a number instead of a list with one element"
        )
        return unit.with_config(axis=axis[0])
    situation.log.refuse(
        "argument",
        unit,
        f"{unit.path} ({unit.class_name}) has axis {axis}, but "
        f"{situation.target.name} normalizes along only one axis",
    )
    return unit
