"""Layers that hold code, or that need TensorFlow's feature columns: nothing is executed here, so nothing is known of what they compute."""

from __future__ import annotations

from typing import Final

from policytool.conversion.architecture import Unit, walk
from policytool.conversion.rewrites._base import Rewrite, Situation

_FEATURES: Final = frozenset({"DenseFeatures", "SequenceFeatures"})


def _apply(root: Unit, situation: Situation) -> Unit:
    for unit in walk(root):
        if unit.custom:
            continue
        if unit.class_name == "Lambda":
            reason = "holds the bytecode of the Python that wrote it, or the name of a function, which the other library reads otherwise"
            situation.log.refuse("lambda", unit, f"{unit.path} (Lambda) {reason}: replace it by layers in the source and save again")
        elif unit.class_name in _FEATURES and situation.to_keras3:
            situation.log.refuse("class", unit, f"{unit.path} ({unit.class_name}): {situation.target.loader} has no feature columns")
    return root


REWRITE: Final = Rewrite(name="code", applies=lambda situation: situation.crosses, apply=_apply)
