"""Progress on a terminal's stderr, and nothing anywhere else."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Item = TypeVar("Item")
MANY: Final = 20
"""Fewer files are done before a bar could be read."""


def counted(items: Iterable[Item], total: int, progress: str, what: str) -> Iterator[Item]:
    """Yield the items, with a bar on stderr where one is wanted: ``on``, or ``auto`` on a terminal with many items."""
    if progress == "off" or (progress == "auto" and (total < MANY or not sys.stderr.isatty())):
        yield from items
        return
    from rich.console import Console  # 30 ms, only where a bar is shown
    from rich.progress import track

    yield from track(items, description=what, total=total, console=Console(stderr=True), transient=True)
