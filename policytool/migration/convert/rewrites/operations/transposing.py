"""
Products of transposed matrices, which Keras 2 computes with a flag of ``tf.linalg.matmul``, and
Keras 3 with a ``Swapaxes`` before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import prune
from policytool.model.calls import Call, Reference

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.migration.convert.architecture import Network, Unit

_SWAP: Final = "Swapaxes"
_FLAGS: Final = ("transpose_a", "transpose_b")


def fold_swaps(network: Network) -> tuple[Network, dict[str, Mapping[str, bool]]]:
    """
    Return a network of Keras 3 whose products take the matrices before they are transposed, and by
    the name of such a product which of them are.
    """
    sources = {unit.name: _source_of_swap(unit) for unit in network.units}
    flags: dict[str, Mapping[str, bool]] = {}
    units = []
    for unit in network.units:
        swapped = [
            sources.get(one.layer) if isinstance(one, Reference) else None
            for one in (unit.calls[0].args if _is_product(unit) else ())
        ]
        if any(swapped):
            flags[unit.name] = {
                flag: True for flag, source in zip(_FLAGS, swapped, strict=True) if source
            }
            call = unit.calls[0]
            args = tuple(new or old for new, old in zip(swapped, call.args, strict=True))
            unit = replace(unit, calls=(replace(call, args=args),))  # noqa: PLW2901  # as it is now
        units.append(unit)
    found = replace(network, units=tuple(units))
    return (prune(found, lambda one: one.class_name == _SWAP) if flags else network), flags


def with_flags(unit: Unit, flags: Mapping[str, bool]) -> Unit:
    """Return the layer of a product in Keras 2 with the flags of its matrices."""
    calls = tuple(Call(args=call.args, kwargs={**call.kwargs, **flags}) for call in unit.calls)
    return replace(unit, calls=calls)


def _is_product(unit: Unit) -> bool:
    return (
        unit.class_name == "Matmul"
        and not unit.custom
        and len(unit.calls) == 1
        and len(unit.calls[0].args) == len(_FLAGS)
    )


def _source_of_swap(unit: Unit) -> Reference | None:
    """Return what an operation swaps the last two axes of; None for any other unit."""
    if unit.class_name != _SWAP or unit.custom or len(unit.calls) != 1:
        return None
    axes = {unit.config.get("axis1"), unit.config.get("axis2")}
    source = next(iter(unit.calls[0].args), None)
    return source if axes == {-1, -2} and isinstance(source, Reference) else None
