"""
The sorted names in a directory, for callers that look up each file of the directory.

The listing of an unchanged directory is reused; otherwise a directory of n files would be listed n
times. Each call checks whether the directory changed.
"""

from __future__ import annotations

import bisect
import time
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SETTLING_NS: Final = 2_000_000_000
"""The coarsest resolution of modification times in use, that of FAT."""


@dataclass(frozen=True)
class Listing:
    """The names in a directory."""

    names: tuple[str, ...]
    """The names in sorted order."""

    @cached_property
    def all(self) -> frozenset[str]:
        """The names as a set."""
        return frozenset(self.names)

    @cached_property
    def _folded(self) -> tuple[tuple[str, str], ...]:
        return tuple(sorted((name.casefold(), name) for name in self.names))

    def beginning(self, start: str) -> Iterator[str]:
        """Yield the names that begin with a text."""
        for number in range(bisect.bisect_left(self.names, start), len(self.names)):
            if not self.names[number].startswith(start):
                return
            yield self.names[number]

    def beginning_in_any_case(self, start: str) -> Iterator[str]:
        """Yield the names that begin with a text, if the case of letters is ignored."""
        start = start.casefold()
        for number in range(bisect.bisect_left(self._folded, (start, "")), len(self._folded)):
            folded_name, name = self._folded[number]
            if not folded_name.startswith(start):
                return
            yield name


def listing(directory: Path) -> Listing:
    """
    Return the current content of a directory.

    :raises OSError: if it cannot be read.
    """
    status = directory.stat()
    if max(status.st_mtime_ns, status.st_ctime_ns) >= time.time_ns() - SETTLING_NS:
        return _read(directory)
    # without the path, because many links can lead to a directory
    version = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
    content = _settled.pop(version, None) or _read(directory)
    _settled[version] = content
    if len(_settled) > _KEPT:
        del _settled[next(iter(_settled))]
    return content


_KEPT: Final = 4
"""The number of cached listings, which suffices for a model's directory and those in it."""

_settled: Final[dict[tuple[int, ...], Listing]] = {}
"""The latest listings by the directory and its state, the newest last."""


def _read(directory: Path) -> Listing:
    return Listing(tuple(sorted(entry.name for entry in directory.iterdir())))
