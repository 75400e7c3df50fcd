"""
The functions of TensorFlow and the operations of Keras 3 that compute the same, one row each, found
by either side.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.operations import elementwise, neural, reductions, shapes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.migration.convert.operations.rows import OperationRow

ROWS: Final[tuple[OperationRow, ...]] = (
    *elementwise.ROWS,
    *reductions.ROWS,
    *shapes.ROWS,
    *neural.ROWS,
)

BY_FUNCTION: Final[Mapping[str, OperationRow]] = MappingProxyType(
    {name: row for row in reversed(ROWS) for name in row.functions}
)
"""The first row where several have a function."""

BY_OPERATION: Final[Mapping[tuple[str, str], OperationRow]] = MappingProxyType(
    {(row.module, row.op): row for row in reversed(ROWS)}
)

RESULTS: Final[Mapping[str, str | None]] = MappingProxyType(
    {
        **dict.fromkeys(
            (
                *("math.InTopK", "numpy.AllClose", "numpy.IsIn", "numpy.Isclose"),
                *("numpy.Isneginf", "numpy.Isposinf", "numpy.Isreal", "numpy.Signbit"),
            ),
            "bool",
        ),
        **dict.fromkeys(
            (
                *("linalg.MatrixRank", "numpy.Argpartition", "numpy.CountNonzero"),
                *("numpy.Digitize", "numpy.Nanargmax", "numpy.Nanargmin", "numpy.Nonzero"),
                *("numpy.SearchSorted", "numpy.Size"),
            ),
            "int32",
        ),
        **dict.fromkeys(("nn.MultiHot", "nn.PSNR", "nn.Polar", "numpy.Full"), "float32"),
        "math.ViewAsComplex": "complex64",
        **dict.fromkeys(
            (
                *("core.AssociativeScan", "core.Cond", "core.ForiLoop", "core.Map", "core.Scan"),
                *("core.Switch", "core.VectorizedMap", "core.WhileLoop", "function.Function"),
                *("math.ViewAsReal", "nn.CTCDecode", "nn.CTCLoss", "numpy.Ndim"),
            )
        ),
    }
)
"""
What operations without a row give that do not give floats of the dtype of their tensors, where
their config says no dtype (``compute_output_spec`` of each in Keras 3.15); None where it depends on
more than that.
"""
