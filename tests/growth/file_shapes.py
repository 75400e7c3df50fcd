"""Files that exist in any size, and how the work of a command grows with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.growth.counting import work

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.growth.counting import Work

_NOISE: Final = 2_000
"""Calls or steps by which works may differ whatever the size is."""

_MOST: Final = 2.7
"""
How many times as much the last doubling may take as the one before: 2 is linear, about 2.3 is
n·log n for these sizes, and 4 is quadratic.
"""


@dataclass(frozen=True, slots=True)
class FileShape:
    """A kind of file that exists in any size."""

    make: Callable[[Path, int], Path]
    """Writes a file of a size into an empty directory and returns its path."""

    size: int = 50
    limits: tuple[str, ...] = ()
    """
    The limits, as ``NAME=VALUE``, that end the walks which visit a part of the file again for each
    place that refers to it: so low that they end them in the smallest file.
    """

    @property
    def options(self) -> tuple[str, ...]:
        """The options that set the limits."""
        return tuple(part for limit in self.limits for part in ("--limit", limit))


def excess(works: Sequence[Work]) -> str:
    """
    Return what grows faster than n·log n in the works on files of n, 2n and 4n; an empty text if
    nothing does.
    """
    growing = []
    for what in ("calls", "steps"):
        small, middle, large = (getattr(work, what) for work in works)
        if large - middle > _MOST * max(middle - small, 0) + _NOISE:
            growing.append(f"{what}: {small}, {middle}, {large}")
    return "; ".join(growing)


def works(shape: FileShape, command: str, directory: Path) -> tuple[Work, ...]:
    """Return the work of a command on a file of the shape's size, twice and four times that."""
    paths = []
    for factor in (1, 2, 4):
        folder = directory / str(factor)
        folder.mkdir()
        paths.append(shape.make(folder, factor * shape.size))
    work(command, paths[0], shape.options)  # imports modules and fills caches
    return tuple(work(command, path, shape.options) for path in paths)
