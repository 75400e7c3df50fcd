"""
What a recorded run keeps of a tensor: counts, its range and norm, its exponents, a digest of the
rounded values, a sample and a sketch.

A sketch has the sums of the values with random signs, each value in one of a few sums (M. Charikar,
K. Chen and M. Farach-Colton, Finding Frequent Items in Data Streams, 2002). The sketch of a
difference is the difference of the sketches, and its norm is that of the difference within about a
tenth. Two runs can therefore be compared without their activations, however few values differ.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from typing import Any, Iterable

SKETCH = 128
"""The number of sums of a sketch."""

SAMPLE = 64
"""The number of values of a sample, evenly spaced over the first batch."""

_BLOCK = 2**20
"""The number of values after which signs and sums repeat, permuted for each block."""

_EXPONENTS = 256
_ROUNDING = 0x1000
"""The digest ignores the last 12 bits of the 23 bits of a fraction in float32, rounded."""

_MIXING = ((32, 0xD6E8FEB86659FD93), (29, 0x9E3779B97F4A7C15))
"""Shifts and odd factors that mix the bits of a value into all bits of its hash."""

_RANDOM = np.random.RandomState(0)  # the same values in every release of NumPy
_SUMS = _RANDOM.randint(0, SKETCH, _BLOCK)
_SIGNS = 1.0 - 2.0 * _RANDOM.randint(0, 2, _BLOCK)


def weights_sum(arrays: Iterable[Any]) -> int:
    """
    Return a number that changes with any value of the weights, but not with their order, so that a
    layer whose weights another release transposes or joins has the same number. Zeros do not count.
    """
    total = 0
    for array in arrays:
        flat = np.ravel(array)
        for start in range(0, flat.size, _BLOCK):
            total += _hashed_sum(flat[start : start + _BLOCK])
    return total % 2**64


def _hashed_sum(values: Any) -> int:
    """Return the sum of the hashes of some values, which are floats or quantized."""
    if values.dtype.kind in "iu":
        bits = values.astype("int64").view("uint64")
    elif values.dtype == np.float64:
        bits = (values + 0.0).view("uint64")  # without -0.0
    else:
        bits = (np.asarray(values, "float32") + np.float32(0)).view("uint32").astype("uint64")
    for shift, factor in _MIXING:
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    return int((bits ^ (bits >> np.uint64(31))).sum(dtype="uint64"))


class ValueRecord:
    """The record of one tensor over all batches."""

    def __init__(self) -> None:
        self.elements = self.nan = self.infinite = 0
        self.ends = [np.inf, -np.inf]
        """The least and the largest finite value."""

        self.squares = 0.0
        self.sketch = np.zeros(SKETCH)
        self.sample = np.full(SAMPLE, np.nan)
        self.exponents = np.zeros(_EXPONENTS, "int64")
        self._digest = hashlib.sha256()

    def update(self, array: Any) -> None:
        """Add the values of a batch, in their order."""
        flat = np.ravel(array)
        if flat.dtype.kind in "OSU":
            for text in flat.tolist():
                self._digest.update(text if isinstance(text, bytes) else str(text).encode())
                self._digest.update(b"\0")
            self.elements += flat.size
            return
        if not self.elements and flat.size:
            places = np.linspace(0, flat.size - 1, SAMPLE).astype("int64")
            self.sample = flat[places].astype("float64")
        start = 0
        while start < flat.size:
            size = min(_BLOCK - self.elements % _BLOCK, flat.size - start)
            self._add(flat[start : start + size])
            start += size

    def to_json(self) -> dict[str, Any]:
        """Return the numbers by name, without the sketch and the sample."""
        return {
            "elements": self.elements,
            "nan": self.nan,
            "infinite": self.infinite,
            "range": self.ends if self.ends[0] <= self.ends[1] else None,
            "squares": self.squares,
            "digest": self._digest.hexdigest(),
        }

    def _add(self, values: Any) -> None:
        """Add values that lie in one block."""
        floats = np.asarray(values, "float32")
        bits = (floats + np.float32(0)).view("uint32")  # without -0.0
        self.exponents += np.bincount((bits >> 23) & 255, minlength=_EXPONENTS)
        rounded = (bits.astype("uint64") + _ROUNDING // 2) // _ROUNDING
        self._digest.update(rounded.astype("<u4").tobytes())
        numbers = np.asarray(values, "float64")
        finite = np.isfinite(numbers)
        if not finite.all():
            nan = int(np.isnan(numbers).sum())
            self.nan += nan
            self.infinite += int(numbers.size - finite.sum()) - nan
            numbers = np.where(finite, numbers, 0.0)
        block, start = divmod(self.elements, _BLOCK)
        key = np.random.RandomState(block + 1).randint(0, SKETCH)
        part = slice(start, start + numbers.size)
        self.sketch += np.bincount(
            _SUMS[part] ^ key, numbers * (_SIGNS[part] * (-1) ** block), SKETCH
        )
        self.squares += float(np.dot(numbers, numbers))
        if finite.any():
            known = numbers[finite] if not finite.all() else numbers
            self.ends = [
                min(self.ends[0], float(known.min())),
                max(self.ends[1], float(known.max())),
            ]
        self.elements += numbers.size
