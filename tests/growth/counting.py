"""
How much work a command does on a file: the steps that it spends, the functions that it calls, and
its time and memory.
"""

from __future__ import annotations

import gc
import sys
import time
import tracemalloc
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from policytool.support import steps
from tests.conftest import run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextvars import ContextVar
    from pathlib import Path
    from types import CodeType, FrameType

COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    "inspect": ("inspect",),
    "audit": ("audit", "--target", "keras3"),
    "migrate to keras3": ("migrate", "--target", "keras3", "--preview"),
    "migrate to tf_keras": ("migrate", "--target", "tf_keras", "--preview"),
    "diff": ("diff",),
    "html": ("audit", "--format", "html"),
}
"""What is run on each file; ``diff`` on two of them."""


_MOST: Final = 10_000_000
"""Events after which a command is ended: exponential work fails a test instead of going on."""


class _BudgetOnly:
    """The context variable of the current budget, which must be there whenever steps are spent."""

    def __init__(self, inner: ContextVar[steps.Budget]) -> None:
        self.inner = inner
        self.opened: list[steps.Budget] = []
        self.set, self.reset = self._set, inner.reset

    def _set(self, budget: steps.Budget) -> object:
        self.opened.append(budget)
        return self.inner.set(budget)

    def get(self, *default: steps.Budget | None) -> steps.Budget | None:
        result = self.inner.get(*default)
        caller = sys._getframe(1).f_code  # noqa: SLF001  # who asks decides whether it must be open
        assert result is not None or caller is not steps.spend.__code__, "no budget is open"
        return result


@contextmanager
def budgets() -> Iterator[list[steps.Budget]]:
    """Collect the budgets that are opened, and fail if steps are spent without one."""
    with pytest.MonkeyPatch.context() as patch:
        current = _BudgetOnly(steps._CURRENT)  # noqa: SLF001  # what a test replaces
        patch.setattr(steps, "_CURRENT", current)
        yield current.opened


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """What one command did."""

    steps: int
    calls: int
    """Calls of functions, also of those that a library written in C provides."""

    by_function: Counter[CodeType | str]
    seconds: float
    code: int
    errors: str


def work(command: str, path: Path, options: Sequence[str] = ()) -> Work:
    """Return the work that a command does on a file, after its modules were imported."""
    gc.collect()
    calls: Counter[CodeType | str] = Counter()
    left = iter(range(_MOST))

    def count(frame: FrameType, event: str, function: object) -> None:
        assert next(left, None) is not None, "too many calls"
        if event == "call":
            calls[frame.f_code] += 1
        elif event == "c_call":
            calls[getattr(function, "__qualname__", "?")] += 1

    arguments = (*COMMANDS[command], *options, path, *([path] if command == "diff" else ()))
    with budgets() as opened:
        start = time.process_time()
        sys.setprofile(count)
        try:
            ended = run(*arguments)
        finally:
            sys.setprofile(None)
    return Work(
        steps=sum(budget.spent for budget in opened),
        calls=calls.total(),
        by_function=calls,
        seconds=time.process_time() - start,
        code=ended.code,
        errors=ended.err,
    )


def peak_bytes(command: str, path: Path) -> int:
    """Return the most memory that Python objects need at once while a command runs."""
    arguments = (*COMMANDS[command], path, *([path] if command == "diff" else ()))
    tracemalloc.start()
    try:
        run(*arguments)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
