"""
How far the predictions of two files of one model may be apart, relative to each output's largest
value.

Where a dtype changed, each output may be off by ``8 u sqrt(n)``: u is the largest unit roundoff of
what the changed layers compute and store in, before or after, and n is how many layers have
weights, whose roundings add up as random ones do.

Where another library loads the result, every layer counts as changed. Where any of them computes or
stores in 16 bits the bound is at least ``32 u``, 16 eps: libraries choose for themselves what they
compute in float32 inside.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from policytool.releases import dtypes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from policytool.model.model import Layer, Model

UNIT_ROUNDOFF: Final = {
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
    "float32": 2.0**-24,
    "float64": 2.0**-53,
}
"""Half the distance from 1 to the next number."""

_SLACK: Final = 8.0
"""Several times what the fixtures of every release and policy were measured to need."""

_EPS: Final = 32.0


def rewritten_tolerance(before: Model, after: Model, *, reexported: bool = False) -> float:
    """
    Return the tolerance for outputs if the same library loads the original and the result.

    The original of a re-exported graph may have computed in any dtype, so every layer counts as
    changed.
    """
    old = {layer.path: _float_dtypes(layer) for layer in before.layers}
    changed = [
        old.get(layer.path, frozenset()) | _float_dtypes(layer)
        for layer in after.layers
        if reexported or old.get(layer.path, _float_dtypes(layer)) != _float_dtypes(layer)
    ]
    return _of_depth(after, _coarsest(dtype for layer_dtypes in changed for dtype in layer_dtypes))


def converted_tolerance(before: Model, after: Model, *, numerics: bool) -> float:
    """
    Return how far an output may be from the source's where the library of the target loads the
    result; ``numerics`` where the conversion was asked to change what layers compute in.
    """
    coarsest = _coarsest(
        dtype
        for model in (before, after)
        for layer in model.layers
        for dtype in _float_dtypes(layer)
    )
    own = _of_depth(after, coarsest)
    if coarsest > UNIT_ROUNDOFF["float32"]:
        own = max(_EPS * coarsest, own)
    return max(own, rewritten_tolerance(before, after)) if numerics else own


def _of_depth(model: Model, roundoff: float) -> float:
    weighted = sum(1 for layer in model.layers if layer.variables)
    return _SLACK * roundoff * math.sqrt(max(weighted, 1))


def _coarsest(dtype_names: Iterable[str]) -> float:
    """Return the largest unit roundoff of these dtypes; that of float32 if none is known."""
    roundoffs = [UNIT_ROUNDOFF[dtype] for dtype in dtype_names if dtype in UNIT_ROUNDOFF]
    return max(roundoffs, default=UNIT_ROUNDOFF["float32"])


def _float_dtypes(layer: Layer) -> frozenset[str]:
    return frozenset(
        dtype
        for dtype in (layer.compute_dtype, layer.variable_dtype)
        if dtypes.is_float(dtype) and dtype is not None
    )
