"""Layers whose code is not part of Keras."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import walk
from policytool.migration.convert.rewrites._base import ConversionContext, rewrite
from policytool.support.shorten import join_first

if TYPE_CHECKING:
    from policytool.migration.convert.architecture import Unit

_LIBRARIES: Final = frozenset({"keras", "tf_keras", "tensorflow"})
"""
Whose modules hold classes that no release exports, such as ``LayerScale`` of
keras.src.applications.convnext.
"""

_FEATURES: Final = frozenset({"DenseFeatures", "SequenceFeatures"})


@rewrite(
    after=("applications",),  # of those, no class is someone else's
    applies=lambda context: context.crosses,
)
def code(root: Unit, context: ConversionContext) -> Unit:
    """
    Reports layers whose results are unknown: layers that contain code, custom layers, and layers
    that require TensorFlow feature columns.
    """
    own: dict[str, Unit] = {}
    for unit in walk(root):
        if unit.custom:
            if unit.module is not None and unit.module.partition(".")[0] in _LIBRARIES:
                message = (
                    f"{unit.path} ({unit.class_name}) is a class from {unit.module}, which "
                    f"{context.target.name} cannot import"
                )
                context.log.refuse("class", unit, message)
            own.setdefault(unit.class_name, unit)
        elif unit.class_name == "Lambda":
            reason = (
                "contains Python bytecode or a function name, which the other library reads "
                "differently"
            )
            context.log.refuse(
                "lambda",
                unit,
                (
                    f"{unit.path} (Lambda) {reason}; replace it with layers in the source and "
                    "save the model again"
                ),
            )
        elif unit.class_name in _FEATURES and context.to_keras3:
            context.log.refuse(
                "class",
                unit,
                f"{unit.path} ({unit.class_name}): {context.target.name} has no feature columns",
            )
    if own:
        names = join_first(sorted(own), 4)
        message = (
            f"{names}: when you load the model, pass versions of these classes for "
            f"{context.target.name} as custom_objects; predictions depend on their code"
        )
        context.log.caution("custom-classes", None, message)
    return root
