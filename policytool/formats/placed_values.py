"""
The values of a new file's variables, block by block: copied, cast, multiplied, or filled in.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from policytool.formats import casting
from policytool.formats.casting import numpy_dtype
from policytool.formats.document import BLOCK, ValuesError
from policytool.formats.writing import WriteError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from policytool.formats.casting import Counts
    from policytool.formats.document import Values
    from policytool.formats.edits import Assembly, Placement

    Array = npt.NDArray[Any]


_WIDE: Final = "float64"
"""The dtype in which values are multiplied, so that they are rounded only once."""


def stored_blocks(
    placement: Placement, values: Values | None
) -> Iterator[tuple[Array, Counts | None]]:
    """
    Yield a variable's values for the new file in C order: flat arrays of its stored dtype, each
    with the counts of its cast.

    bfloat16 arrays have the dtype of ``ml_dtypes``; 8-bit floats are yielded as their bits. Values
    that are not floats change their dtype only if every value stays the same.

    :raises WriteError: for values that cannot be read or cannot be cast, and if the number of
        values does not match the shape.
    """
    name, expected_count = "/".join(placement.path), math.prod(placement.shape)
    count = 0
    try:
        for block, counts in _make_blocks(placement, values):
            count += block.size
            yield block, counts
    except ValuesError as error:
        raise WriteError(
            "not-rewritable", f"the values of {name} cannot be copied: {error}"
        ) from error
    if count != expected_count:
        raise WriteError(
            "not-rewritable",
            (f"{name} has shape {list(placement.shape)}, but {count} values were provided for it"),
        )


def dtype_of(placement: Placement) -> np.dtype[Any]:
    """
    Return NumPy's dtype of a variable.

    :raises WriteError: if variables of this dtype cannot be written.
    """
    try:
        return numpy_dtype(placement.dtype)
    except ValuesError as error:
        raise WriteError(
            "not-rewritable",
            f"{'/'.join(placement.path)} cannot be stored as {placement.dtype}: only "
            "numbers and booleans are supported",
        ) from error


def same_values(expected: Iterable[Array], other: Iterable[Array]) -> bool:
    """Return whether two streams of blocks contain the same bytes; block sizes may differ."""
    first, second = (iter(blocks) for blocks in (expected, other))
    block = other_block = np.zeros(0, dtype=np.uint8)
    while True:
        block = block if block.size else _next(first)
        other_block = other_block if other_block.size else _next(second)
        count = min(block.size, other_block.size)
        if not count:
            return block.size == other_block.size
        if not np.array_equal(block[:count], other_block[:count]):
            return False
        block, other_block = block[count:], other_block[count:]


def _next(blocks: Iterator[Array]) -> Array:
    """Return the bytes of the next block that is not empty; an empty array at the end."""
    return next(
        (np.ascontiguousarray(block).view(np.uint8) for block in blocks if block.size),
        np.zeros(0, dtype=np.uint8),
    )


def _make_blocks(
    placement: Placement, values: Values | None
) -> Iterator[tuple[Array, Counts | None]]:
    """
    Yield the values of a placement in blocks, from its source, its assembly, or its fill value.
    """
    if placement.made_of is not None:
        yield _store_block(
            placement, placement.made_of.parts[0].dtype, _assemble(placement.made_of, values), 0
        )
        return
    if placement.source is None:
        yield from ((block, None) for block in _fill(placement))
        return
    if values is None:
        raise ValuesError("the source stores no values")
    value_count = 0
    for block in values.blocks(placement.source):
        yield _store_block(placement, placement.source.dtype, block, value_count)
        value_count += block.size


def _assemble(assembly: Assembly, values: Values | None) -> Array:
    """
    Return the values that several tensors form, as a flat array. The tensors are read completely,
    because the kernels of old models are small enough.
    """
    if values is None:
        raise ValuesError("the source stores no values")
    parts = []
    for tensor in assembly.parts:
        array = np.concatenate([np.ravel(block) for block in values.blocks(tensor)]).reshape(
            assembly.reshape or tensor.shape or ()
        )
        transposed = array.transpose(assembly.axes) if assembly.axes else array
        parts.append(np.flip(transposed, assembly.flip) if assembly.flip else transposed)
    if assembly.product is not None:
        first, left, right = (part.astype(_WIDE) for part in parts)
        with np.errstate(all="ignore"):
            merged = first + assembly.product * np.matmul(left, right)
        return np.ravel(merged.astype(parts[0].dtype))
    return (
        np.concatenate(parts, axis=-1).ravel()
        if len(parts) > 1
        else np.ascontiguousarray(parts[0]).ravel()
    )


def _store_block(
    placement: Placement, before: str, block: Array, value_count: int
) -> tuple[Array, Counts | None]:
    """Return the stored form of a block that follows ``value_count`` values."""
    after, rounding_dtype = placement.dtype, placement.through
    if placement.scale is not None:
        factors = np.asarray(placement.scale, dtype=_WIDE)
        with np.errstate(all="ignore"):
            wide_block = _cast(block, before, _WIDE)[0] * np.resize(
                np.roll(factors, -(value_count % factors.size)), block.size
            )
        return _cast(wide_block, _WIDE, after, rounding_dtype)
    if before == after and rounding_dtype in {None, after}:
        return block, None
    if {before, after} <= casting.DTYPES.keys():
        return _cast(block, before, after, rounding_dtype)
    return _cast_exactly(block, dtype_of(placement)), None


def _cast(
    block: Array, before: str, after: str, rounding_dtype: str | None = None
) -> tuple[Array, Counts]:
    try:
        return casting.cast(block, before, after, rounding_dtype)
    except ValueError as error:
        raise ValuesError(str(error)) from error


def _cast_exactly(block: Array, dtype: np.dtype[Any]) -> Array:
    """
    Return a block in another dtype.

    :raises ValuesError: if the dtype cannot represent every value
    """
    if block.dtype.kind not in "biuf" or dtype.kind not in "biuf":
        raise ValuesError(f"{block.dtype} cannot be cast to {dtype}")
    with np.errstate(all="ignore"):
        cast_block = block.astype(dtype)
        restored = cast_block.astype(block.dtype)
    if not np.array_equal(restored, block) or (
        dtype.kind == "u" and block.dtype.kind != "u" and bool(np.any(block < 0))
    ):
        raise ValuesError(f"{dtype} cannot represent some of its values")
    return cast_block


def _fill(placement: Placement) -> Iterator[Array]:
    """Yield the fill values of the placement."""
    if placement.fill is None:
        raise ValuesError("neither the source nor the conversion provides values")
    total, dtype = math.prod(placement.shape), dtype_of(placement)
    if len(placement.fill) not in {1, total}:
        raise ValuesError(
            f"{len(placement.fill)} values do not match a shape with {total} elements"
        )
    step = BLOCK // np.dtype(_WIDE).itemsize
    for start in range(0, total, step):
        count = min(step, total - start)
        wide_values = (
            np.full(count, placement.fill[0], _WIDE)
            if len(placement.fill) == 1
            else np.asarray(placement.fill[start : start + count], _WIDE)
        )
        yield (
            _cast(wide_values, _WIDE, placement.dtype, placement.through)[0]
            if placement.dtype in casting.DTYPES
            else _cast_exactly(wide_values, dtype)
        )
