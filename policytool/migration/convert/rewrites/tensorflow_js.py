"""What TensorFlow.js lacks, and no prediction depends on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import (
    BACKWARD,
    ObjectKind,
    SerializedObject,
    Unit,
    function_name,
)
from policytool.migration.convert.rewrites._base import ConversionContext, layer_rewrite
from policytool.releases import tfjs_layers

if TYPE_CHECKING:
    from policytool.migration.convert.architecture import Value

_OTHER_NAMES: Final = {"LecunNormal": "LeCunNormal", "LecunUniform": "LeCunUniform"}
_L1L2: Final = {"L1": "l1", "L2": "l2"}
"""Regularizers that TensorFlow.js has only as L1L2, by their argument."""

_DIRECTION: Final = "go_backwards"
_UNUSED: Final = {
    "SeparableConv2D": frozenset({"kernel_initializer", "kernel_regularizer", "kernel_constraint"})
}
"""Keys that Keras 2 writes and does not use, and with which TensorFlow.js fails."""


@layer_rewrite(
    applies=lambda context: context.target.is_tfjs,
    after=("directions",),  # which names the layers of a Bidirectional
)
def tensorflow_js(unit: Unit, context: ConversionContext) -> Unit:
    """
    Replaces what TensorFlow.js does not have: initializers, regularizers and constraints, which no
    prediction depends on, and the name ``silu`` of the activation ``swish``.
    """
    if not tfjs_layers.is_known(unit.class_name):
        context.log.refuse(
            "class",
            unit,
            f"{unit.path} cannot be converted: TensorFlow.js has no layer {unit.class_name}",
        )
        return unit
    unused = _UNUSED.get(unit.class_name, frozenset())
    if _has_plain_twin(unit):
        unused |= {BACKWARD}
    config = {key: value for key, value in unit.config.items() if key not in unused}
    for key, value in tuple(config.items()):
        new_value = _known(value)
        if new_value is not value:
            config[key] = new_value
            context.log.change(
                "object",
                unit,
                f"{key} changes because {context.target.name} does not support it; predictions "
                "are unchanged",
            )
    return replace(unit, config=config)


def _has_plain_twin(unit: Unit) -> bool:
    """
    Return whether the backward layer of a Bidirectional is the one that TensorFlow.js makes of the
    forward layer: it reads no other.
    """
    forward, backward = unit.config.get("layer"), unit.config.get(BACKWARD)
    if not isinstance(forward, Unit) or not isinstance(backward, Unit):
        return False
    plain, twin = _arguments(forward), _arguments(backward)
    is_turned = plain.pop(_DIRECTION, False) is not twin.pop(_DIRECTION, False)
    return forward.class_name == backward.class_name and is_turned and plain == twin


def _arguments(unit: Unit) -> dict[str, Value]:
    """Return what a layer computes with, without the objects that variables begin with."""
    return {
        key: value
        for key, value in unit.config.items()
        if not isinstance(value, SerializedObject) or value.kind is ObjectKind.FUNCTION
    }


def _known(value: Value) -> Value:
    """Return a value of a config as TensorFlow.js knows it."""
    if not isinstance(value, SerializedObject) or tfjs_layers.is_known(value.class_name):
        return "swish" if function_name(value) == "silu" else value
    match value.kind:
        case ObjectKind.INITIALIZER:
            name = _OTHER_NAMES.get(value.class_name, "Zeros")
            return replace(value, class_name=name, config={})
        case ObjectKind.REGULARIZER if value.class_name in _L1L2:
            key = _L1L2[value.class_name]
            factor = value.config.get(key, 0.01) if isinstance(value.config, dict) else 0.01
            config: dict[str, Value] = {"l1": 0.0, "l2": 0.0, key: factor}
            return replace(value, class_name="L1L2", config=config)
        case ObjectKind.REGULARIZER | ObjectKind.CONSTRAINT:
            return None
    return "swish" if function_name(value) == "silu" else value
