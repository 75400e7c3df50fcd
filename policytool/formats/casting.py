"""
Casts between the float dtypes of Keras, rounded once to the nearest value, ties to even.

NumPy has no bfloat16, and ml_dtypes casts float64 to bfloat16 through float32, which rounds twice:
1 + 2**-8 + 2**-40 becomes 1 instead of 1.0078125. This module computes bfloat16 from the bits of
float32. It first rounds float64 to odd float32, so that the second rounding has the same result as
a single rounding (Boldo and Melquiond, "When double rounding is odd").

Files store values as contiguous little-endian bytes, which :func:`arrays_of_chunks` converts.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import ml_dtypes
import numpy as np
from msgspec.structs import replace

from policytool.formats.document import ValuesError
from policytool.formats.edits import Counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from policytool.formats.document import Array, DType

__all__ = ["BFLOAT16", "DTYPES", "Counts", "cast", "convert", "count"]

BFLOAT16: Final = "bfloat16"
DTYPES: Final[dict[str, np.dtype[Any]]] = {
    "float16": np.dtype("float16"),
    BFLOAT16: np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype("float32"),
    "float64": np.dtype("float64"),
}
"""The dtypes that can be cast, by their names in Keras."""

_SMALLEST_NORMAL: Final = {
    "float16": 2.0**-14,
    BFLOAT16: 2.0**-126,
    "float32": 2.0**-126,
    "float64": 2.0**-1022,
}
_QUIET: Final = 0x40
"""The bit that keeps a bfloat16 NaN a NaN if the rest of its payload is cut off."""


def cast(array: Array, before: str, after: str, through: str | None = None) -> tuple[Array, Counts]:
    """
    Return the values in another dtype, and the counts of the effects on them.

    Values are first rounded to ``through``, if specified, for files that cannot store that dtype.

    :raises ValueError: for a dtype that is not a float dtype of Keras.
    """
    narrow = through or after
    source = _flat(array, before, after, narrow)
    with np.errstate(all="ignore"):
        rounded = _convert(source, before, narrow)
        return _convert(rounded, narrow, after).reshape(np.shape(array)), _counts(
            source, before, rounded, narrow
        )


def convert(array: Array, before: str, after: str) -> Array:
    """
    Return the values in another dtype, without the counts of :func:`cast`, which takes three times
    as long.

    :raises ValueError: for a dtype that is not a float dtype of Keras.
    """
    with np.errstate(all="ignore"):
        return _convert(_flat(array, before, after), before, after).reshape(np.shape(array))


def count(array: Array, dtype: str, narrow: str | None) -> Counts:
    """
    Count the effects of a cast to ``narrow`` on the values; none if ``narrow`` is None. Also count
    the values that are zero or not finite.

    :raises ValueError: for a dtype that is not a float dtype of Keras.
    """
    source = _flat(array, dtype)
    with np.errstate(all="ignore"):
        float_values = _convert(source, dtype, "float32") if dtype == BFLOAT16 else source
        counts = (
            _counts(source, dtype, _convert(source, dtype, narrow), narrow)
            if narrow
            else Counts(values=int(source.size))
        )
    return replace(
        counts,
        zero=int(np.count_nonzero(float_values == 0)),
        nonfinite=int(np.count_nonzero(~np.isfinite(float_values))),
    )


def _flat(array: Array, before: str, *others: str) -> Array:
    """Return the values as a flat array, after checking that their dtypes are known."""
    unknown = {before, *others} - DTYPES.keys()
    if unknown:
        raise ValueError(
            f"cannot cast {before}{f' to {others[0]}' if others else ''}: "
            f"{', '.join(sorted(unknown))} is not one of {', '.join(DTYPES)}"
        )
    return np.asarray(array, dtype=DTYPES[before]).reshape(
        -1
    )  # NumPy 1 widens integers of arrays without dimensions


def _convert(array: Array, before: str, after: str) -> Array:
    """Return the values in another dtype, without checks."""
    if before == after:
        return array
    if before == BFLOAT16:
        return (
            (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(DTYPES[after])
        )
    if after == BFLOAT16:
        return _to_bfloat16(
            _rounded_to_odd(array) if before == "float64" else array.astype(np.float32)
        )
    return array.astype(DTYPES[after])


def _to_bfloat16(array: Array) -> Array:
    """
    Return float32 values rounded to bfloat16; NaNs keep their sign and the upper part of their
    payload.
    """
    bits = array.view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    return (
        np.where(np.isnan(array), (bits >> 16) | _QUIET, rounded)
        .astype(np.uint16)
        .view(DTYPES[BFLOAT16])
    )


def _rounded_to_odd(array: Array) -> Array:
    """
    Return float64 values as float32. A value between two neighbours becomes the neighbour with an
    odd last bit.
    """
    nearest = array.astype(np.float32)
    inexact = np.isfinite(array) & (nearest.astype(np.float64) != array)
    bits = np.where(
        np.abs(nearest.astype(np.float64)) > np.abs(array),
        np.nextafter(nearest, np.float32(0)),
        nearest,
    ).view(np.uint32)
    return np.where(inexact, bits | 1, bits).astype(np.uint32).view(np.float32)


def _counts(source: Array, before: str, result: Array, after: str) -> Counts:
    """Return the effects of a cast, from the values before and after it."""
    values_before = _convert(source, before, "float32") if before == BFLOAT16 else source
    values_after = np.abs(_convert(result, after, "float32") if after == BFLOAT16 else result)
    return Counts(
        values=int(values_before.size),
        overflow=int(np.count_nonzero(np.isfinite(values_before) & np.isinf(values_after))),
        subnormal=int(
            np.count_nonzero((values_after > 0) & (values_after < _SMALLEST_NORMAL[after]))
        ),
        flushed=int(np.count_nonzero((values_before != 0) & (values_after == 0))),
    )


_EIGHT_BITS: Final = frozenset({"float8_e4m3fn", "float8_e5m2"})


def numpy_dtype(name: str) -> DType:
    """
    Return NumPy's dtype for the name of a Keras dtype.

    :raises ValuesError: for a dtype that NumPy and ml_dtypes lack.
    """
    if name in DTYPES:
        return DTYPES[name]
    try:
        return np.dtype("u1" if name in _EIGHT_BITS else name)
    except TypeError as error:
        raise ValuesError(f"values of dtype {name} cannot be read") from error


def arrays_of_chunks(chunks: Iterable[bytes], dtype: DType) -> Iterator[Array]:
    """Yield the values in chunks of bytes; a chunk may end in the middle of a value."""
    incomplete = b""
    for chunk in chunks:
        data = incomplete + chunk if incomplete else chunk
        count = len(data) // dtype.itemsize
        if count:
            values = np.frombuffer(data, dtype=dtype, count=count)
            yield values if sys.byteorder == "little" else values.byteswap()
        incomplete = data[count * dtype.itemsize :]
