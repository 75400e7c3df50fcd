"""
Numbers of seven bits a byte, lowest first, as protobuf, LevelDB's tables and TensorFlow's string
tensors write them.
"""

from __future__ import annotations

from typing import Final

_LONGEST: Final = 10
"""Bytes of a number of 64 bits."""

_MORE: Final = 0x80


def read_varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """
    Return the number at ``position`` and the position after it.

    :raises ValueError: where it does not end before ``end``, or is longer than any number of 64
        bits.
    """
    value = 0
    for index in range(_LONGEST):
        if position + index >= end:
            break
        byte = data[position + index]
        value |= (byte & ~_MORE) << 7 * index
        if byte < _MORE:
            return value, position + index + 1
    raise ValueError(f"no valid number at byte {position}")
