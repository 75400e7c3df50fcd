"""What is noteworthy about a layer, besides its policy and its dtypes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policytool.model.tree import MODEL_CLASSES
from policytool.releases import dtypes
from policytool.reports._words import loss_scale_words
from policytool.reports.inspection._traced import is_traced_otherwise

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.model.model import Layer


def words(layer: Layer) -> str:
    """Return the notes of a layer."""
    return "; ".join(_notes(layer))


def _notes(layer: Layer) -> Iterator[str]:
    if is_traced_otherwise(layer):
        yield "graph differs"
    if layer.loss_scale is not None and not layer.loss_scale_default:
        yield f"loss scale {loss_scale_words(layer.loss_scale)}"
    if layer.quantization is not None:
        yield "quantized"
    if layer.opaque:
        yield "custom code"
    if layer.autocast is False and layer.class_name not in MODEL_CLASSES:
        yield "no autocast"
    if layer.also_at:
        yield "also " + ", ".join(layer.also_at)


def is_stored_otherwise(layer: Layer) -> bool:
    """Return whether variables are stored in another dtype than the policy's variable dtype."""
    floats = {variable.dtype for variable in layer.variables if dtypes.is_float(variable.dtype)}
    return (
        dtypes.is_float(layer.variable_dtype)
        and layer.quantization is None
        and bool(floats - {layer.variable_dtype})
    )
