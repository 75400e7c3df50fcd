"""
Layers that hold code, that someone else's code defines, or that need TensorFlow's feature columns:
nothing is known here of what they compute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.migration.convert.rewrites._base import ConversionContext, Rewrite
from policytool.migration.convert.traversal import walk
from policytool.support.shorten import join_first

if TYPE_CHECKING:
    from policytool.migration.convert.architecture import Unit

_LIBRARIES: Final = frozenset({"keras", "tf_keras", "tensorflow"})
"""
Whose modules hold classes that no release exports, such as ``LayerScale`` of
keras.src.applications.convnext.
"""

_FEATURES: Final = frozenset({"DenseFeatures", "SequenceFeatures"})


def _apply(root: Unit, situation: ConversionContext) -> Unit:
    own: dict[str, Unit] = {}
    for unit in walk(root):
        if unit.custom:
            if unit.module is not None and unit.module.partition(".")[0] in _LIBRARIES:
                message = (
                    f"{unit.path} ({unit.class_name}) is a class of {unit.module}, which "
                    f"{situation.target.loader} finds under no name"
                )
                situation.log.refuse("class", unit, message)
            own.setdefault(unit.class_name, unit)
        elif unit.class_name == "Lambda":
            reason = (
                "holds the bytecode of the Python that wrote it, or the name of a function, which "
                "the other library reads otherwise"
            )
            situation.log.refuse(
                "lambda",
                unit,
                f"{unit.path} (Lambda) {reason}: replace it by layers in the source and save again",
            )
        elif unit.class_name in _FEATURES and situation.to_keras3:
            situation.log.refuse(
                "class",
                unit,
                f"{unit.path} ({unit.class_name}): {situation.target.loader} has no feature "
                "columns",
            )
    if own:
        names = join_first(sorted(own), 4)
        message = (
            f"{names}: whoever loads the model gives these classes as custom_objects, written for "
            f"{situation.target.loader}; they decide what it computes"
        )
        situation.log.caution("custom-classes", None, message)
    return root


REWRITE: Final = Rewrite(
    name="code",
    after=("applications",),  # of those, no class is someone else's
    applies=lambda situation: situation.crosses,
    apply=_apply,
)
