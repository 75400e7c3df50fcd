"""Progress on a terminal's stderr, and which files were skipped on the way."""

from __future__ import annotations

import sys
from itertools import chain, islice
from typing import TYPE_CHECKING, Final, TypeVar

from policytool.cli import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Item = TypeVar("Item")
MANY: Final = 20
"""Fewer files are done before a bar could be read."""


def track(items: Iterable[Item], total: int, progress: str, what: str) -> Iterator[Item]:
    """
    Yield the items, with a bar on stderr where one is wanted: ``on``, or ``auto`` on a terminal
    with many items.
    """
    if (
        progress == "off"
        or not total
        or (progress == "auto" and (total < MANY or not sys.stderr.isatty()))
    ):
        yield from items
        return
    from rich.console import Console  # 30 ms, only where a bar is shown
    from rich.progress import track

    every = iter(items)
    # The first item comes before the bar has a thread: a copy of this process would not have the
    # thread (policytool.support.processes.crash_guard).
    first = list(islice(every, 1))
    yield from track(
        chain(first, every),
        description=what,
        total=total,
        console=Console(stderr=True),
        transient=True,
    )


def steps(progress: str) -> Callable[[str], None]:
    """
    Return what shows the steps of a long job, one line over the other on a terminal, one below the
    other where ``on`` asks for it elsewhere.
    """
    if progress == "off" or (progress == "auto" and not sys.stderr.isatty()):
        return lambda _: None
    end = "" if sys.stderr.isatty() else "\n"
    start = "\r\x1b[K" if sys.stderr.isatty() else ""

    def show(step: str) -> None:
        sys.stderr.write(f"{start}policytool: {messages.escape(step)}{end}" if step else start)
        sys.stderr.flush()

    return show


def left_out(count: int, *, weights: bool = False) -> str:
    """
    Return how many files were skipped because they are not models, as a sentence.

    :param weights: whether files that contain only weights were skipped as well
    """
    files = "file that is not a model" if count == 1 else "files that are not models"
    only = "contains only weights" if count == 1 else "contain only weights"
    return f"skipped {count:,} {files}{f' or {only}' if weights else ''}"
