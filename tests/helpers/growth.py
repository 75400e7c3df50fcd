"""
How the cost of a command grows with a file: events of Python's profiler (calls of Python and C
functions), steps of the file's budget, processor time and memory.

Events and steps are the same in every run, so a test can compare them; time and memory are only
recorded. Events also count the walks that do not spend steps.
"""

from __future__ import annotations

import gc
import sys
import time
import tracemalloc
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from unittest import mock

from policytool.support import steps
from tests.conftest import run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    "inspect": ("inspect",),
    "audit": ("audit", "--target", "keras3", "--fail-on", "never"),
    "migrate": ("migrate", "--target", "keras3", "--dry-run"),
    "diff": ("diff",),
}
"""The commands whose cost grows with the content of one file; ``diff`` reads it twice."""

_NOISE: Final = 2_000
"""Events or steps by which costs may differ whatever the size is."""

_MOST: Final = 2.7
"""
How many times as much the last doubling may cost as the one before: 2 is linear, about 2.3 is
n·log n for these sizes, and 4 is quadratic.
"""


@dataclass(frozen=True, slots=True)
class Shape:
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """What one run of a command cost."""

    code: int
    events: int
    steps: int
    seconds: float
    peak: int = 0
    """Bytes that Python allocated at once; 0 if they were not measured."""


def cost(command: Sequence[str], path: Path, *, memory: bool = False) -> Cost:
    """Run a command on a file in this process and return its cost."""
    arguments: list[str | Path] = [*command, *([path, path] if command[0] == "diff" else [path])]
    events = spent = 0
    spend = steps.Budget.spend

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal events
        events += event in {"call", "c_call"}

    def counting(budget: steps.Budget, number: int, walk: str) -> None:
        nonlocal spent
        spent += number
        spend(budget, number, walk)

    gc.collect()
    if memory:
        tracemalloc.start()
    start = time.process_time()
    with mock.patch.object(steps.Budget, "spend", counting):
        if not memory:
            sys.setprofile(count)
        try:
            ended = run(*arguments)
        finally:
            sys.setprofile(None)
    seconds = time.process_time() - start
    peak = 0
    if memory:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert ended.code in {0, 1, 3}, ended.err
    return Cost(code=int(ended.code), events=events, steps=spent, seconds=seconds, peak=peak)


def excess(costs: Sequence[Cost]) -> str:
    """
    Return what grows faster than n·log n in the costs of n, 2n and 4n; an empty text if nothing
    does.
    """
    found = []
    for what in ("events", "steps"):
        one, two, four = (getattr(each, what) for each in costs)
        if four - two > _MOST * max(two - one, 0) + _NOISE:
            found.append(f"{what}: {one}, {two}, {four}")
    return "; ".join(found)


def costs(shape: Shape, command: str, directory: Path, *, memory: bool = False) -> tuple[Cost, ...]:
    """Return the costs of a command for a file of the shape's size, twice and four times that."""
    arguments = (*COMMANDS[command], *shape.options)
    paths = []
    for factor in (1, 2, 4):
        folder = directory / str(factor)
        folder.mkdir()
        paths.append(shape.make(folder, factor * shape.size))
    cost(arguments, paths[0])  # imports modules and fills caches
    return tuple(cost(arguments, path, memory=memory) for path in paths)
