"""
Results that a copy of this process hands to its original, in case that it crashes over a later item
(:mod:`policytool.support.processes.crash_guard`).
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from policytool.commands.batch.isolation import decode_outcome, encode_outcome
from policytool.support.processes import crash_guard

if TYPE_CHECKING:
    from typing import BinaryIO

    from policytool.commands.batch.task import Task
    from policytool.commands.inspect import Failure

Item = TypeVar("Item")
Request = TypeVar("Request")
Result = TypeVar("Result")


class ResultsOfCopies(ExitStack, Generic[Item, Request, Result]):
    """
    The results of copies that ended, as a context manager.

    The file of the results of several items has no name, and is open in the original and in each
    copy.
    """

    def __init__(self, task: Task[Item, Request, Result], count: int) -> None:
        super().__init__()
        self._task = task
        self._count = count
        self._file: BinaryIO | None = None
        self.known: list[Result | Failure] = []
        """The results of the first items."""

    def __enter__(self) -> Self:
        if self._count > 1 and crash_guard.may_split():
            import tempfile  # hashlib and random, only for several items

            self._file = self.enter_context(tempfile.TemporaryFile(buffering=0))
        return self

    def write(self, result: Result | Failure) -> None:
        """Hand a result to the original; the results before have been handed to it."""
        if self._file is not None:
            left = encode_outcome(result) + b"\n"
            while left:
                left = left[self._file.write(left) :]

    def add(self, failure: Failure) -> bool:
        """
        Add the results of a copy that ended, and the failure of the item over which it ended.

        Return whether there is such an item.
        """
        if self._file is not None:
            read = self._task.readers().result
            self._file.seek(0)
            for line in self._file.read().splitlines()[len(self.known) :]:
                self.known.append(decode_outcome(line, read))
        if len(self.known) == self._count:
            return False
        self.known.append(failure)
        self.write(failure)
        return True
