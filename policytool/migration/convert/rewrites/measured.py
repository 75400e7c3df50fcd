"""
Layers that were measured to compute something else once converted: none is converted into one that
does (:mod:`policytool.releases.behaviour`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.migration.convert.rewrites._base import ConversionContext, Rewrite
from policytool.migration.convert.traversal import walk
from policytool.releases import behaviour

if TYPE_CHECKING:
    from policytool.migration.convert.architecture import Unit


def _apply(root: Unit, situation: ConversionContext) -> Unit:
    loaded = situation.loaded
    told = {refusal.path for refusal in situation.log.refusals}
    for unit in walk(root):
        if unit.site is None or unit.custom or unit.network is not None or unit.path in told:
            continue
        class_name = loaded.sites[unit.site].class_name or unit.class_name
        why = behaviour.objection(
            class_name, loaded.config(unit.site), to_keras3=situation.to_keras3
        )
        if why is not None:
            situation.log.refuse(
                "behaviour",
                unit,
                f"{unit.path} ({class_name}) is not converted to {situation.target.loader}: {why}",
            )
    return root


REWRITE: Final = Rewrite(name="measured", applies=lambda situation: situation.crosses, apply=_apply)
