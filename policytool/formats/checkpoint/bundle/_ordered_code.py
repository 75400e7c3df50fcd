"""
Keys of the slices of partitioned variables, in an encoding that sorts as what it encodes does.

Sources: tensorflow/core/lib/strings/ordered_code.cc, ``EncodeTensorNameSlice`` in
tensorflow/core/util/saved_tensor_slice_util.cc.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

MARK: Final = b"\x00"
"""How the key of a slice begins, and that of no variable: the number zero."""

WHOLE: Final = -1
"""The length of an extent that covers a dimension."""

_ENDED: Final = b"\x00\x01"
_ESCAPES: Final = {0x00: b"\x00\xff", 0xFF: b"\xff\x00"}


def slice_key(name: bytes, extents: Iterable[tuple[int, int]]) -> bytes:
    """
    Return the key of a variable's slice, given as a start and a length (:data:`WHOLE` for all) in
    each dimension.
    """
    numbers = [encode_signed(number) for extent in extents for number in extent]
    return (
        MARK
        + b"".join(_ESCAPES.get(byte, bytes((byte,))) for byte in name)
        + _ENDED
        + encode_unsigned(len(numbers) // 2)
        + b"".join(numbers)
    )


def encode_unsigned(number: int) -> bytes:
    """Return a number of no sign: how many bytes it takes, and these, highest first."""
    size = (number.bit_length() + 7) // 8
    return bytes((size,)) + number.to_bytes(size, "big")


def encode_signed(number: int) -> bytes:
    """
    Return a number with its sign: as many ones at the front as it takes bytes, all inverted where
    it is negative.
    """
    bits = (number if number >= 0 else ~number).bit_length()
    size = (
        bits // 7 + 1
    )  # of the eight bits of each byte, one marks the length; one more is the sign
    header = ((1 << size) - 1) << (7 * size)  # `size` ones from the highest of 8 * size bits
    return ((number & ((1 << 8 * size) - 1)) ^ header).to_bytes(size, "big")
