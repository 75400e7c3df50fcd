"""The build shapes of layers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import Role, Unit
from policytool.migration.convert.rewrites._base import ConversionContext, rewrite
from policytool.migration.convert.traversal import map_units

if TYPE_CHECKING:
    from policytool.migration.convert.architecture import Value

_SHAPE: Final = "input_shape"


@rewrite(
    after=(
        "attention",
        "cropping",
        "directions",
        "einsum",
    ),  # which take shapes from what is dropped here
    applies=lambda situation: situation.crosses,
)
def builds(root: Unit, situation: ConversionContext) -> Unit:  # noqa: ARG001  # the signature of every rewrite
    """
    Omits the build shapes of layers, because each library has its own format for them and builds
    layers when it calls them.
    """
    return map_units(root, _convert)


def _convert(unit: Unit) -> Unit:
    if unit.build is None:
        return unit
    shape: Value = unit.build.get(_SHAPE)
    chain = unit.role is Role.MODEL and unit.network is not None and unit.network.is_chain
    subclassed = unit.site == 0 and unit.network is None
    return replace(
        unit, build={_SHAPE: shape} if (chain or subclassed) and shape is not None else None
    )
