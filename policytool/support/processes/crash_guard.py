"""
What a library written in C may do to this process over a file: crash, or never return.

Neither is to cost more than that file's report.

Python can stop neither by itself, because its signal handlers wait for the library's call to
return. :func:`watch` therefore lets the system end this process in the middle of a call that takes
too long, and :func:`split` goes on in a copy of this process, so that the original can say what
became of it. Windows has neither.
"""

from __future__ import annotations

import atexit
import os
import signal
import struct
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from policytool.support import limits
from policytool.support.processes import interrupts

if TYPE_CHECKING:
    import mmap
    from collections.abc import Iterator
    from types import FrameType

_SWITCH: Final = "POLICYTOOL_COPY"
_TICK: Final = 0.25
"""Seconds of the clock between signs of life."""

_COUNT: Final = struct.Struct("=I")
_ROOM: Final = 2**15
"""Bytes for a path, which has at most 4,096, and a sentence."""

_MARKS: Final = 2
"""Bytes before them: what a copy says of how it ends."""

_LINES: Final = struct.Struct("=Q")
_START: Final = _MARKS + _LINES.size

_NOT_ENOUGH_MEMORY: Final = ", because a library crashed or memory ran out"
_MAY_LACK_MEMORY: Final = frozenset({"SIGKILL", "SIGABRT", "SIGSEGV", "SIGBUS"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Crash:
    """What stands in the place of what a process was to say."""

    code: str
    how: str
    """What became of the process, as the rest of a sentence that begins with it."""

    details: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lost:
    """A file over which the copy ended."""

    path: str
    code: str
    message: str


@dataclass(kw_only=True, slots=True)
class _Process:
    """What this process is."""

    may_split: bool = False
    is_watched: bool = False
    is_own: bool = False
    """Whether the command started it, and no caller of the package has anything else in it."""

    shared: mmap.mmap | None = None
    """Where a copy tells the original what it does, and an original reads it."""

    lines: int = 0
    """Lines of the report on stdout that are written already; in a copy, those before it began."""


_process: Final = _Process()


def allow() -> None:
    """
    Let :func:`split` copy this process, because it belongs to the command. Callers of the Python
    API never get a second process.

    With ``POLICYTOOL_COPY=0`` in the environment the command runs in one process, which debuggers
    and tracers need.
    """
    _process.is_own = True
    _process.may_split = hasattr(os, "fork") and os.environ.get(_SWITCH) != "0"


def may_split() -> bool:
    """Return whether :func:`split` would copy this process."""
    return _process.may_split


def is_own() -> bool:
    """Return whether this process is the command's own, or one of its workers."""
    return _process.is_own


def watch(parent: int | None = None) -> None:
    """
    Let the system end this process when one call of a library takes more than
    :data:`limits.CALL_SECONDS` of processor time.

    While Python code runs, a wall-clock timer keeps resetting the timer of processor time. In a
    library call that does not return, it is not reset.

    :param parent: the process whose end also ends this one
    """
    _process.is_own = True
    if not hasattr(signal, "setitimer"):
        return

    interrupts.announce_clock()

    def alive(_number: int, _frame: FrameType | None) -> None:
        interrupts.end_if_late()
        signal.setitimer(signal.ITIMER_PROF, limits.CALL_SECONDS.value)
        if parent is not None and os.getppid() != parent:
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise KeyboardInterrupt

    _process.is_watched = True
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, alive)
    signal.setitimer(signal.ITIMER_PROF, limits.CALL_SECONDS.value)
    signal.setitimer(signal.ITIMER_REAL, _TICK, _TICK)
    atexit.register(_unwatch)


def _unwatch() -> None:
    """
    Stop the timers, and hear of no interrupt: the interpreter takes its handlers back before it
    ends, and either would then look like a crash.
    """
    for timer in (signal.ITIMER_REAL, signal.ITIMER_PROF):
        signal.setitimer(timer, 0)
    for number in interrupts.numbers():
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def limited_memory(most: int | None = None) -> Iterator[None]:
    """
    Allow this process only :data:`limits.LIBRARY_BYTES` more memory than it uses, so that a library
    that allocates without end gets a memory error.

    :param most: fewer bytes, if a call is known to need no more

    It has an effect only in a process of the command (:func:`is_own`), and on Linux, which reports
    the memory in use and enforces the limit.
    """
    taken = used_memory() if _process.is_own else None
    if taken is None:
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    new_limit = taken + min(
        limits.LIBRARY_BYTES.value, limits.LIBRARY_BYTES.value if most is None else most
    )
    new_limit = min(limit for limit in (new_limit, soft, hard) if limit != resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_DATA, (new_limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def used_memory() -> int | None:
    """
    Return the bytes that count against this process's limit on data; None if the system does not
    report them.
    """
    try:
        with open("/proc/self/statm", "rb") as stream:  # noqa: PTH123  # pathlib is slower than the rest of this
            return int(stream.read().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


class Mark(IntEnum):
    """What a copy says of how it ends."""

    FINISHING = 0
    """It was asked to end, and does what was promised for this case, which may take long."""

    REPORT_ENDED = 1
    """The report on stdout has its last line."""


def mark(what: Mark) -> None:
    """Say how this process ends; for the original if this is a copy."""
    if _process.shared is not None:
        _process.shared[what] = 1


def is_marked(what: Mark) -> bool:
    """Return whether this process, or a copy of it that ended, said so."""
    return _process.shared is not None and _process.shared[what] == 1


def begin_report() -> None:
    """Count the lines of a new report, unless a copy of this process has already written some."""
    if _process.shared is None:
        _process.lines = 0


def count_line() -> None:
    """Say that this process has written a further line of the report on stdout."""
    if _process.shared is None:
        _process.lines += 1
    else:
        (lines,) = _LINES.unpack_from(_process.shared, _MARKS)
        _LINES.pack_into(_process.shared, _MARKS, lines + 1)


def lines_before() -> int:
    """Return how many lines of the report are written by the original and by copies that ended."""
    return _process.lines


def split() -> Lost | None:
    """
    Go on in a copy of this process, and return None there; the original ends as the copy does.

    Where the copy is ended by a signal, the original returns from here too, with the file that the
    copy was about, and after it removed what the copy left. None, and nothing done, in a process
    that may not be copied (:func:`allow`) and in a copy.

    :raises KeyboardInterrupt: in the original, if it was asked to end and the copy did not end in
        order.
    """
    if not _process.may_split:
        return None
    import mmap  # only where a file is read in this process

    _process.shared = mmap.mmap(-1, _START + _ROOM)
    _LINES.pack_into(_process.shared, _MARKS, _process.lines)
    list_of_copy = mmap.mmap(-1, interrupts.size())
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    waiting = signal.pthread_sigmask(signal.SIG_BLOCK, interrupts.numbers())
    child = os.fork()
    if not child:
        _process.may_split = False
        interrupts.share(list_of_copy)
        for number in interrupts.numbers():
            signal.signal(number, interrupts.interrupt)
        watch(parent)
        signal.pthread_sigmask(signal.SIG_SETMASK, waiting)
        return None
    ending = _Ending(child)
    before = {
        number: signal.signal(number, ending.pass_on)
        for number in (*interrupts.numbers(), signal.SIGALRM)
    }
    signal.pthread_sigmask(signal.SIG_SETMASK, waiting)
    os.waitid(
        os.P_PID, child, os.WEXITED | os.WNOWAIT
    )  # its number stays its own until nothing is passed on any more
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number, was in before.items():
        signal.signal(number, was)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code >= 0:
        os._exit(code)
    (_process.lines,) = _LINES.unpack_from(_process.shared, _MARKS)
    interrupts.share(list_of_copy)
    interrupts.clear()
    if ending.asked is not None or -code in before:
        interrupts.begin_shutdown()
        raise KeyboardInterrupt
    return _read_loss(_process.shared, crash(-code))


class _Ending:
    """What an original does when it is asked to end: its copy has some time to end in order."""

    def __init__(self, child: int) -> None:
        self._child = child
        self.asked: float | None = None
        """When the first signal arrived."""

    def pass_on(self, number: int, _frame: FrameType | None) -> None:
        """
        Handle a signal: pass the first one on, and end the copy at a later one. A copy in the
        middle of a library's call hears nothing.

        The timer of a process that is watched itself (:func:`watch`) goes off while it waits too,
        and ends no copy.
        """
        if number == signal.SIGALRM:
            if self.asked is not None and not is_marked(Mark.FINISHING):
                os.kill(self._child, signal.SIGKILL)
        elif self.asked is None:
            self.asked = time.monotonic()
            os.kill(self._child, number)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
            signal.setitimer(signal.ITIMER_REAL, interrupts.GRACE)
        elif time.monotonic() - self.asked >= interrupts.TOGETHER:
            os.kill(self._child, signal.SIGKILL)


def finish() -> None:
    """
    Go on, after a signal, with what was promised for this case: no time ends it, and a second
    signal does.
    """
    mark(Mark.FINISHING)
    interrupts.resume()


def set_next_file(path: str, lost: str) -> None:
    """
    Record the next file, and the message in case this process ends while it reads the file.
    ``{how}`` in the message is replaced by how the process ended.
    """
    if _process.shared is not None:
        text = f"{path}\0{lost}".encode("utf-8", "surrogateescape")
        _process.shared[_START : _START + _COUNT.size + len(text)] = _COUNT.pack(len(text)) + text


def crash(number: int) -> Crash:
    """Return what is said of a process that a signal ended."""
    if hasattr(signal, "SIGPROF") and number == signal.SIGPROF:
        most = limits.CALL_SECONDS
        what = (
            f"was stopped after {most.value} seconds of CPU time in one library call, "
            "possibly because of a damaged HDF5 file"
        )
        how = f"{what}; raise the limit with --limit {most.name}={2 * most.value}"
        return Crash(code="worker-timeout", how=how)
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    return Crash(
        code="worker-crashed",
        how=f"was terminated by {name}{_NOT_ENOUGH_MEMORY if name in _MAY_LACK_MEMORY else ''}",
    )


def _read_loss(shared: mmap.mmap, crashed: Crash) -> Lost:
    start = _START + _COUNT.size
    end = start + _COUNT.unpack_from(shared, _START)[0]
    path, _, sentence = shared[start:end].decode("utf-8", "surrogateescape").partition("\0")
    return Lost(path=path, code=crashed.code, message=sentence.format(how=crashed.how))
