"""Activations that Keras 3 alone has, as several functions of TensorFlow."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.rewrites.operations._building import UnsayableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from policytool.migration.convert.architecture import Value
    from policytool.migration.convert.rewrites.operations._building import OperationBuilder
    from policytool.model.calls import Reference

    Activation = Callable[[OperationBuilder, Mapping[str, Value], Reference], Reference]


def _number(config: Mapping[str, Value], key: str, default: float | None = None) -> float:
    value = config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnsayableError(f"has a {key} that is not a number; policytool does not convert this")
    return float(value)


def _celu(builder: OperationBuilder, config: Mapping[str, Value], x: Reference) -> Reference:
    alpha = _number(config, "alpha", 1.0)
    below = builder.function("math.minimum", x, {"y": 0.0})
    curve = builder.function("math.expm1", builder.function("math.divide", below, {"y": alpha}))
    scaled = builder.function("math.multiply", curve, {"y": alpha})
    return builder.function("math.add", builder.function("nn.relu", x), {"y": scaled})


def _glu(builder: OperationBuilder, config: Mapping[str, Value], x: Reference) -> Reference:
    halves = builder.function("split", x, {"num_or_size_splits": 2, "axis": _axis(config)})
    gate = builder.function("math.sigmoid", replace(halves, output=1))
    return builder.function("math.multiply", halves, {"y": gate})


def _axis(config: Mapping[str, Value]) -> int:
    return int(_number(config, "axis", -1))


def _squareplus(builder: OperationBuilder, config: Mapping[str, Value], x: Reference) -> Reference:
    squares = builder.function("math.square", x)
    root = builder.function(
        "math.sqrt", builder.function("math.add", squares, {"y": _number(config, "b", 4)})
    )
    return builder.function("math.divide", builder.function("math.add", x, {"y": root}), {"y": 2.0})


def _soft_shrink(builder: OperationBuilder, config: Mapping[str, Value], x: Reference) -> Reference:
    end = _number(config, "threshold", 0.5)
    inner = _clip(builder, x, -end, end)
    return builder.function("math.subtract", x, {"y": inner})


def _hard_shrink(builder: OperationBuilder, config: Mapping[str, Value], x: Reference) -> Reference:
    sizes = builder.function("math.abs", x)
    outside = builder.function("math.greater", sizes, {"y": _number(config, "threshold", 0.5)})
    return builder.function("where", outside, {"x": x, "y": builder.function("zeros_like", x)})


def _threshold(builder: OperationBuilder, config: Mapping[str, Value], x: Reference) -> Reference:
    above = builder.function("math.greater", x, {"y": _number(config, "threshold")})
    filled = builder.function(
        "math.add", builder.function("zeros_like", x), {"y": _number(config, "default_value")}
    )
    return builder.function("where", above, {"x": x, "y": filled})


def _tanh_shrink(builder: OperationBuilder, config: Mapping[str, Value], x: Reference) -> Reference:
    del config
    return builder.function("math.subtract", x, {"y": builder.function("math.tanh", x)})


def _sparse_plus(builder: OperationBuilder, config: Mapping[str, Value], x: Reference) -> Reference:
    """Return ``clip(x + 1, 0, 2)² / 4 + relu(x - 1)``: a parabola between -1 and 1, then x."""
    del config
    bent = _clip(builder, builder.function("math.add", x, {"y": 1.0}), 0.0, 2.0)
    curve = builder.function("math.divide", builder.function("math.square", bent), {"y": 4.0})
    line = builder.function("nn.relu", builder.function("math.subtract", x, {"y": 1.0}))
    return builder.function("math.add", curve, {"y": line})


def _hard_tanh(builder: OperationBuilder, config: Mapping[str, Value], x: Reference) -> Reference:
    del config
    return _clip(builder, x, -1.0, 1.0)


def _sparse_sigmoid(
    builder: OperationBuilder, config: Mapping[str, Value], x: Reference
) -> Reference:
    del config
    moved = builder.function("math.add", x, {"y": 1.0})
    return _clip(builder, builder.function("math.divide", moved, {"y": 2.0}), 0.0, 1.0)


def _clip(builder: OperationBuilder, x: Reference, low: float, high: float) -> Reference:
    return builder.function("clip_by_value", x, {"clip_value_min": low, "clip_value_max": high})


ACTIVATIONS: Final[Mapping[str, Activation]] = MappingProxyType(
    {
        "Celu": _celu,
        "Glu": _glu,
        "Squareplus": _squareplus,
        "SoftShrink": _soft_shrink,
        "HardShrink": _hard_shrink,
        "Threshold": _threshold,
        "TanhShrink": _tanh_shrink,
        "SparsePlus": _sparse_plus,
        "HardTanh": _hard_tanh,
        "SparseSigmoid": _sparse_sigmoid,
    }
)
"""By the class of an operation in ``nn`` of Keras 3 (keras/src/backend/tensorflow/nn.py)."""
