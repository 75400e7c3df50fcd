"""
The signals that ask this process for an orderly end, and what it removes before it ends.

The first signal raises KeyboardInterrupt. If the process is still running after :data:`SECONDS`, or
if a second signal arrives because a user does not want to wait, it ends at once.

Whoever ends at once first removes (:func:`clear`) process groups that it started, and temporary
files and directories. A copy of a process (:mod:`policytool.support.processes.crash_guard`) keeps
the list in memory that it shares with the original, so that the original removes what is left by a
copy that crashed or was killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    import mmap
    from collections.abc import Iterator
    from types import FrameType


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


SECONDS: Final = 1.6
"""How long an orderly end may take: two seconds, less the time to remove what is left."""

GRACE: Final = 0.8
"""Seconds of them that another process has to end by itself."""

TOGETHER: Final = 0.4
"""
Seconds in which a second signal is the same request: a terminal and ``timeout`` send it to all
processes of a command, and each passes it on.
"""

_INTERRUPTED: Final = 130


@dataclass(kw_only=True, slots=True)
class _State:
    """What this process was asked."""

    interrupted_at: float | None = None
    """When the first signal arrived."""

    deferring: bool = False
    has_clock: bool = False
    """Whether something else in this process calls :func:`end_if_late` at short intervals."""


_state: Final = _State()


def interrupt(_number: int, _frame: FrameType | None) -> None:
    """Handle a signal: raise KeyboardInterrupt, or end at once if it is a second one."""
    if _state.interrupted_at is not None:
        if time.monotonic() - _state.interrupted_at >= TOGETHER:
            end_now()
        return
    begin_shutdown()
    if not _state.deferring:
        raise KeyboardInterrupt


def begin_shutdown() -> None:
    """Begin the time that an orderly end may take."""
    _state.interrupted_at = time.monotonic()
    if not _state.has_clock and hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, lambda _number, _frame: end_now())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
        signal.setitimer(signal.ITIMER_REAL, SECONDS)


def announce_clock() -> None:
    """Say that :func:`end_if_late` is called at short intervals from now on."""
    _state.has_clock = True


def end_if_late() -> None:
    """End this process if it was asked to end and takes too long."""
    if _state.interrupted_at is not None and time.monotonic() - _state.interrupted_at >= SECONDS:
        end_now()


def end_now() -> NoReturn:
    """End this process silently, and remove its temporary files."""
    clear()
    os._exit(_INTERRUPTED)


def is_interrupted() -> bool:
    """Return whether a signal has arrived."""
    return _state.interrupted_at is not None


def check() -> None:
    """
    Raise KeyboardInterrupt if a signal has arrived.

    Python ignores what a handler raises while an object is finalized, and h5py finalizes many.
    """
    if _state.interrupted_at is not None:
        raise KeyboardInterrupt


def resume() -> None:
    """
    Go on after a signal with what was promised for this case, without a bound on its time; the next
    signal is a first one.
    """
    _state.interrupted_at = None
    if not _state.has_clock and hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, 0)


def hide_ignored(unraisable: sys.UnraisableHookArgs) -> None:
    """Print an exception that Python ignores, unless :func:`check` will raise it again."""
    if not (is_interrupted() and issubclass(unraisable.exc_type, KeyboardInterrupt)):
        sys.__unraisablehook__(unraisable)


def numbers() -> list[signal.Signals]:
    """Return these signals, without those that this process was started to ignore."""
    return [
        number
        for name in ("SIGINT", "SIGTERM", "SIGHUP")
        if (number := getattr(signal, name, None)) is not None  # Windows has no SIGHUP
        and signal.getsignal(number) is not signal.SIG_IGN
    ]


def handle() -> None:
    """
    Let these signals end this process in order, except those that it was started to ignore, as
    ``nohup`` and the background jobs of a shell script are.
    """
    sys.unraisablehook = hide_ignored
    for number in numbers():
        signal.signal(number, interrupt)


def handle_no_more() -> None:
    """
    Let these signals end this process as if it had never handled them: all that is left to do is to
    end.
    """
    for number in numbers():
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def deferred() -> Iterator[None]:
    """
    Defer the exception of :func:`interrupt` until the block ends, so that the block completes
    unless it takes too long.
    """
    before, _state.deferring = _state.deferring, True
    earlier_arrival = _state.interrupted_at
    try:
        yield
    finally:
        _state.deferring = before
        if earlier_arrival is None and not before:
            check()
