"""Ranges of bytes in two files, compared block by block."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

BLOCK: Final = 16 * 2**20
"""The most that is held of a tensor at once."""

_COMPARED: Final = 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class Range:
    """Bytes in an open file."""

    descriptor: int
    start: int
    size: int


def equal(one: Range, other: Range) -> bool:
    """Return whether two ranges hold the same bytes."""
    if one.size != other.size:
        return False
    for offset in range(0, one.size, _COMPARED):
        count = min(_COMPARED, one.size - offset)
        if os.pread(one.descriptor, count, one.start + offset) != os.pread(other.descriptor, count, other.start + offset):
            return False
    return True
