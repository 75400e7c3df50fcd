"""Layers whose converted forms were measured."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import references, walk
from policytool.migration.convert.rewrites._base import ConversionContext, rewrite
from policytool.migration.convert.tensor_facts import compute_dtype, of_network
from policytool.model.calls import Reference
from policytool.releases import behaviour
from policytool.releases.dtypes import HALVES
from policytool.releases.policy import Policy

if TYPE_CHECKING:
    from policytool.migration.convert.architecture import Unit

_DOUBLE: Final = "float64"

_ROUNDED_ARGUMENTS: Final = {
    "ELU": ("alpha",),
    "LeakyReLU": ("alpha", "negative_slope"),
    "ReLU": ("max_value", "negative_slope", "threshold"),
}
"""
Arguments that Keras 2 rounds to the float type of the program that loads a model, which is float32
(``cast_to_floatx`` in keras/layers/activation).
"""

_FLOAT32_CONSTANTS: Final = {
    "MultiHeadAttention": "the scale of its scores",
    "Normalization": "its mean and variance",
    "Rescaling": "its scale and offset",
}
"""
Layers of which one library has constants in float32 under float64: the first two in Keras 3.15 and
not in tf_keras 2.21; both have a Rescaling so, which conversion puts before ``hard_sigmoid``.
"""


_NORMALIZATIONS: Final = frozenset({"GroupNormalization", "LayerNormalization"})
"""
Layers that Keras 2 computes in the dtype of their policy, and Keras 3 in that of their input, or in
float32 if it has 16 bits (``autocast`` is false there). Under policies of 16 bits the result of
Keras 2 is up to 15 roundings off, that of Keras 3 one (tf_keras 2.21, Keras 3.15).
"""


@rewrite(
    applies=lambda context: context.crosses,
)
def measured(root: Unit, context: ConversionContext) -> Unit:
    """
    Reports layers that returned different results after a conversion in our measurements
    (:mod:`policytool.releases.behaviour`).

    In float64 some agree only to the precision of float32, because a library makes a float32
    constant of a Python number and casts that (``ops.cast(number, dtype)`` in Keras 3, ``tf.cast``
    in Keras 2). In 16 bits some agree to a few roundings.
    """
    loaded = context.loaded
    refused = frozenset(context.log.refused_paths)
    for unit in walk(root):
        _note_uncast_inputs(unit, context)
        _note_float64(unit, context)
        _note_halves(unit, context)
        _note_short_vectors(unit, context)
        if unit.site is None or unit.custom or unit.network is not None or unit.path in refused:
            continue
        class_name = loaded.sites[unit.site].class_name or unit.class_name
        why = behaviour.objection(class_name, loaded.config(unit.site), to_keras3=context.to_keras3)
        if why is not None:
            context.log.refuse(
                "behaviour",
                unit,
                f"{unit.path} ({class_name}) is not converted to {context.target.name}: {why}",
            )
    return root


def _note_float64(unit: Unit, context: ConversionContext) -> None:
    """Note layers that compute in float64 with numbers of float32."""
    constant, policy = _FLOAT32_CONSTANTS.get(unit.class_name), unit.config.get("dtype")
    if unit.custom or not isinstance(policy, Policy) or policy.compute_dtype != _DOUBLE:
        return
    is_of_file = unit.class_name == "Rescaling" and unit.site is not None
    lacks_mean = unit.class_name == "Normalization" and unit.config.get("mean") is None
    if constant is not None and not is_of_file and not lacks_mean:
        context.log.note(
            "float32-constant",
            unit,
            f"{unit.path} ({unit.class_name}) computes in float64, but one library uses float32 "
            f"for {constant}; predictions agree to within about 1e-8 of the largest value",
        )
    values = [(key, unit.config.get(key)) for key in _ROUNDED_ARGUMENTS.get(unit.class_name, ())]
    rounded = [key for key, value in values if isinstance(value, float) and not _is_single(value)]
    if rounded and not context.to_keras3:
        context.log.note(
            "float32-constant",
            unit,
            f"{unit.path} ({unit.class_name}) computes in float64, but Keras 2 rounds its "
            f"{' and '.join(rounded)} to float32; predictions agree to within about 1e-8 of the "
            "largest value",
        )


def _note_uncast_inputs(model: Unit, context: ConversionContext) -> None:
    """Note layers of a model that compute in float64 and are given numbers of another dtype."""
    network = model.network
    if network is None:
        return
    for place, unit in enumerate(network.units):
        if unit.class_name not in _NORMALIZATIONS or compute_dtype(unit) != _DOUBLE or unit.custom:
            continue
        before = network.units[max(place - 1, 0) : place]
        tensors = (
            [Reference(layer=earlier.name) for earlier in before]
            if network.is_chain
            else [tensor for call in unit.calls for tensor in references(call.args)]
        )
        if {of_network(network).of(tensor) for tensor in tensors} - {_DOUBLE, None}:
            context.log.note(
                "uncast-input",
                unit,
                f"{unit.path} ({unit.class_name}) computes in float64 in Keras 2 but in float32 "
                "in Keras 3, which does not cast the layer's input; predictions agree to within "
                "about 1e-6 of the largest value",
            )


def _is_single(value: float) -> bool:
    """Return whether float32 has a number."""
    try:
        return bool(struct.unpack("f", struct.pack("f", value))[0] == value)
    except OverflowError:
        return False


def _note_halves(unit: Unit, context: ConversionContext) -> None:
    policy = unit.config.get("dtype")
    if (
        unit.class_name in _NORMALIZATIONS
        and not unit.custom
        and isinstance(policy, Policy)
        and policy.compute_dtype in HALVES
    ):
        context.log.note(
            "normalized-in-half",
            unit,
            f"{unit.path} ({unit.class_name}) computes in {policy.compute_dtype} in Keras 2 but "
            "in float32 in Keras 3; results agree to within about ten rounding errors unless the "
            "inputs are large compared with their spread, so compare predictions",
        )


def _note_short_vectors(unit: Unit, context: ConversionContext) -> None:
    """
    Note layers of which Keras 2 takes the square of a length to be 1e-12 at least
    (``tf.math.l2_normalize``), and Keras 3 the length (``normalize`` in numerical_utils.py).
    """
    if unit.class_name == "UnitNormalization" and not unit.custom:
        context.log.note(
            "short-vectors",
            unit,
            f"{unit.path} (UnitNormalization) scales vectors shorter than 1e-6 to length 1 in "
            "Keras 3, but to a smaller length in Keras 2",
        )
