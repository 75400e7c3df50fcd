"""Ranges of bytes in two files, compared block by block."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policytool.support.files import opening

if TYPE_CHECKING:
    from pathlib import Path

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
        if os.pread(one.descriptor, count, one.start + offset) != os.pread(
            other.descriptor, count, other.start + offset
        ):
            return False
    return True


def same_bytes(one: Path, other: Path) -> bool:
    """
    Return whether two files hold the same bytes.

    :raises OSError: where one cannot be read.
    """
    with opening.regular_file(one) as first, opening.regular_file(other) as second:
        ranges = [
            Range(descriptor=descriptor, start=0, size=os.fstat(descriptor).st_size)
            for descriptor in (first, second)
        ]
        return equal(ranges[0], ranges[1])
