"""Bytes as they are stored, little-endian and one value after another, as NumPy's values."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import numpy as np

from policytool.formats import casting
from policytool.formats.stored_values import ValuesError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from policytool.formats.stored_values import Array, DType

_EIGHT_BITS: Final = frozenset({"float8_e4m3fn", "float8_e5m2"})


def numpy_dtype(name: str) -> DType:
    """
    Return NumPy's dtype of a Keras name.

    :raises ValuesError: for one that NumPy and ml_dtypes lack.
    """
    if name in casting.DTYPES:
        return casting.DTYPES[name]
    try:
        return np.dtype("u1" if name in _EIGHT_BITS else name)
    except TypeError as error:
        raise ValuesError(f"values of dtype {name} cannot be read") from error


def arrays_of_chunks(chunks: Iterable[bytes], dtype: DType) -> Iterator[Array]:
    """Yield bytes as values, those of an element that a chunk cuts in two with the next."""
    rest = b""
    for chunk in chunks:
        data = rest + chunk if rest else chunk
        count = len(data) // dtype.itemsize
        if count:
            found = np.frombuffer(data, dtype=dtype, count=count)
            yield found if sys.byteorder == "little" else found.byteswap()
        rest = data[count * dtype.itemsize :]
