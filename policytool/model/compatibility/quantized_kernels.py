"""
The variables that quantization adds for a kernel, and the shape in which int4 stores it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from policytool.releases.output_shapes import Shape

SCALES: Final = {"int8": 1, "float8": 6}
"""
By quantization mode, the number of variables that a layer has in addition to its kernel. Measured
in Keras 3.3, 3.6 and 3.15.
"""

CALIBRATED: Final = {"gptq": 3, "awq": 4}
"""
The same for modes that are calibrated. Keras 3.15 does not write the zero points to archives, but
expects them, so that it fails to load its own archives, whether they were calibrated or not.
Archives of Keras 3.12 have them. HDF5 files have all variables (measured in Keras 3.12 and 3.15).
"""


def matrix_shape(equation: str, shape: Shape) -> Shape | None:
    """Return the shape of an EinsumDense kernel as a matrix; its rows are summed over."""
    inputs, _, output = equation.partition("->")
    kernel = inputs.partition(",")[2]
    sizes = [size for size in shape if size is not None]
    if len(sizes) != len(kernel):
        return None
    pairs = list(zip(kernel, sizes, strict=True))
    rows = math.prod(size for label, size in pairs if label not in output)
    return rows, math.prod(sizes) // max(rows, 1)


def added_count(mode: str, name: str) -> int | None:
    """
    Return the number of variables that a quantization mode adds for a kernel; None if unknown. For
    blocks of rows, int4 adds scales, zero points and, except for the kernel that reverses an
    embedding, the block of each row (measured in Keras 3.15).
    """
    mode, separator, block_size = mode.partition("/")
    if not separator:
        return SCALES.get(mode)
    if mode != "int4":
        return CALIBRATED.get(mode)
    return 1 if block_size == "-1" else 2 if name.startswith("reverse") else 3
