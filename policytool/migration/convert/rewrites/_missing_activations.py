"""Which activations a target has not, and which layers can have theirs put behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import Role, function_name
from policytool.migration.convert.traversal import walk
from policytool.releases import known_arguments

if TYPE_CHECKING:
    from policytool.migration.convert.architecture import Unit
    from policytool.migration.convert.rewrites._base import ConversionContext

HARD: Final = "hard_sigmoid"
SPLIT: Final = frozenset(
    {
        *("Activation", "Dense", "EinsumDense"),
        *(
            f"{kind}{rank}D{end}"
            for rank in (1, 2, 3)
            for kind, end in (
                ("Conv", ""),
                ("Conv", "Transpose"),
                ("DepthwiseConv", ""),
                ("SeparableConv", ""),
            )
        ),
    }
)
"""Layers that apply ``activation`` to what they give, last of all."""


def is_missing(name: str, situation: ConversionContext) -> bool:
    """Return whether an activation is one of Keras' that the target has not."""
    if not known_arguments.is_known("activations", name):
        return False
    found = known_arguments.objection(
        situation.target.loader, "activations", name, {}, module=False
    )
    return found is not None and found.missing


def missing_activation(unit: Unit, situation: ConversionContext) -> str | None:
    """Return the activation of a layer that can be split, where the target has it not."""
    if unit.role is not Role.LAYER or unit.custom or unit.class_name not in SPLIT:
        return None
    name = function_name(unit.config.get("activation"))
    return name if name is not None and is_missing(name, situation) else None


def has_masks(root: Unit) -> bool:
    """Return whether a layer of the model makes a mask."""
    return any(
        unit.class_name == "Masking" or unit.config.get("mask_zero") is True for unit in walk(root)
    )
