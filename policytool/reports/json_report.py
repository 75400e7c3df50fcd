"""
The versioned JSON of ``inspect`` (design section 5); its schema is
``policytool/reports/schemas/inspect.schema.json``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from policytool.releases.policy import Dynamic, Fixed, Quantization, loss_scale_values
from policytool.reports._base import Reporter
from policytool.reports.json_writing import written
from policytool.support.version import version

if TYPE_CHECKING:
    from policytool.commands.inspect import Inspection, Selected
    from policytool.formats.document import TracedOp
    from policytool.model.model import Layer, Model, Verdict
    from policytool.reports.layout import View

VERSION: Final = 1
"""Additive changes keep it; anything else raises it."""


def render(selected: Selected, view: View) -> str:
    """
    Return the report as JSON text; where the stream lacks characters, they are escaped as JSON does
    it.
    """
    return written(document(selected), view)


def document(selected: Selected) -> dict[str, Any]:
    """Return the report as JSON values."""
    inspection: Inspection = selected.inspection
    return {
        "version": VERSION,
        "tool": {"name": "policytool", "version": version()},
        "models": [
            _model(model, layers)
            for model, layers in zip(inspection.models, selected.layers, strict=True)
        ],
        "failures": [
            {"path": failure.path, "code": failure.code, "message": failure.message}
            for failure in inspection.failures
        ],
    }


def _model(model: Model, layers: tuple[Layer, ...]) -> dict[str, Any]:
    summary = model.summary
    return {
        "path": model.path,
        "format": model.format,
        "generation": model.generation,
        "writer": {
            "keras": model.writer.keras,
            "tensorflow": model.writer.tensorflow,
            "backend": model.writer.backend,
        },
        "layers": [layer_values(layer) for layer in layers],
        "optimizer": (
            {
                "class_name": model.optimizer.class_name,
                "loss_scale": _loss_scale(model.optimizer.loss_scale),
            }
            if model.optimizer is not None
            else None
        ),
        "signatures": [
            {
                "name": signature.name,
                "inputs": dict(signature.inputs),
                "outputs": dict(signature.outputs),
                "compute_dtypes": list(signature.compute_dtypes),
                "ops": [_op(op) for op in signature.ops],
            }
            for signature in model.signatures
        ],
        "summary": {
            "layers": summary.layers,
            "parameters": summary.parameters,
            "bytes": summary.bytes,
            "policies": dict(summary.policies),
        },
        "observations": [
            {"code": item.code, "message": item.message, "where": item.where}
            for item in model.observations
        ],
        "loaders": [_verdict(verdict) for verdict in model.loaders],
    }


def _verdict(verdict: Verdict) -> dict[str, Any]:
    said = "loads" if verdict.loads else "refuses" if verdict.reason is not None else "not-judged"
    return {
        "loader": verdict.loader,
        "verdict": said,
        "reason": verdict.reason or verdict.not_judged,
    }


def layer_values(layer: Layer) -> dict[str, Any]:
    """Return a layer as JSON values."""
    return {
        "path": layer.path,
        "also_at": list(layer.also_at),
        "name": layer.name,
        "class_name": layer.class_name,
        "registered_name": layer.registered_name,
        "policy": layer.policy,
        "compute_dtype": layer.compute_dtype,
        "variable_dtype": layer.variable_dtype,
        "source": layer.source.value,
        "loss_scale": _loss_scale(layer.loss_scale, default=layer.loss_scale_default),
        "quantization": _quantization(layer.quantization),
        "deprecated": layer.deprecated,
        "autocast": layer.autocast,
        "opaque": layer.opaque,
        "traced_dtypes": list(layer.traced_dtypes),
        "traced_ops": [_op(op) for op in layer.traced_ops],
        "variables": [
            {
                "name": variable.name,
                "shape": None if variable.shape is None else list(variable.shape),
                "dtype": variable.dtype,
            }
            for variable in layer.variables
        ],
        "address": {"part": layer.address.part, "pointer": layer.address.pointer}
        if layer.address
        else None,
    }


def _op(op: TracedOp) -> dict[str, Any]:
    return {"op": op.op, "dtype": op.dtype, "count": op.count, "amp": op.amp}


def _loss_scale(scale: Dynamic | Fixed | None, *, default: bool = False) -> dict[str, Any] | None:
    values = loss_scale_values(scale)
    if values is None:
        return None
    found = {
        name: _number(value) if isinstance(value, float) else value
        for name, value in values.items()
    }
    return {**found, "default": True} if default else found


def _quantization(quantization: Quantization | None) -> dict[str, Any] | None:
    if quantization is None:
        return None
    found: dict[str, Any] = {"mode": quantization.mode, "source": quantization.source}
    if quantization.amax_history_length is not None:
        found["amax_history_length"] = quantization.amax_history_length
    return found


def _number(value: float) -> float | str:
    """Return the number, or the name of one that JSON lacks."""
    if math.isnan(value):
        return "NaN"
    return value if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")


REPORTER: Final = Reporter(name="json", render=render)
