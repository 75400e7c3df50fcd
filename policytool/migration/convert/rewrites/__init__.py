"""
What is written otherwise on the way from one library or release to another, one concern each.

A rewrite gets the whole model and returns it changed; it logs what it did, and refuses what it
cannot do. They run in this order, before the keys are judged
(:mod:`policytool.migration.convert.encoding`). To add one, write its function below the
decorator ``rewrite`` (or ``layer_rewrite`` if it changes single layers), and add one line behind
those that it names in ``after``; all others can change places.
"""

from __future__ import annotations

from typing import Final

from policytool.migration.convert.rewrites import (
    activations,
    directions,
    keras1,
    keras2,
    layers,
    masks,
    operations,
    policies,
    preprocessing,
    shapes,
    storage,
)
from policytool.migration.convert.rewrites._base import ConversionContext, Rewrite

REWRITES: Final[tuple[Rewrite, ...]] = (
    storage.applications,
    storage.code,
    keras1.keras1,
    keras2.keras2,
    preprocessing.preprocessing,
    shapes.inputs,
    shapes.einsum,
    shapes.convlstm,
    shapes.cropping,
    layers.spectral,
    masks.masks,
    policies.policies,
    policies.wrappers,
    storage.storage,
    storage.naming,
    keras2.calls,
    activations.activation_operations,
    operations.operations,
    directions.directions,
    layers.renamed,
    layers.normalization,
    layers.initializers,
    layers.attention,
    activations.activations,
    shapes.builds,
    layers.tensorflow_js,
    layers.measured,  # last: it says nothing of layers that another refuses
)

__all__ = ["REWRITES", "ConversionContext", "Rewrite"]
