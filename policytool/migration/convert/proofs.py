"""
How sure it is that the layers of a model compute what they did, class by class: what
:mod:`policytool.releases.behaviour` has of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from policytool.migration.convert.architecture import Role
from policytool.migration.convert.traversal import walk
from policytool.model.tree import INPUT_CLASS
from policytool.releases import behaviour
from policytool.releases.behaviour import Proof

if TYPE_CHECKING:
    from policytool.migration.convert.architecture import Unit
    from policytool.migration.convert.rewrites import ConversionContext


def proofs(root: Unit, situation: ConversionContext) -> tuple[tuple[str, Proof], ...]:
    """
    Return for each layer class of a file, in the words of the file, how sure its conversion is;
    nothing where it stays in its library.

    :param root: the model as the file has it
    """
    if not situation.crosses:
        return ()
    found: dict[str, Proof] = {}
    for unit in walk(root):
        if unit.role is Role.LAYER and unit.class_name != INPUT_CLASS:
            proof = (
                Proof.UNTESTED
                if unit.custom or unit.site is None
                else _proof(unit.class_name, unit.site, situation)
            )
            found[unit.class_name] = (
                proof if proof is Proof.UNTESTED else found.get(unit.class_name, proof)
            )
    return tuple(sorted(found.items()))


def _proof(class_name: str, site: int, situation: ConversionContext) -> Proof:
    return behaviour.proof(class_name, situation.loaded.config(site), to_keras3=situation.to_keras3)
