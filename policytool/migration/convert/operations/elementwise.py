"""Functions of each element: arithmetic, comparison, logic, and what takes numbers apart."""

from __future__ import annotations

from typing import Final

from policytool.migration.convert.operations.rows import (
    OperationRow,
    ParameterKind,
    binary,
    option,
    tensor,
    unary,
)


def _like(function: str, op: str, *more: str) -> OperationRow:
    """Return the row of what fills a tensor's shape."""
    return OperationRow(
        functions=(function, *more),
        module="numpy",
        op=op,
        pairs=(
            tensor("input"),
            option("dtype", default=None, default3=None, kind=ParameterKind.DTYPE),
        ),
        ignored={"optimize": (True,), "layout": (None,)},
        result="@dtype",
    )


ROWS: Final[tuple[OperationRow, ...]] = (
    binary("math.add", "Add", "__operators__.add", "add"),
    binary("math.subtract", "Subtract", "subtract"),
    binary("math.multiply", "Multiply", "multiply"),
    binary("math.divide", "Divide", "math.truediv", "truediv", "divide", "realdiv", floats=True),
    binary("math.truediv", "TrueDivide", floats=True),
    binary("math.divide_no_nan", "DivideNoNan", floats=True),
    binary("math.floordiv", "FloorDivide", "compat.v1.floor_div"),
    binary("math.floormod", "Mod", "math.mod"),
    binary("math.pow", "Power", "pow", floats=True),
    binary("math.maximum", "Maximum", "maximum"),
    binary("math.minimum", "Minimum", "minimum"),
    OperationRow(
        functions=("math.atan2", "atan2"),
        module="numpy",
        op="Arctan2",
        pairs=(tensor("y", "x1"), tensor("x", "x2")),
        floats=True,
    ),
    binary("math.equal", "Equal", "equal", result="bool"),
    binary("math.not_equal", "NotEqual", "not_equal", result="bool"),
    binary("math.greater", "Greater", "greater", result="bool"),
    binary("math.greater_equal", "GreaterEqual", "greater_equal", result="bool"),
    binary("math.less", "Less", "less", result="bool"),
    binary("math.less_equal", "LessEqual", "less_equal", result="bool"),
    binary("math.logical_and", "LogicalAnd", "logical_and", result="bool"),
    binary("math.logical_or", "LogicalOr", "logical_or", result="bool"),
    binary("math.logical_xor", "LogicalXor", result="bool"),
    unary("math.logical_not", "LogicalNot", "logical_not", result="bool"),
    unary("math.abs", "Absolute", "abs"),
    unary("math.abs", "Abs"),
    unary("math.negative", "Negative", "negative"),
    unary("math.square", "Square", "square"),
    unary("math.sign", "Sign", "sign"),
    unary("math.reciprocal", "Reciprocal", floats=True),
    unary("math.sqrt", "Sqrt", "sqrt", floats=True),
    unary("math.rsqrt", "Rsqrt", module="math", floats=True),
    unary("math.exp", "Exp", "exp", floats=True),
    unary("math.expm1", "Expm1", floats=True),
    unary("math.log", "Log", floats=True),
    unary("math.log1p", "Log1p", floats=True),
    unary("math.sin", "Sin", "sin", floats=True),
    unary("math.cos", "Cos", "cos", floats=True),
    unary("math.tan", "Tan", "tan", floats=True),
    unary("math.asin", "Arcsin", "asin", floats=True),
    unary("math.acos", "Arccos", "acos", floats=True),
    unary("math.atan", "Arctan", "atan", floats=True),
    unary("math.sinh", "Sinh", "sinh", floats=True),
    unary("math.cosh", "Cosh", "cosh", floats=True),
    unary("math.tanh", "Tanh", "tanh", "nn.tanh", floats=True),
    unary("math.asinh", "Arcsinh", "asinh", floats=True),
    unary("math.acosh", "Arccosh", "acosh", floats=True),
    unary("math.atanh", "Arctanh", "atanh", floats=True),
    unary("math.floor", "Floor", "floor", floats=True),
    unary("math.ceil", "Ceil", "compat.v1.ceil", floats=True),
    OperationRow(
        functions=("math.round", "round"),
        module="numpy",
        op="Round",
        pairs=(tensor("x"),),
        floats=True,
    ),
    unary("math.erf", "Erf", module="math", floats=True),
    unary("math.is_nan", "Isnan", floats=True, result="bool"),
    unary("math.is_inf", "Isinf", floats=True, result="bool"),
    unary("math.is_finite", "Isfinite", floats=True, result="bool"),
    OperationRow(
        functions=("where",),
        module="numpy",
        op="Where",
        pairs=(
            tensor("condition", "condition", kind=ParameterKind.FREE),
            tensor("x", "x1"),
            tensor("y", "x2"),
        ),
    ),
    OperationRow(
        functions=("clip_by_value",),
        module="numpy",
        op="Clip",
        pairs=(tensor("t"), option("clip_value_min", "x_min"), option("clip_value_max", "x_max")),
    ),
    OperationRow(
        functions=("cast", "dtypes.cast"),
        module="core",
        op="Cast",
        pairs=(tensor("x"), option("dtype", kind=ParameterKind.DTYPE)),
        result="@dtype",
    ),
    OperationRow(
        functions=("stop_gradient",),
        module="core",
        op="StopGradient",
        pairs=(tensor("input", "variable"),),
    ),
    unary("identity", "Copy", of="input"),
    _like("zeros_like", "ZerosLike", "compat.v1.zeros_like"),
    _like("ones_like", "OnesLike", "compat.v1.ones_like"),
)
