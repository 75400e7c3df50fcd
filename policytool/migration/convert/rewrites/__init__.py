"""
What is written otherwise on the way from one library or release to another, one concern each.

A rewrite gets the whole model and returns the changed model; it logs its changes and refusals. The
rewrites run in this order, before the keys are checked
(:mod:`policytool.migration.convert.encoding`). To add a rewrite, write its function below the
decorator ``rewrite`` (or ``layer_rewrite`` if it changes single layers), and add a line after the
rewrites that it names in ``after``; the order of all others does not matter.
"""

from __future__ import annotations

from typing import Final

from policytool.migration.convert.rewrites import (
    activations,
    adapters,
    directions,
    keras1,
    keras2,
    lambdas,
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
    lambdas.linear_lambdas,
    lambdas.named_lambdas,
    storage.code,
    keras1.keras1,
    keras1.keras1_weights,
    keras2.keras2,
    preprocessing.preprocessing,
    shapes.inputs,
    shapes.einsum,
    shapes.convlstm,
    shapes.cropping,
    preprocessing.encodings,
    layers.spectral,
    masks.masks,
    policies.policies,
    policies.wrappers,
    policies.wrapped_policies,
    adapters.lora,
    storage.storage,
    storage.naming,
    keras2.calls,
    activations.silu,
    activations.activation_operations,
    operations.operations,
    directions.directions,
    layers.renames,
    layers.normalization,
    layers.initializers,
    layers.attention,
    activations.activations,
    shapes.builds,
    layers.tensorflow_js,
    layers.from_tensorflow_js,
    layers.measured_differences,  # last: it does not report layers that another rewrite refuses
)

__all__ = ["REWRITES", "ConversionContext", "Rewrite"]
