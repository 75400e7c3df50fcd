"""
Functions that move elements: shapes, axes, joining and cutting, gathering, and matrix products.
"""

from __future__ import annotations

from typing import Final

from policytool.migration.convert.operations.rows import (
    OperationRow,
    ParameterKind,
    option,
    tensor,
)

_SQUEEZED: Final = option("axis", default=None, default3=None, kind=ParameterKind.AXES)

ROWS: Final[tuple[OperationRow, ...]] = (
    OperationRow(
        functions=("reshape",),
        module="numpy",
        op="Reshape",
        pairs=(tensor("tensor"), option("shape", "newshape", kind=ParameterKind.SHAPE)),
    ),
    OperationRow(
        functions=("transpose", "compat.v1.transpose"),
        module="numpy",
        op="Transpose",
        pairs=(tensor("a"), option("perm", "axes", default=None, default3=None)),
        ignored={"conjugate": (False,)},
    ),
    OperationRow(
        functions=("expand_dims", "compat.v1.expand_dims"),
        module="numpy",
        op="ExpandDims",
        pairs=(tensor("input"), option("axis")),
    ),
    OperationRow(
        functions=("squeeze", "compat.v1.squeeze"),
        module="numpy",
        op="Squeeze",
        pairs=(tensor("input"), _SQUEEZED),
        ignored={"squeeze_dims": (None,)},
    ),
    OperationRow(
        functions=("tile",),
        module="numpy",
        op="Tile",
        pairs=(tensor("input"), option("multiples", "repeats")),
    ),
    OperationRow(
        functions=("repeat",),
        module="numpy",
        op="Repeat",
        pairs=(tensor("input"), option("repeats"), option("axis", default=None, default3=None)),
    ),
    OperationRow(
        functions=("broadcast_to",),
        module="numpy",
        op="BroadcastTo",
        pairs=(tensor("input"), option("shape")),
    ),
    OperationRow(
        functions=("reverse",),
        module="numpy",
        op="Flip",
        pairs=(tensor("tensor"), option("axis", default3=None, kind=ParameterKind.AXES)),
    ),
    OperationRow(
        functions=("roll",),
        module="numpy",
        op="Roll",
        pairs=(tensor("input"), option("shift"), option("axis", default3=None)),
    ),
    OperationRow(
        functions=("concat",),
        module="numpy",
        op="Concatenate",
        pairs=(tensor("values", "xs", kind=ParameterKind.TENSORS), option("axis", default3=0)),
    ),
    OperationRow(
        functions=("stack",),
        module="numpy",
        op="Stack",
        pairs=(
            tensor("values", "x", kind=ParameterKind.TENSORS),
            option("axis", default=0, default3=0),
        ),
    ),
    OperationRow(
        functions=("unstack",),
        module="core",
        op="Unstack",
        pairs=(
            tensor("value"),
            option("num", default=None, default3=None),
            option("axis", default=0, default3=0),
        ),
    ),
    OperationRow(
        functions=("split",),
        module="numpy",
        op="Split",
        pairs=(
            tensor("value"),
            option("num_or_size_splits", "indices_or_sections", kind=ParameterKind.SPLITS),
            option("axis", default=0, default3=0),
        ),
        ignored={"num": (None,)},
    ),
    OperationRow(
        functions=("pad", "compat.v1.pad"),
        module="numpy",
        op="Pad",
        pairs=(
            tensor("tensor"),
            tensor("constant_values", "constant_values", kind=ParameterKind.FREE, default=0),
            option("paddings", "pad_width"),
            option("mode", default="CONSTANT", default3="constant", kind=ParameterKind.MODE),
        ),
    ),
    OperationRow(
        functions=("gather", "compat.v1.gather"),
        module="numpy",
        op="Take",
        pairs=(
            tensor("params"),
            tensor("indices", "indices", kind=ParameterKind.FREE),
            option("axis", default=0, default3=None),
        ),
        ignored={"batch_dims": (0,), "validate_indices": (None,)},
    ),
    OperationRow(
        functions=("one_hot",),
        module="nn",
        op="OneHot",
        pairs=(
            tensor("indices", kind=ParameterKind.FREE),
            option("depth", "num_classes"),
            option("axis", default=-1, default3=-1),
            option("dtype", default="float32", default3="float32", kind=ParameterKind.DTYPE),
        ),
        ignored={"on_value": (None, 1, 1.0), "off_value": (None, 0, 0.0)},
        result="@dtype",
    ),
    OperationRow(
        functions=("linalg.matmul", "matmul"),
        module="numpy",
        op="Matmul",
        pairs=(tensor("a", "x1"), tensor("b", "x2")),
        ignored=dict.fromkeys(
            (
                "transpose_a",
                "transpose_b",
                "adjoint_a",
                "adjoint_b",
                "a_is_sparse",
                "b_is_sparse",
                "output_type",
                "grad_a",
                "grad_b",
            ),
            (False, None),
        ),
        floats=True,
    ),
    OperationRow(
        functions=("tensordot",),
        module="numpy",
        op="Tensordot",
        pairs=(tensor("a", "x1"), tensor("b", "x2"), option("axes", default3=2)),
        floats=True,
    ),
    OperationRow(
        functions=("linalg.cross",),
        module="numpy",
        op="Cross",
        pairs=(tensor("a", "x1"), tensor("b", "x2")),
        floats=True,
    ),
    OperationRow(
        functions=("linalg.inv",),
        module="linalg",
        op="Inv",
        pairs=(tensor("input"),),
        ignored={"adjoint": (False,)},
        floats=True,
    ),
    OperationRow(
        functions=("linalg.det",), module="linalg", op="Det", pairs=(tensor("input"),), floats=True
    ),
    OperationRow(
        functions=("linalg.cholesky",),
        module="linalg",
        op="Cholesky",
        pairs=(tensor("input"),),
        floats=True,
    ),
    OperationRow(
        functions=("linalg.solve",),
        module="linalg",
        op="Solve",
        pairs=(tensor("matrix", "a"), tensor("rhs", "b")),
        ignored={"adjoint": (False,)},
        floats=True,
    ),
)
