"""
The versioned JSON of ``inspect`` (design section 5); its schema is
``policytool/reports/schemas/inspect.schema.json``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from policytool.model.model import Layer
from policytool.releases.policy import Dynamic, Fixed, Quantization, loss_scale_values
from policytool.reports.json_writing import (
    FAILURES,
    VERDICTS,
    JsonItems,
    json_pieces,
    with_version,
)
from policytool.reports.reporter import streaming_reporter
from policytool.support.text import codec
from policytool.support.text.codec import attributes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.commands.inspect import Selected
    from policytool.model.model import Model
    from policytool.reports.layout import View
    from policytool.support.text.codec import Forms

VERSION: Final = 1
"""Additive changes keep it; anything else raises it."""


def pieces(selected: Selected, view: View) -> Iterator[str]:
    """
    Yield the report as JSON text; where the stream lacks characters, they are escaped as JSON does
    it.
    """
    values = {
        "models": JsonItems(model_values(model, layers) for model, layers in selected.shown()),
        "failures": selected.inspection.failures,
    }
    return json_pieces(with_version(VERSION, values), FORMS, unicode=view.unicode)


def model_values(model: Model, layers: tuple[Layer, ...]) -> dict[str, Any]:
    """Return a model with the layers to show."""
    return {**_MODEL(model), "layers": layers}


def layer_values(layer: Layer) -> dict[str, Any]:
    """Return a layer as JSON values."""
    values: dict[str, Any] = json.loads(codec.encode(layer, FORMS, nan=False))
    return values


_MODEL: Final = attributes(
    *("path", "format", "writer", "layers", "optimizer", "signatures", "summary", "observations"),
    written_by="generation",
    releases="loaders",
)
_LAYER: Final = attributes(
    *("path", "also_at", "name", "class_name", "registered_name", "policy", "compute_dtype"),
    *("variable_dtype", "source", "loss_scale", "quantization", "deprecated", "autocast", "opaque"),
    *("traced_dtypes", "traced_ops", "variables", "address"),
)


def _layer(layer: Layer) -> dict[str, Any]:
    found: dict[str, Any] = _LAYER(layer)
    if layer.loss_scale_default and layer.loss_scale is not None:
        found["loss_scale"] = {**(loss_scale_values(layer.loss_scale) or {}), "default": True}
    return found


def _quantization(found: Quantization) -> dict[str, Any]:
    history = found.amax_history_length
    return {
        "mode": found.mode,
        "source": found.source,
        **({} if history is None else {"amax_history_length": history}),
    }


FORMS: Final[Forms] = {
    **FAILURES,
    **VERDICTS,
    Dynamic: loss_scale_values,
    Fixed: loss_scale_values,
    Layer: _layer,
    Quantization: _quantization,
}
"""The forms of the values in a model."""

REPORTER: Final = streaming_reporter("json", pieces)
