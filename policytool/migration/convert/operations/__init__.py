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
