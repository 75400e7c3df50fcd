"""The casts that Keras 3.5 to 3.9 write into graphs, which layers do by themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from policytool.migration.convert.architecture import Role, replace_references, used_layers
from policytool.model.calls import Call, Reference
from policytool.model.tree import INPUT_CLASS
from policytool.releases import dtypes as names_of_dtypes
from policytool.releases.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.migration.convert.architecture import Network, Unit
    from policytool.migration.convert.tensor_dtypes import TensorDtypes
    from policytool.model.calls import Argument

CAST = "Cast"


def drop_casts(
    network: Network, dtypes: TensorDtypes, *, first_alone: bool
) -> tuple[Network, tuple[Unit, ...]]:
    """
    Return the network without the casts that the layers behind them do, and those casts.

    :param first_alone: whether layers cast their first argument alone, as Keras 2 does
    """
    casts = {
        unit.name: unit
        for unit in network.units
        if unit.role is Role.OPERATION and unit.class_name == CAST and len(unit.calls) == 1
    }
    floats = {
        name: unit
        for name, unit in casts.items()
        if _source(unit) is not None and dtypes.of(_source(unit)) in names_of_dtypes.FLOATS
    }
    units = tuple(_rewire(unit, floats, first_alone=first_alone) for unit in network.units)
    used = used_layers(replace(network, units=units))
    gone = tuple(unit for name, unit in floats.items() if name not in used)
    names = {unit.name for unit in gone}
    return replace(network, units=tuple(unit for unit in units if unit.name not in names)), gone


def _source(unit: Unit) -> Argument:
    arguments = (*unit.calls[0].args, *unit.calls[0].kwargs.values())
    return arguments[0] if arguments and isinstance(arguments[0], Reference) else None


def _rewire(unit: Unit, casts: Mapping[str, Unit], *, first_alone: bool) -> Unit:
    policy = unit.config.get("dtype")
    if (
        unit.role is not Role.LAYER
        or unit.class_name == INPUT_CLASS
        or not isinstance(policy, Policy)
    ):
        return unit

    def change(reference: Reference) -> Argument:
        cast = casts.get(reference.layer)
        return (
            _source(cast)
            if cast is not None and cast.config.get("dtype") == policy.compute_dtype
            else reference
        )

    calls = tuple(
        Call(
            args=tuple(
                replace_references(item, change) if number == 0 or not first_alone else item
                for number, item in enumerate(call.args)
            ),
            kwargs={
                key: item if first_alone else replace_references(item, change)
                for key, item in call.kwargs.items()
            },
        )
        for call in unit.calls
    )
    return replace(unit, calls=calls)
