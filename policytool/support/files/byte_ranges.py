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


def equal(first: Range, second: Range) -> bool:
    """Return whether two ranges have the same bytes."""
    if first.size != second.size:
        return False
    for offset in range(0, first.size, _COMPARED):
        count = min(_COMPARED, first.size - offset)
        if os.pread(first.descriptor, count, first.start + offset) != os.pread(
            second.descriptor, count, second.start + offset
        ):
            return False
    return True


def same_bytes(path: Path, other_path: Path) -> bool:
    """
    Return whether two files have the same bytes.

    :raises OSError: if a file cannot be read.
    """
    with opening.regular_file(path) as first, opening.regular_file(other_path) as second:
        ranges = [
            Range(descriptor=descriptor, start=0, size=os.fstat(descriptor).st_size)
            for descriptor in (first, second)
        ]
        return equal(ranges[0], ranges[1])
