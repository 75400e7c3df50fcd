"""What a rule is that keeps layers in float32."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from policytool.model.loaded_model import LoadedModel


def float_inputs(loaded: LoadedModel, index: int) -> bool:
    """Return whether floats come in at an input layer: whether its dtype is a float, or unsaid."""
    layer = loaded.layers[index]
    return layer.compute_dtype is None or "float" in layer.compute_dtype
