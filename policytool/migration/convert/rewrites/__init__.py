"""
What is written otherwise on the way from one library or release to another, one concern each.

A rewrite gets the whole model and returns it changed; it logs what it did, and refuses what it
cannot do. They run in this order, before the keys are judged
(:mod:`policytool.migration.convert.arguments`). To add one, write its module and add one line
behind those that it names in ``after``; all others can change places.
"""

from __future__ import annotations

from typing import Final

from policytool.migration.convert.rewrites import (
    activation_operations,
    activations,
    applications,
    attention,
    builds,
    calls,
    code,
    convlstm,
    cropping,
    directions,
    einsum,
    initializers,
    inputs,
    keras1,
    keras2,
    masks,
    measured,
    naming,
    normalization,
    operations,
    policies,
    preprocessing,
    renamed,
    spectral,
    storage,
)
from policytool.migration.convert.rewrites._base import ConversionContext, Rewrite

REWRITES: Final[tuple[Rewrite, ...]] = (
    applications.REWRITE,
    code.REWRITE,
    keras1.REWRITE,
    keras2.REWRITE,
    preprocessing.REWRITE,
    inputs.REWRITE,
    einsum.REWRITE,
    convlstm.REWRITE,
    cropping.REWRITE,
    spectral.REWRITE,
    masks.REWRITE,
    policies.REWRITE,
    storage.REWRITE,
    naming.REWRITE,
    calls.REWRITE,
    activation_operations.REWRITE,
    operations.REWRITE,
    directions.REWRITE,
    renamed.REWRITE,
    normalization.REWRITE,
    initializers.REWRITE,
    attention.REWRITE,
    activations.REWRITE,
    builds.REWRITE,
    measured.REWRITE,  # last: it says nothing of layers that another refuses
)

__all__ = ["REWRITES", "ConversionContext", "Rewrite"]
