"""Unknown sizes in EinsumDense layers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import once_per_network
from policytool.migration.convert.rewrites._base import ConversionContext, rewrite
from policytool.migration.convert.tensor_shapes import input_shape
from policytool.migration.convert.traversal import map_units, references
from policytool.support.steps import spend

if TYPE_CHECKING:
    from policytool.migration.convert.architecture import Network, Unit, Value

_CLASS: Final = "EinsumDense"
_FLATTEN: Final = "Flatten"
_SHAPE: Final = "output_shape"


@rewrite(
    after=("inputs",),  # has the shapes of inputs where Keras 3 has them
    applies=lambda situation: situation.crosses and situation.to_keras3,
)
def einsum(root: Unit, situation: ConversionContext) -> Unit:
    """
    Fills in unknown sizes in the ``output_shape`` of EinsumDense layers.

    Keras 2 knows them from the tensor that it computes, Keras 3 from ``output_shape`` alone
    (``compute_output_shape`` in keras/src/layers/core/einsum_dense.py), and makes no variables of a
    layer behind a Flatten of an open size. The equation says which axes of the input they are.
    """

    def change(unit: Unit) -> Unit:
        network = unit.network
        if network is None:
            return unit
        units = tuple(_close(one, network, situation) for one in network.units)
        return replace(unit, network=replace(network, units=units))

    return map_units(root, change)


def _close(unit: Unit, network: Network, situation: ConversionContext) -> Unit:
    """Return a layer with the sizes that are known; refused where a Flatten needs another."""
    given = unit.config.get(_SHAPE)
    if unit.class_name != _CLASS or unit.custom or not _is_open(given):
        return unit
    found = unit.with_config(output_shape=_sizes(unit, given, input_shape(unit, network)))
    if _is_open(found.config[_SHAPE]) and unit.name in _flattened_layers(network):
        situation.log.refuse(
            "argument",
            unit,
            f"{unit.path} ({_CLASS}) has an unknown size in output_shape, but a Flatten layer "
            f"after it requires a known size in {situation.target.name}; set the size in the "
            "source and save the model again",
        )
        return unit
    if found.config[_SHAPE] != given:
        situation.log.change("output-shape", unit, "unknown sizes in output_shape are filled in")
    return found


def _is_open(shape: Value) -> bool:
    return isinstance(shape, list) and None in shape


def _sizes(unit: Unit, given: Value, shape: Value) -> Value:
    """Return an output shape with the sizes of the axes that the input has too."""
    inputs, _, output = str(unit.config.get("equation")).replace(" ", "").partition("->")
    letters = inputs.partition(",")[0]
    if not isinstance(given, list) or not isinstance(shape, list) or len(letters) != len(shape):
        return given
    known = dict(zip(letters, shape, strict=True))
    return [
        known.get(letter) if size is None else size
        for letter, size in zip(output[1:], given, strict=False)
    ]


@once_per_network
def _flattened_layers(network: Network) -> frozenset[str]:
    """Return the names of the layers that a Flatten stands behind."""
    flattens = [unit.name for unit in network.units if unit.class_name == _FLATTEN]
    if network.is_chain:
        names = [unit.name for unit in network.units]
        return frozenset(names[: names.index(flattens[-1])]) if flattens else frozenset()
    before: set[str] = set()
    pending = flattens
    while pending:
        spend(1, walk="layers before a Flatten")
        unit = network.by_name.get(pending.pop())
        sources = {
            tensor.layer
            for call in (unit.calls if unit is not None else ())
            for tensor in references([*call.args, *call.kwargs.values()])
        }
        pending += sources - before
        before |= sources
    return frozenset(before)
