"""The input shapes of models."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import Network, Role, Unit
from policytool.migration.convert.rewrites._base import ConversionContext, rewrite
from policytool.migration.convert.traversal import map_units
from policytool.model.tree import INPUT_CLASS

if TYPE_CHECKING:
    from policytool.migration.convert.architecture import Value

_KERAS3: Final = "batch_shape"
_KERAS2: Final = "batch_input_shape"


@rewrite(
    after=("keras1", "keras2"),  # an input has the shape and dtype that these give a layer
    applies=lambda situation: situation.crosses or situation.to_keras3,
)
def inputs(root: Unit, situation: ConversionContext) -> Unit:
    """
    Converts the input shapes of a model: Keras 3 stores ``batch_shape`` in input layers, and Keras
    2 stores ``batch_input_shape``, which the first layer of a Sequential model may also contain.
    """

    def add_input(unit: Unit) -> Unit:
        return _with_input_layer(unit, situation) if unit.role is Role.MODEL else unit

    def change(unit: Unit) -> Unit:
        if unit.class_name == INPUT_CLASS:
            return _input(unit, situation)
        if _KERAS2 in unit.config and not unit.custom and situation.to_keras3:
            return unit.without(_KERAS2)
        return unit

    return map_units(
        map_units(root, add_input), change
    )  # a chain takes its shape from its first layer before that loses it


def _input(unit: Unit, situation: ConversionContext) -> Unit:
    here, there = (_KERAS2, _KERAS3) if situation.to_keras3 else (_KERAS3, _KERAS2)
    if here not in unit.config:
        return unit
    situation.log.change("input-shape", unit, f"{here} becomes {there}")
    return replace(
        unit, config={there if key == here else key: value for key, value in unit.config.items()}
    )


def _with_input_layer(unit: Unit, situation: ConversionContext) -> Unit:
    """
    Return a Sequential whose input's shape stands in an input layer, as every release from TF 2.2
    on writes it, and not in its first layer alone.
    """
    network = unit.network
    if (
        network is None
        or not network.is_chain
        or not network.units
        or network.units[0].class_name == INPUT_CLASS
        or not situation.to_keras3
    ):
        return unit
    first = network.units[0]
    shape = first.config.get(_KERAS2)
    if shape is None:
        return unit
    names = {member.name for member in network.units}
    name = f"{first.name}_input"
    while name in names:
        name = f"{name}_"
    config: dict[str, Value] = {_KERAS3: shape, "dtype": _dtype(first), "sparse": False}
    situation.log.change("input-shape", first, f"{_KERAS2} becomes a separate input layer")
    added = Unit(class_name=INPUT_CLASS, name=name, config=config, path=first.path)
    return replace(unit, network=Network(units=(added, first.without(_KERAS2), *network.units[1:])))


def _dtype(first: Unit) -> str:
    """
    Return the dtype of a chain's input: an Embedding takes numbers in Keras 2's floats, and its own
    policy says nothing of them.
    """
    policy = first.config.get("dtype")
    name = getattr(policy, "compute_dtype", None)
    return (
        name
        if isinstance(name, str) and not getattr(policy, "should_cast_variables", False)
        else "float32"
    )
