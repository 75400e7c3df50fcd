"""The names of initializers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import ObjectKind, Thing, Unit
from policytool.migration.convert.rewrites._base import ConversionContext, rewrite
from policytool.migration.convert.traversal import map_units
from policytool.releases import known_arguments

if TYPE_CHECKING:
    from policytool.migration.convert.architecture import Value
    from policytool.migration.convert.target import Target

_PAIRS: Final = (("Orthogonal", "OrthogonalInitializer"), ("Identity", "IdentityInitializer"))
_OTHERS: Final = {one: other for pair in _PAIRS for one, other in (pair, pair[::-1])}


@rewrite(
    after=("keras1", "keras2"),  # judges the initialisers that these make
    applies=lambda situation: True,  # noqa: ARG005  # releases of Keras 3 differ too
)
def initializers(root: Unit, situation: ConversionContext) -> Unit:
    """
    Converts initializers whose names differ: Keras 3.0 to 3.6 use the names OrthogonalInitializer
    and IdentityInitializer for Orthogonal and Identity.
    """

    def change(unit: Unit) -> Unit:
        if unit.custom:
            return unit
        return replace(
            unit,
            config={key: _value(value, situation.target) for key, value in unit.config.items()},
        )

    return map_units(root, change)


def _value(value: Value, target: Target) -> Value:
    """Return an initialiser by the name that the target knows; anything else as it is."""
    if (
        not isinstance(value, Thing)
        or value.kind is not ObjectKind.INITIALIZER
        or value.package is not None
    ):
        return value
    other = _OTHERS.get(value.class_name)
    if other is None or not _is_missing(value.class_name, target) or _is_missing(other, target):
        return value
    return replace(value, class_name=other)


def _is_missing(class_name: str, target: Target) -> bool:
    if not known_arguments.is_known(ObjectKind.INITIALIZER, class_name):
        return True
    found = known_arguments.objection(
        target.loader, ObjectKind.INITIALIZER, class_name, {}, module=target.says_modules
    )
    return found is not None and found.missing
