"""
What stays behind if this process ends in the middle: process groups that it started, and temporary
files and directories.

Whoever ends at once removes them first (:func:`clear`). A copy of a process
(:mod:`policytool.support.processes.crash_guard`) keeps the list in memory that it shares with the
original, so that the original removes what is left by a copy that crashed or was killed.
"""

from __future__ import annotations

import contextlib
import os
import struct
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import mmap
    from collections.abc import Iterator

_SLOTS: Final = 128
"""
Entries at a time. A command has at most a dozen, beside the drafts of the files of one directory;
the next run removes those beyond.
"""

_SLOT: Final = 4352
"""Bytes of an entry: a path has at most 4,096."""

_HEAD: Final = struct.Struct("=BI")


class _Kind(IntEnum):
    FREE = 0
    GROUP = 1
    PATH = 2


@dataclass(kw_only=True, slots=True)
class _Entries:
    """The entries of this process, in memory that a copy shares with its original."""

    memory: bytearray | mmap.mmap = field(default_factory=bytearray)

    def add(self, kind: _Kind, value: bytes) -> int:
        """Add an entry, and return its position; -1 if there is no room for it."""
        if not self.memory:
            self.memory = bytearray(size())
        for start in range(0, len(self.memory), _SLOT):
            if self.memory[start] == _Kind.FREE and _HEAD.size + len(value) <= _SLOT:
                self.memory[start + _HEAD.size : start + _HEAD.size + len(value)] = value
                # the kind last: whoever reads an entry reads a whole one
                self.memory[start + 1 : start + _HEAD.size] = _HEAD.pack(0, len(value))[1:]
                self.memory[start] = kind
                return start
        return -1

    def remove(self, start: int) -> None:
        """Remove an entry."""
        if start >= 0:
            self.memory[start] = _Kind.FREE

    def of_kind(self, kind: _Kind) -> Iterator[tuple[int, bytes]]:
        """Yield the entries of a kind with their positions."""
        for start in range(0, len(self.memory), _SLOT):
            if self.memory[start] == kind:
                length = _HEAD.unpack_from(self.memory, start)[1]
                yield start, bytes(self.memory[start + _HEAD.size : start + _HEAD.size + length])


_entries: Final = _Entries()


def size() -> int:
    """Return the bytes that the list needs."""
    return _SLOTS * _SLOT


def share(memory: mmap.mmap) -> None:
    """Keep the list in memory that another process reads; this process has no entry yet."""
    _entries.memory = memory


def add_group(leader: int) -> int:
    """Add a process group by its leader, and return the entry."""
    return _entries.add(_Kind.GROUP, str(leader).encode())


def add_path(path: str | os.PathLike[str]) -> int:
    """Add a file or directory, before it is created, and return the entry."""
    return _entries.add(_Kind.PATH, os.fsencode(os.path.abspath(path)))  # noqa: PTH100  # cheaper than pathlib


def remove(entry: int) -> None:
    """Remove an entry: its process has ended, or its path was removed or is a result by now."""
    _entries.remove(entry)


def clear() -> None:
    """End the process groups of the list, and remove its files and directories."""
    for start, value in _entries.of_kind(_Kind.GROUP):
        with contextlib.suppress(OSError):
            os.killpg(int(value), _KILL)
        _entries.remove(start)
    for start, value in _entries.of_kind(_Kind.PATH):
        _delete(os.fsdecode(value))
        _entries.remove(start)


_KILL: Final = 9
"""SIGKILL, which Windows has no name for, and no process groups."""


def _delete(path: str) -> None:
    try:
        os.unlink(path)  # noqa: PTH108  # as above
    except FileNotFoundError:
        return
    except OSError:  # a directory
        import shutil

        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def temporary_directory() -> Iterator[str]:
    """
    Create a directory for this process and those that it starts, and remove it at the end, also if
    this process is ended by a signal.

    :raises OSError: if none can be created.
    """
    import tempfile  # hashlib and random

    path = os.path.join(  # noqa: PTH118  # as above
        tempfile.gettempdir(), f"policytool-{os.urandom(8).hex()}"
    )
    entry = add_path(path)
    try:
        os.mkdir(path, 0o700)  # noqa: PTH102  # as above
        yield path
    finally:
        _delete(path)
        remove(entry)
