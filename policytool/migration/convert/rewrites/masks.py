"""
Masks, which Keras 3 writes as ops: an Embedding or a Masking makes them in the graph, and each
layer that takes them is called with ``mask``.

In Keras 2 they travel with the tensors (``_keras_mask``): ops and arguments that say no more than
that are left out. keras/src/layers/core/embedding.py and masking.py (``compute_mask``),
keras/src/layers/layer.py (``_set_mask_metadata``, and ``__call__`` where arguments end in
``mask``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import Call, Network, Reference, Role, Unit
from policytool.migration.convert.rewrites._base import ConversionContext, Rewrite
from policytool.migration.convert.traversal import map_units, references

if TYPE_CHECKING:
    from policytool.migration.convert.architecture import Argument

_MASKS: Final = ("mask", "query_mask", "value_mask", "key_mask")
_CAST: Final = "Cast"
_COPY: Final = "ConvertToTensor"
"""
What the Attention layers of Keras 3 make of a mask before they hand it on (``compute_mask`` in
keras/src/layers/attention/attention.py).
"""

_OPS: Final = frozenset({"NotEqual", "Any", _COPY})


def _apply(root: Unit, situation: ConversionContext) -> Unit:
    def change(unit: Unit) -> Unit:
        if unit.network is None or unit.network.is_chain:
            return unit
        return replace(unit, network=_without(unit.network, situation))

    return map_units(root, change)


def _without(network: Network, situation: ConversionContext) -> Network:
    made = {unit.name for unit in network.units if _is_mask(unit, network)}
    if not made:
        return network
    units = []
    for unit in network.units:
        calls = (
            tuple(_call(call, made) for call in unit.calls) if unit.name not in made else unit.calls
        )
        if calls != unit.calls:
            situation.log.change(
                "mask",
                unit,
                "its mask is no argument any more: Keras 2 has it travel with the tensor",
            )
        units.append(replace(unit, calls=calls))
    casts = {
        one.name for one in network.units if one.class_name == _CAST and one.role is Role.OPERATION
    }
    return _prune(replace(network, units=tuple(units)), made | casts)


def _call(call: Call, made: set[str]) -> Call:
    return Call(
        args=call.args,
        kwargs={
            key: value
            for key, value in call.kwargs.items()
            if not (key in _MASKS and _is_made(value, made))
        },
    )


def _is_made(value: Argument, made: set[str]) -> bool:
    found = list(references(value))
    return bool(found) and all(reference.layer in made for reference in found)


def _is_mask(unit: Unit, network: Network) -> bool:
    """Return whether an op makes the mask of an Embedding or a Masking of the same input."""
    if unit.role is not Role.OPERATION or unit.class_name not in _OPS or len(unit.calls) != 1:
        return False
    args = unit.calls[0].args
    if not args or not isinstance(args[0], Reference):
        return False
    tensor = args[0]
    if unit.class_name in {"Any", _COPY}:
        below = next((one for one in network.units if one.name == tensor.layer), None)
        return (
            below is not None
            and (below.class_name == "NotEqual" or unit.class_name == _COPY)
            and _is_mask(below, network)
        )
    compared = args[1] if len(args) > 1 else None
    source = _before_cast(tensor, network)
    return any(_masks(one, source, compared) for one in network.units)


def _before_cast(tensor: Reference, network: Network) -> Reference:
    """
    Return what a tensor was before Keras 3 cast it to a layer's compute dtype, which both libraries
    do before they compare.
    """
    unit = next((one for one in network.units if one.name == tensor.layer), None)
    if (
        unit is None
        or unit.role is not Role.OPERATION
        or unit.class_name != _CAST
        or len(unit.calls) != 1
        or not unit.calls[0].args
    ):
        return tensor
    source = unit.calls[0].args[0]
    return source if isinstance(source, Reference) else tensor


def _masks(unit: Unit, tensor: Reference, compared: Argument) -> bool:
    """Return whether a layer masks what is ``compared`` in a tensor."""
    if not any(call.args and call.args[0] == tensor for call in unit.calls):
        return False
    if unit.class_name == "Embedding":
        return unit.config.get("mask_zero") is True and compared == 0
    return unit.class_name == "Masking" and compared == unit.config.get("mask_value", 0.0)


def _prune(network: Network, ops: set[str]) -> Network:
    """Return a network without those of some ops that nothing takes any more."""
    while True:
        used = {
            reference.layer
            for unit in network.units
            for call in unit.calls
            for item in (*call.args, *call.kwargs.values())
            for reference in references(item)
        }
        used |= {reference.layer for reference in references(network.outputs)}
        units = tuple(unit for unit in network.units if unit.name in used or unit.name not in ops)
        if len(units) == len(network.units):
            return network
        network = replace(network, units=units)


REWRITE: Final = Rewrite(
    name="masks",
    applies=lambda situation: situation.from_keras3 and not situation.to_keras3,
    apply=_apply,
)
