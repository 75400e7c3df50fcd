"""
CRC-32C with the masking of LevelDB's tables, whose stored checksums would otherwise be checksums of
checksums (tensorflow/core/lib/hash/crc32c.h).
"""

from __future__ import annotations

from typing import Final

import google_crc32c

_MASK: Final = 0xA282EAD8
_ALL: Final = 0xFFFFFFFF


def extend_checksum(checksum: int, data: bytes) -> int:
    """
    Return the checksum of what ``checksum`` is of, followed by ``data``; 0 is that of nothing.
    """
    result: int = google_crc32c.extend(checksum, data)  # it is typed, and its implementation is not
    return result


def masked_checksum(checksum: int) -> int:
    """Return a checksum as it is stored."""
    return (((checksum >> 15) | (checksum << 17)) + _MASK) & _ALL
