"""The shapes that a file has of what its layers get: those of inputs, and of builds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.migration.convert.traversal import references, walk
from policytool.model.tree import INPUT_CLASS

if TYPE_CHECKING:
    from policytool.migration.convert.architecture import Network, Unit, Value

_SHAPES: Final = ("batch_input_shape", "batch_shape")


def input_shape(unit: Unit, network: Network) -> Value:
    """Return the shape that a layer of a network gets; None where the file does not have it."""
    shape = (unit.build or {}).get("input_shape") or config_shape(unit)
    if shape is not None:
        return shape
    before = layer_before(unit, network)
    return config_shape(before) if before is not None and before.class_name == INPUT_CLASS else None


def config_shape(unit: Unit) -> Value:
    """Return the shape, with the batch, that a config says; None where it says none."""
    return next((unit.config[key] for key in _SHAPES if key in unit.config), None)


def says_all_sizes(root: Unit) -> bool:
    """Return whether a model, and each in it, takes inputs of one size, but for the batch."""
    shapes = [config_shape(unit) for unit in walk(root) if unit.class_name == INPUT_CLASS]
    return bool(shapes) and all(
        isinstance(shape, list) and all(isinstance(size, int) for size in shape[1:])
        for shape in shapes
    )


def layer_before(unit: Unit, network: Network) -> Unit | None:
    """Return the layer that the first call of a layer takes its first tensor of."""
    if network.is_chain:
        place = network.units.index(unit)
        return network.units[place - 1] if place else None
    given = unit.calls[0].args[:1] if unit.calls else ()
    source = next((one for argument in given for one in references(argument)), None)
    return network.unit(source.layer) if source is not None else None
