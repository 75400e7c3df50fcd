"""
Many values that need little memory: those beyond the first few are kept in a temporary file.

Reports read the results of thousands of models one after the other, some of them several times.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Generic, TypeVar, overload

from policytool.support.errors import ReportError
from policytool.support.text import codec

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import BinaryIO

Value = TypeVar("Value")

FEW: Final = 100
"""Values that stay in memory, so that most runs write no temporary file."""


class SpilledValues(Sequence[Value], Generic[Value]):
    """
    Values of one class, which the codec can encode, in the order in which they were added.

    The temporary file has no name on POSIX systems, so that it is gone when the process ends.
    """

    def __init__(self, cls: type[Value]) -> None:
        self._class = cls
        self._first: list[Value] = []
        self._places = array("Q", [0])
        """Where the line of each of the other values begins, and where the last one ends."""

        self._file: BinaryIO | None = None

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()

    def append(self, value: Value) -> None:
        """
        Add a value.

        :raises ReportError: if the temporary file cannot be written.
        """
        if len(self._first) < FEW:
            self._first.append(value)
            return
        line = codec.encode(value).encode()
        try:
            if self._file is None:
                import tempfile  # hashlib and random, only for many values

                self._file = tempfile.TemporaryFile(prefix="policytool-", buffering=0)  # noqa: SIM115  # it is open as long as this value
            self._file.seek(self._places[-1])
            remaining = line
            while remaining:  # a disk that is nearly full takes a part
                remaining = remaining[self._file.write(remaining) :]
        except OSError as error:
            raise ReportError(
                f"the temporary file for results cannot be written: {error.strerror or error}; "
                "set TMPDIR to a directory on a disk with enough space"
            ) from error
        self._places.append(self._places[-1] + len(line))

    def __len__(self) -> int:
        return len(self._first) + len(self._places) - 1

    @overload
    def __getitem__(self, index: int) -> Value: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Value]: ...

    def __getitem__(self, index: int | slice) -> Value | Sequence[Value]:
        chosen = range(len(self))[index]
        if isinstance(chosen, range):
            return [self[position] for position in chosen]
        other = chosen - len(self._first)
        if other < 0 or self._file is None:
            return self._first[chosen]
        start, end = self._places[other], self._places[other + 1]
        self._file.seek(start)
        return codec.read(self._class, json.loads(self._file.read(end - start)))

    def all(self) -> Sequence[Value]:
        """Return all values: a tuple if they are few."""
        return tuple(self._first) if self._file is None else self


def spill(cls: type[Value], values: Iterable[Value]) -> Sequence[Value]:
    """
    Return values as a sequence that needs little memory.

    :raises ReportError: if there are many, and the temporary file cannot be written.
    """
    spilled = SpilledValues(cls)
    for value in values:
        spilled.append(value)
    return spilled.all()
