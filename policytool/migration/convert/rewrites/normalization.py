"""
Converts the axis of BatchNormalization layers: Keras 2.3 and Keras 3 store a number; TF 1.15 and
later and tf_keras store a list, which may contain several axes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.migration.convert.rewrites._base import ConversionContext, Rewrite
from policytool.migration.convert.traversal import map_units
from policytool.releases.layer_classes import layer_facts

if TYPE_CHECKING:
    from policytool.migration.convert.architecture import Unit


def _apply(root: Unit, situation: ConversionContext) -> Unit:
    return map_units(
        root,
        lambda unit: (
            _convert(unit, situation)
            if layer_facts(unit.class_name).keeps_moving_statistics and not unit.custom
            else unit
        ),
    )


def _convert(unit: Unit, situation: ConversionContext) -> Unit:
    axis = unit.config.get("axis")
    if not isinstance(axis, list):
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


REWRITE: Final = Rewrite(
    name="normalization", applies=lambda situation: situation.to_keras3, apply=_apply
)
