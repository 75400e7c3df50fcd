"""
Variables of classes that are not Keras' own, and of quantised layers, where and as the source has
them.

HDF5 of both libraries has them in one order, and archives of both by attributes and by numbers
(``Layer.weights`` and ``save_own_variables``); :mod:`._subclassed` says where they differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.document import Layout
from policytool.migration.convert.architecture import Role, Unit
from policytool.migration.convert.variables import _subclassed
from policytool.migration.convert.variables._holders import Stored
from policytool.releases.layer_variables import VariableSlot
from policytool.releases.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.formats.document import Tensor
    from policytool.migration.convert.rewrites import ConversionContext
    from policytool.migration.convert.variables._sources import Key

    Pool = Mapping[Key, Tensor]

_NAMES: Final = {"h5": "HDF5", "keras": "an archive (.keras)"}
_READ_OTHERWISE: Final = frozenset({"keras3.3", "keras3.6"})
"""Releases that have the variables of quantised layers in HDF5 in another order than Keras 3.15."""


def take_over(unit: Unit, pool: Pool, situation: ConversionContext) -> tuple[Stored, ...]:
    """Return a layer's variables; none where they cannot be placed, which goes to the log."""
    across = unit.custom and _subclassed.crosses(situation)
    reason = _subclassed.objection(unit, pool, situation) if across else None
    reason = reason or _objection(unit, pool, situation)
    if reason is not None:
        refuse(unit, reason, situation)
        return ()
    return _stored_variables(_subclassed.across_archives(unit, pool, situation) if across else pool)


def refuse(unit: Unit, what: str, situation: ConversionContext) -> None:
    """Tell why a layer's variables cannot be placed, where nothing else speaks against it."""
    if situation.log.is_refused(unit):
        return  # a layer that the target cannot have has no variables there
    situation.log.refuse("variables", unit, f"{unit.path} ({unit.class_name}) {what}")


def is_quantised(unit: Unit) -> bool:
    """Return whether a layer has other variables than its class otherwise has."""
    policy = unit.config.get("dtype")
    return isinstance(policy, Policy) and policy.quantization is not None


def _objection(unit: Unit, pool: Pool, situation: ConversionContext) -> str | None:
    """Return why the target would not find a layer's variables where the source has them."""
    numbered = _is_numbered(pool)
    target = situation.target
    holds_layers = unit.role is Role.MODEL or any(within for within, _ in pool)
    if pool and holds_layers and not _is_laid_out_alike(situation, numbered=numbered):
        return (
            "has variables of layers that are not in its config; save it again as "
            f"{_NAMES[target.container]} with the release that wrote it"
        )
    is_ordered = situation.loaded.document.layout is Layout.LEGACY_H5
    several = len({within for within, _ in pool}) > 1
    if target.container == "h5" and not numbered and not is_ordered and unit.custom and several:
        return (
            "has variables of several layers that are not in its config, and only HDF5 stores "
            "their order; save it again as HDF5 with the release that wrote it"
        )
    if target.container == "keras" and not numbered and len(pool) > 1:
        return (
            "has variables in an unknown order; save it again as a .keras archive with the release "
            "that wrote it"
        )
    reads_otherwise = target.loader in _READ_OTHERWISE and target.loader != situation.source_release
    if is_quantised(unit) and target.container == "h5" and reads_otherwise:
        return (
            f"is quantized, and {target.name} reads its variables from HDF5 in a different order; "
            "save it again as a .keras archive"
        )
    return None


def _is_numbered(pool: Pool) -> bool:
    return all(name.isdecimal() for _, name in pool)


def _is_laid_out_alike(situation: ConversionContext, *, numbered: bool) -> bool:
    container = situation.target.container
    if situation.crosses and situation.loaded.document.format.partition("-")[0] != container:
        return False
    return numbered == (container == "keras")


def _stored_variables(pool: Pool) -> tuple[Stored, ...]:
    numbered = _is_numbered(pool)
    found = []
    for number, ((within, name), tensor) in enumerate(pool.items()):
        slot = VariableSlot(
            name=f"variable_{name}" if numbered else name,
            scopes=within,
            within=within,
            index=int(name) if numbered else number,
            attribute=name,
            trainable=True,
            known_as=name,
        )
        found.append(Stored(slot=slot, shape=tensor.shape or (), dtype=tensor.dtype, source=tensor))
    return tuple(found)
