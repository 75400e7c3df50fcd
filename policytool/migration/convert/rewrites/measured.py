"""
Layers that were measured to compute something else once converted: none is converted into one that
does (:mod:`policytool.releases.behaviour`).

In float64 some agree only to the precision of float32, because a library makes a float32 constant
of a Python number and casts that (``ops.cast(number, dtype)`` in Keras 3, ``tf.cast`` in Keras 2).
In 16 bits some agree to a few roundings.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.rewrites._base import ConversionContext, Rewrite
from policytool.migration.convert.traversal import walk
from policytool.releases import behaviour
from policytool.releases.dtypes import HALVES
from policytool.releases.policy import Policy

if TYPE_CHECKING:
    from policytool.migration.convert.architecture import Unit

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


_IN_HALF: Final = frozenset({"GroupNormalization", "LayerNormalization"})
"""
Layers that Keras 3 computes in float32 under all policies of 16 bits, and Keras 2 in part in 16:
the result is up to 15 roundings off, that of Keras 3 one (tf_keras 2.21, Keras 3.15).
"""


def _apply(root: Unit, situation: ConversionContext) -> Unit:
    loaded = situation.loaded
    told = {refusal.path for refusal in situation.log.refusals}
    for unit in walk(root):
        _tell_of_constants(unit, situation)
        _tell_of_rounding(unit, situation)
        _tell_of_halves(unit, situation)
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


def _tell_of_constants(unit: Unit, situation: ConversionContext) -> None:
    what, policy = _FLOAT32_CONSTANTS.get(unit.class_name), unit.config.get("dtype")
    alike = unit.class_name == "Rescaling" and unit.site is not None
    if (
        what is None
        or alike
        or unit.custom
        or not isinstance(policy, Policy)
        or policy.compute_dtype != "float64"
        or (unit.class_name == "Normalization" and unit.config.get("mean") is None)
    ):
        return
    situation.log.note(
        "float32-constant",
        unit,
        f"{unit.path} ({unit.class_name}) computes in float64, and one library has {what} in "
        "float32: predictions agree to about 1e-8 of the largest value",
    )


def _tell_of_rounding(unit: Unit, situation: ConversionContext) -> None:
    policy = unit.config.get("dtype")
    if (
        situation.to_keras3
        or unit.custom
        or not isinstance(policy, Policy)
        or policy.compute_dtype != "float64"
    ):
        return
    values = [(key, unit.config.get(key)) for key in _ROUNDED_ARGUMENTS.get(unit.class_name, ())]
    rounded = [key for key, value in values if isinstance(value, float) and not _is_single(value)]
    if rounded:
        situation.log.note(
            "float32-constant",
            unit,
            f"{unit.path} ({unit.class_name}) computes in float64, and Keras 2 rounds its "
            f"{' and '.join(rounded)} to float32: predictions agree to about 1e-8 of the largest "
            "value",
        )


def _is_single(value: float) -> bool:
    """Return whether float32 has a number."""
    try:
        return bool(struct.unpack("f", struct.pack("f", value))[0] == value)
    except OverflowError:
        return False


def _tell_of_halves(unit: Unit, situation: ConversionContext) -> None:
    policy = unit.config.get("dtype")
    if unit.class_name not in _IN_HALF or unit.custom or not isinstance(policy, Policy):
        return
    if policy.compute_dtype in HALVES:
        situation.log.note(
            "normalized-in-half",
            unit,
            f"{unit.path} ({unit.class_name}) is computed in {policy.compute_dtype} by Keras 2 and "
            "in float32 by Keras 3: its values agree to about ten roundings",
        )


REWRITE: Final = Rewrite(name="measured", applies=lambda situation: situation.crosses, apply=_apply)
