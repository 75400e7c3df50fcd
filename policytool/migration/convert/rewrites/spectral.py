"""SpectralNormalization."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from policytool.migration.convert.architecture import Unit
from policytool.migration.convert.masks.flow import has_masks
from policytool.migration.convert.masks.propagation import rule_of
from policytool.migration.convert.rewrites._base import ConversionContext, rewrite
from policytool.migration.convert.tensor_dtypes import compute_dtype
from policytool.migration.convert.traversal import map_units

_CLASS: Final = "SpectralNormalization"
_LOOKUP: Final = "Embedding"
"""Keras 3 casts what it gives to the dtype of its input, so that of ids to integers."""


@rewrite(
    applies=lambda situation: situation.crosses and not situation.to_keras3,
)
def spectral(root: Unit, situation: ConversionContext) -> Unit:
    """
    Replaces SpectralNormalization with its inner layer, because the Keras 2 releases that write
    this wrapper cannot load it.

    In prediction it calls its layer and does nothing else, so its layer takes its place. TF 2.15
    and tf_keras 2.21 write it and do not know its name when they read it (``deserialize`` in
    keras/layers/serialization.py).
    """
    is_masked = has_masks(root)

    def change(unit: Unit) -> Unit:
        inner = unit.config.get("layer")
        if unit.class_name != _CLASS or unit.custom or not isinstance(inner, Unit):
            return unit
        if not _does_the_same(unit, inner, situation.source_release, is_masked=is_masked):
            return unit  # which is refused as a class that the target does not load
        situation.log.caution(
            "spectral-normalization",
            unit,
            f"{unit.path} ({_CLASS}) is replaced with its inner layer ({inner.class_name}) "
            f"because {situation.target.name} cannot load the wrapper. Predictions are unchanged, "
            "but training no longer normalizes the weights of this layer",
        )
        return replace(inner, name=unit.name, path=unit.path, calls=unit.calls)

    return map_units(root, change)


def _does_the_same(unit: Unit, inner: Unit, release: str, *, is_masked: bool) -> bool:
    """Return whether a layer gives what the wrapper around it does, and hands on its mask alike."""
    return (
        not inner.custom
        and inner.class_name != _LOOKUP
        and compute_dtype(inner) == compute_dtype(unit)
        and not (is_masked and rule_of(unit, {}, 1, release) != rule_of(inner, {}, 1, release))
    )
