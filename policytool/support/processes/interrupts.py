"""
The handling of SIGINT, SIGTERM and SIGHUP, and the list of what must be removed before the end.

The first signal raises KeyboardInterrupt. The process ends at once if it is still running after
:data:`SECONDS`, or if a second signal arrives because the user does not want to wait.

Before it ends at once, it ends the process groups that it started, and removes its temporary files
and directories (:func:`clear`). A copy of a process
(:mod:`policytool.support.processes.crash_guard`) keeps the list in memory that it shares with the
original. The original can then clean up after a copy that crashed or was killed.
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
The maximum number of entries. A command has at most a dozen, and one for each draft of a file in
one directory. The next run removes the drafts that did not fit.
"""

_SLOT: Final = 4352
"""Size in bytes of an entry: a path has at most 4,096 bytes."""

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
                # the kind is written last, so that readers see only complete entries
                self.memory[start + 1 : start + _HEAD.size] = _HEAD.pack(0, len(value))[1:]
                self.memory[start] = kind
                return start
        return -1

    def remove(self, start: int) -> None:
        """Remove an entry."""
        if start >= 0:
            self.memory[start] = _Kind.FREE

    def entries_of_kind(self, kind: _Kind) -> Iterator[tuple[int, bytes]]:
        """Yield the entries of a kind with their positions."""
        for start in range(0, len(self.memory), _SLOT):
            if self.memory[start] == kind:
                length = _HEAD.unpack_from(self.memory, start)[1]
                yield start, bytes(self.memory[start + _HEAD.size : start + _HEAD.size + length])


_entries: Final = _Entries()


def size() -> int:
    """Return the size of the list in bytes."""
    return _SLOTS * _SLOT


def share(memory: mmap.mmap) -> None:
    """Keep the list in memory that another process reads. This process must not have entries."""
    _entries.memory = memory


def add_group(leader: int) -> int:
    """Add a process group by its leader, and return the entry."""
    return _entries.add(_Kind.GROUP, str(leader).encode())


def add_path(path: str | os.PathLike[str]) -> int:
    """Add a file or directory, before it is created, and return the entry."""
    return _entries.add(_Kind.PATH, os.fsencode(os.path.abspath(path)))  # noqa: PTH100  # cheaper than pathlib


def remove(entry: int) -> None:
    """Remove an entry whose process has ended, or whose path was removed or became a result."""
    _entries.remove(entry)


def clear() -> None:
    """End the process groups of the list, and remove its files and directories."""
    for start, value in _entries.entries_of_kind(_Kind.GROUP):
        with contextlib.suppress(OSError):
            os.killpg(int(value), _KILL)
        _entries.remove(start)
    for start, value in _entries.entries_of_kind(_Kind.PATH):
        _delete(os.fsdecode(value))
        _entries.remove(start)


_KILL: Final = 9
"""SIGKILL, which the module signal does not define on Windows."""


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
    Create a directory for this process and its child processes, and remove it at the end of the
    block, also if a signal ends this process.

    :raises OSError: if the directory cannot be created.
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
"""
Seconds from the first signal until the process ends at once. With the time to remove temporary
files, this is about two seconds.
"""

GRACE: Final = 0.8
"""Seconds that another process has to end by itself; part of :data:`SECONDS`."""

TOGETHER: Final = 0.4
"""
Seconds in which a second signal counts as a repetition of the first. A terminal and ``timeout``
signal all processes of a command, and each of these forwards the signal.
"""

_INTERRUPTED: Final = 130


@dataclass(kw_only=True, slots=True)
class _State:
    """The interruption of this process."""

    interrupted_at: float | None = None
    """When the first signal arrived."""

    deferring: bool = False
    has_clock: bool = False
    """Whether a timer of this process already calls :func:`end_if_late` at short intervals."""


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
    """Start the timer that ends this process after :data:`SECONDS`."""
    _state.interrupted_at = time.monotonic()
    if not _state.has_clock and hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, lambda _number, _frame: end_now())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
        signal.setitimer(signal.ITIMER_REAL, SECONDS)


def announce_clock() -> None:
    """Declare that the caller will call :func:`end_if_late` at short intervals."""
    _state.has_clock = True


def end_if_late() -> None:
    """End this process if it was interrupted more than :data:`SECONDS` ago."""
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

    Python ignores an exception that a handler raises while an object is finalized, and h5py
    finalizes many objects.
    """
    if _state.interrupted_at is not None:
        raise KeyboardInterrupt


def resume() -> None:
    """
    Continue after a signal, without a time limit. The next signal is handled as a first one.
    """
    _state.interrupted_at = None
    if not _state.has_clock and hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, 0)


def hide_ignored(unraisable: sys.UnraisableHookArgs) -> None:
    """Print an exception that Python ignores, unless :func:`check` will raise it again."""
    if not (is_interrupted() and issubclass(unraisable.exc_type, KeyboardInterrupt)):
        sys.__unraisablehook__(unraisable)


def numbers() -> list[signal.Signals]:
    """Return the signals to handle: those that this process was not started to ignore."""
    return [
        number
        for name in ("SIGINT", "SIGTERM", "SIGHUP")
        if (number := getattr(signal, name, None)) is not None  # Windows has no SIGHUP
        and signal.getsignal(number) is not signal.SIG_IGN
    ]


def handle() -> None:
    """
    Install :func:`interrupt` as the handler of :func:`numbers`. ``nohup``, and a shell script that
    starts a background job, start processes that ignore some of these signals.
    """
    sys.unraisablehook = hide_ignored
    for number in numbers():
        signal.signal(number, interrupt)


def handle_no_more() -> None:
    """
    Restore the default action of these signals, which ends the process. Call it when only the end
    of the process remains.
    """
    for number in numbers():
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def defer_interrupts() -> Iterator[None]:
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
