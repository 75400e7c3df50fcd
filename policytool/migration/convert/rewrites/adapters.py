"""LoRA: pairs of small weights, whose product a layer of Keras 3 adds to its kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from policytool.formats import TITLES
from policytool.migration.convert.architecture import Recipe, Role, Unit
from policytool.migration.convert.rewrites._base import ConversionContext, layer_rewrite
from policytool.migration.plan import WEIGHT_REWRITE
from policytool.releases import known_arguments
from policytool.releases.policy import Policy

_RANK: Final = "lora_rank"
_ALPHA: Final = "lora_alpha"

_FORGETS_ALPHA: Final = frozenset({"Dense", "Embedding"})
"""Classes whose ``build`` enables LoRA without ``lora_alpha`` (Keras 3.12 and 3.15)."""

_WEIGHTS: Final = {"Embedding": "embeddings"}
"""The name of the weights that are adapted, if it is not ``kernel``."""


@layer_rewrite(
    after=("policies",),  # it refuses quantized layers
    applies=lambda context: context.from_keras3,
)
def lora(unit: Unit, context: ConversionContext) -> Unit:
    """
    Merges LoRA weights into the kernel if the target does not support them.

    The kernel becomes ``kernel + lora_alpha / lora_rank * a @ b``. Archives always contain the
    merged kernel, because ``save_own_variables`` writes it; HDF5 files contain the three weights.
    """
    rank, alpha = unit.config.get(_RANK), unit.config.get(_ALPHA)
    if not isinstance(rank, int) or rank < 1 or unit.role is not Role.LAYER or unit.custom:
        return unit
    scale = alpha / rank if isinstance(alpha, int | float) else 1.0
    missing_arguments = _lacking_arguments(unit, context)
    is_supported = _RANK not in missing_arguments and (
        _ALPHA not in missing_arguments or scale == 1
    )
    after = unit.without(*missing_arguments) if is_supported else unit.without(_RANK, _ALPHA)
    stores_parts = context.loaded.document.format == "h5"
    if is_supported and not (stores_parts and context.target.container == "keras"):
        return after
    if context.log.is_refused(unit) or _is_refused(unit, scale, context):
        return after
    name = _WEIGHTS.get(unit.class_name, "kernel")
    text = f"the LoRA weights of {unit.class_name} become part of its {name}"
    context.log.change("lora", unit, text)
    if not stores_parts:
        return after
    parts = (name, f"lora_{name}_a", f"lora_{name}_b")
    return replace(after, layout={**after.layout, name: Recipe(parts=parts, product=scale)})


def _lacking_arguments(unit: Unit, context: ConversionContext) -> frozenset[str]:
    """Return the arguments for LoRA that a layer sets and the target does not have."""
    names = {key: unit.config[key] for key in (_RANK, _ALPHA) if key in unit.config}
    if not known_arguments.is_known(known_arguments.LAYERS, unit.class_name):
        return frozenset()
    objection = known_arguments.objection(
        context.target.loader,
        known_arguments.LAYERS,
        unit.class_name,
        names,
        module=context.target.writes_modules,
    )
    if objection is None:
        return frozenset()
    return frozenset({*objection.refused, *(key for key, _ in objection.values)})


def _is_refused(unit: Unit, scale: float, context: ConversionContext) -> bool:
    """Log the reason why LoRA weights cannot be merged, and return whether there is one."""
    policy, layer_words = (
        unit.config.get("dtype"),
        f"{unit.path} ({unit.class_name}) has LoRA weights",
    )
    stores_parts = context.loaded.document.format == "h5"
    limitation = f"which {context.target.name} cannot load from {TITLES[context.target.container]}"
    if isinstance(policy, Policy) and policy.quantization is not None:
        message = (
            f"{layer_words} and is quantized, {limitation}; convert a copy that was saved before "
            "both"
        )
        context.log.refuse("lora", unit, message)
    elif stores_parts and unit.class_name in _FORGETS_ALPHA and scale != 1:
        context.log.refuse(
            "lora",
            unit,
            f"{layer_words} in HDF5 with a lora_alpha that Keras 3 ignores when it loads the "
            "file, so that the predictions of the model are ambiguous; save it again as a .keras "
            "archive",
        )
    elif stores_parts and not context.allow_weight_rewrite:
        context.log.refuse(
            WEIGHT_REWRITE,
            unit,
            f"{layer_words}, {limitation}; use --allow weight-rewrite to add them to its kernel "
            "so that predictions stay unchanged",
        )
    return context.log.is_refused(unit)
