"""Functions that reduce axes, and those that run along one."""

from __future__ import annotations

from typing import Final

from policytool.migration.convert.operations.rows import (
    OperationRow,
    ParameterKind,
    option,
    tensor,
)

_AXIS: Final = option("axis", default=None, default3=None)
_KEEP: Final = option("keepdims", default=False, default3=False)


def _reduction(
    function: str, op: str, *more: str, floats: bool = True, result: str | None = None
) -> OperationRow:
    pairs = (tensor("input_tensor"), _AXIS, _KEEP)
    return OperationRow(
        functions=(function, *more),
        module="numpy",
        op=op,
        pairs=pairs,
        floats=floats,
        result=result,
    )


def _place(function: str, op: str, *more: str) -> OperationRow:
    return OperationRow(
        functions=(function, *more),
        module="numpy",
        op=op,
        pairs=(tensor("input"), option("axis", default=0, default3=None)),
        ignored={"output_type": (None, "int64"), "dimension": (None,)},
        result="int64",
        result3="int32",
    )


ROWS: Final[tuple[OperationRow, ...]] = (
    _reduction("math.reduce_sum", "Sum", "reduce_sum"),
    _reduction("math.reduce_mean", "Mean", "reduce_mean"),
    _reduction("math.reduce_max", "Max", "reduce_max", floats=False),
    _reduction("math.reduce_min", "Min", "reduce_min", floats=False),
    _reduction("math.reduce_max", "Amax", floats=False),
    _reduction("math.reduce_min", "Amin", floats=False),
    _reduction("math.reduce_prod", "Prod", "reduce_prod"),
    _reduction("math.reduce_variance", "Var"),
    _reduction("math.reduce_std", "Std"),
    OperationRow(
        functions=("math.reduce_logsumexp", "reduce_logsumexp"),
        module="math",
        op="Logsumexp",
        pairs=(
            tensor("input_tensor"),
            option("axis", default=None, default3=None, kind=ParameterKind.LIST),
            _KEEP,
        ),
        floats=True,
    ),
    _reduction("math.reduce_any", "Any", "reduce_any", floats=False, result="bool"),
    _reduction("math.reduce_all", "All", "reduce_all", floats=False, result="bool"),
    _place("math.argmax", "Argmax", "argmax", "compat.v1.argmax"),
    _place("math.argmin", "Argmin", "argmin", "compat.v1.argmin"),
    OperationRow(
        functions=("math.cumsum", "cumsum"),
        module="numpy",
        op="Cumsum",
        pairs=(tensor("x"), option("axis", default=0, default3=None)),
        ignored={"exclusive": (False,), "reverse": (False,)},
        floats=True,
    ),
    OperationRow(
        functions=("math.cumprod",),
        module="numpy",
        op="Cumprod",
        pairs=(tensor("x"), option("axis", default=0, default3=None)),
        ignored={"exclusive": (False,), "reverse": (False,)},
        floats=True,
    ),
    OperationRow(
        functions=("math.top_k", "nn.top_k"),
        module="math",
        op="TopK",
        pairs=(
            tensor("input"),
            option("k", default=1),
            option("sorted", default=True, default3=True),
        ),
        ignored={"index_type": ("int32",)},
        others="int32",
    ),
    OperationRow(
        functions=("sort",),
        module="numpy",
        op="Sort",
        pairs=(tensor("values"), option("axis", default=-1, default3=-1)),
        ignored={"direction": ("ASCENDING",)},
    ),
    OperationRow(
        functions=("argsort",),
        module="numpy",
        op="Argsort",
        pairs=(tensor("values"), option("axis", default=-1, default3=-1)),
        ignored={"direction": ("ASCENDING",), "stable": (False, True)},
        result="int32",
    ),
)
