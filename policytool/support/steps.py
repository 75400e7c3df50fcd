"""
One budget of steps for each file: what bounds the time of everything that walks over its content.

A step is the visit of a value, layer, call, link, node of a graph or pattern. Whoever opens a file
for a command opens its budget with :func:`budget`; every walk over what the file says spends from
it with :func:`spend`, without having to know the file. A walk that visits each node once is within
the budget for any file that the other limits accept; the budget ends the walks that visit nodes
again and again.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from policytool.support.errors import ModelFileError
from policytool.support.limits import FILE_STEPS

if TYPE_CHECKING:
    from collections.abc import Iterator

CODE: Final = "step-limit"
"""The code of the error beyond a budget."""


class Budget:
    """The steps that may still be spent on one file."""

    def __init__(self, path: str, most: int) -> None:
        """Begin a budget; ``path`` is the file as reports show it."""
        self.path = path
        self.most = most
        self.spent = 0
        self.counts: Counter[str] = Counter()
        """The steps spent so far by walk, for tests."""

    def spend(self, count: int, walk: str) -> None:
        """
        Add ``count`` steps.

        :param walk: what the steps visit, for the message
        :raises ModelFileError: if the limit is exceeded, now and at every later step.
        """
        self.counts[walk] += count
        self.spent += count
        if self.spent > self.most:
            excess = FILE_STEPS.exceeded_message(self.spent, counting=True)
            raise ModelFileError(self.path, CODE, f"needs {excess}")


_CURRENT: ContextVar[Budget] = ContextVar("policytool.support.steps")


@contextmanager
def budget(path: str) -> Iterator[Budget]:
    """
    Let the steps of a block count against the budget of a file, which reports show as ``path``.

    Inside a block of the same file, its budget continues. Inside a block of another file, the other
    budget pauses meanwhile.
    """
    outer = _CURRENT.get(None)
    if outer is not None and outer.path == path:
        yield outer
        return
    token = _CURRENT.set(Budget(path, FILE_STEPS.value))
    try:
        yield _CURRENT.get()
    finally:
        _CURRENT.reset(token)


def spend(count: int, *, walk: str) -> None:
    """
    Spend steps from the budget of the current file; without one, nothing is counted. Call it once
    for many nodes before they are visited, not for each of them.

    :param walk: what the steps visit, such as ``"calls of layers"``
    :raises ModelFileError: with :data:`CODE`, if the file needs more steps than the limit.
    """
    current = _CURRENT.get(None)
    if current is not None:
        current.spend(count, walk)
