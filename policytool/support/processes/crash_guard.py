"""
Protection against C libraries that crash on a file, or whose call does not return.

Such a file must cost only its own report. Python cannot stop these calls, because its signal
handlers run only after the call has returned. Therefore, :func:`watch` lets the operating system
end this process if a library call takes too long. :func:`split` continues in a copy of this
process, so that the original can report how the copy ended. Windows supports neither.
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
from policytool.support.errors import ModelFileError
from policytool.support.processes import interrupts

if TYPE_CHECKING:
    import mmap
    from collections.abc import Iterator
    from types import FrameType

_TICK: Final = 0.25
"""Seconds between two resets of the timer of CPU time."""

_COUNT: Final = struct.Struct("=I")
_ROOM: Final = 2**15
"""Size in bytes of the path, which has at most 4,096 bytes, and the message."""

_MARKS: Final = 2
"""Size in bytes of the marks (:class:`Mark`), which are first in the shared memory."""

_LINES: Final = struct.Struct("=Q")
_START: Final = _MARKS + _LINES.size

_NOT_ENOUGH_MEMORY: Final = ", because a library crashed or memory ran out"
_MAY_LACK_MEMORY: Final = frozenset({"SIGKILL", "SIGABRT", "SIGSEGV", "SIGBUS"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Crash:
    """The failure of a process, in place of its answer."""

    code: str
    how: str
    """How the process ended: a sentence without its subject, the process."""

    details: str = ""


@dataclass(kw_only=True, slots=True)
class _Process:
    """The state of this process."""

    may_split: bool = False
    is_own: bool = False
    """Whether the process belongs to the command, and not to a caller of the Python API."""

    shared: mmap.mmap | None = None
    """Memory in which a copy records its progress, and which the original reads."""

    lines: int = 0
    """Lines of the report on stdout that were written; in a copy, those written before it began."""


_process: Final = _Process()


def allow() -> None:
    """
    Let :func:`split` copy this process, because it belongs to the command. Callers of the Python
    API never get a second process.

    With ``POLICYTOOL_COPY=0`` in the environment the command runs in one process, which debuggers
    and tracers need.
    """
    _process.is_own = True
    _process.may_split = hasattr(os, "fork") and os.environ.get("POLICYTOOL_COPY") != "0"


def may_split() -> bool:
    """Return whether :func:`split` would copy this process."""
    return _process.may_split


def is_own() -> bool:
    """Return whether this process is the process of the command, or one of its workers."""
    return _process.is_own


def watch(parent: int | None = None) -> None:
    """
    Let the operating system end this process if one library call takes more than
    :data:`limits.CALL_SECONDS` of CPU time.

    While Python code runs, a wall-clock timer keeps resetting the timer of CPU time. During a
    library call, nothing resets it.

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

    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, alive)
    signal.setitimer(signal.ITIMER_PROF, limits.CALL_SECONDS.value)
    signal.setitimer(signal.ITIMER_REAL, _TICK, _TICK)
    atexit.register(_unwatch)


def _unwatch() -> None:
    """
    Stop the timers, and ignore interrupts. The interpreter removes its signal handlers before it
    ends, so a signal after that would look like a crash.
    """
    for timer in (signal.ITIMER_REAL, signal.ITIMER_PROF):
        signal.setitimer(timer, 0)
    for number in interrupts.numbers():
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def limited_memory(most: int | None = None) -> Iterator[None]:
    """
    Allow this process only :data:`limits.LIBRARY_BYTES` more memory than it uses, so that a library
    that allocates endlessly gets a memory error.

    The limit has an effect only in a process of the command (:func:`is_own`), and only on Linux,
    which reports the memory in use and enforces the limit.

    :param most: a lower limit in bytes, for a call that is known to need less
    """
    used_bytes = used_memory() if _process.is_own else None
    if used_bytes is None:
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    new_limit = used_bytes + min(
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
    """How a process ends, as a copy records it for the original."""

    FINISHING = 0
    """A signal arrived, and the process does work that must be completed, without a time limit."""

    REPORT_ENDED = 1
    """The last line of the report on stdout was written."""


def mark(what: Mark) -> None:
    """Record how this process ends. It has an effect only in a copy, whose original reads it."""
    if _process.shared is not None:
        _process.shared[what] = 1


def is_marked(what: Mark) -> bool:
    """Return whether this process, or a copy of it that ended, has set a mark."""
    return _process.shared is not None and _process.shared[what] == 1


def begin_report() -> None:
    """Count the lines of a new report, unless a copy of this process has already written some."""
    if _process.shared is None:
        _process.lines = 0


def count_line() -> None:
    """Count a line of the report that this process has written to stdout."""
    if _process.shared is None:
        _process.lines += 1
    else:
        (lines,) = _LINES.unpack_from(_process.shared, _MARKS)
        _LINES.pack_into(_process.shared, _MARKS, lines + 1)


def lines_before() -> int:
    """Return how many report lines the original and the copies that ended have written."""
    return _process.lines


def split() -> ModelFileError | None:
    """
    Continue in a copy of this process, and return None in the copy. The original waits, and exits
    with the copy's exit code.

    If a signal ends the copy, the original removes the copy's temporary files, and returns the
    error about the file that the copy was reading. In a copy, and in a process that :func:`allow`
    has not been called in, the function does nothing and returns None.

    :raises KeyboardInterrupt: in the original, if it was interrupted and the copy did not exit by
        itself.
    """
    if not _process.may_split:
        return None
    import mmap  # only if this process reads files itself

    _process.shared = mmap.mmap(-1, _START + _ROOM)
    _LINES.pack_into(_process.shared, _MARKS, _process.lines)
    list_of_copy = mmap.mmap(-1, interrupts.size())
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, interrupts.numbers())
    child = os.fork()
    if not child:
        _process.may_split = False
        interrupts.share(list_of_copy)
        for number in interrupts.numbers():
            signal.signal(number, interrupts.interrupt)
        watch(parent)
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)
        return None
    ending = _Ending(child)
    before = {
        number: signal.signal(number, ending.pass_on)
        for number in (*interrupts.numbers(), signal.SIGALRM)
    }
    signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)
    os.waitid(
        os.P_PID, child, os.WEXITED | os.WNOWAIT
    )  # does not free the process number, because signals may still be forwarded to it
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number, previous_handler in before.items():
        signal.signal(number, previous_handler)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code >= 0:
        os._exit(code)
    (_process.lines,) = _LINES.unpack_from(_process.shared, _MARKS)
    interrupts.share(list_of_copy)
    interrupts.clear()
    if ending.first_signal_time is not None or -code in before:
        interrupts.begin_shutdown()
        raise KeyboardInterrupt
    return _read_loss(_process.shared, crash(-code))


class _Ending:
    """The signal handler of an original: it gives the copy some time to end by itself."""

    def __init__(self, child: int) -> None:
        """Prepare to forward signals to a copy of this process."""
        self._child = child
        self.first_signal_time: float | None = None
        """When the first signal arrived."""

    def pass_on(self, number: int, _frame: FrameType | None) -> None:
        """
        Handle a signal: forward the first one to the copy, and kill the copy at the next one. A
        copy does not handle a signal during a library call.

        If :func:`watch` was called in the original, its timer also sends SIGALRM while the original
        waits. This signal does not kill the copy, unless an interrupt has arrived.
        """
        if number == signal.SIGALRM:
            if self.first_signal_time is not None and not is_marked(Mark.FINISHING):
                os.kill(self._child, signal.SIGKILL)
        elif self.first_signal_time is None:
            self.first_signal_time = time.monotonic()
            os.kill(self._child, number)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
            signal.setitimer(signal.ITIMER_REAL, interrupts.GRACE)
        elif time.monotonic() - self.first_signal_time >= interrupts.TOGETHER:
            os.kill(self._child, signal.SIGKILL)


def finish() -> None:
    """
    Continue after a signal, to complete work that must not be left unfinished. It has no time
    limit, and a second signal ends it.
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
    """Return the failure of a process that a signal ended."""
    if hasattr(signal, "SIGPROF") and number == signal.SIGPROF:
        most = limits.CALL_SECONDS
        problem = (
            f"was stopped after {most.value} seconds of CPU time in one library call, "
            "possibly because of a damaged HDF5 file"
        )
        text = f"{problem}; raise the limit with --limit {most.name}={2 * most.value}"
        return Crash(code="worker-timeout", how=text)
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    return Crash(
        code="worker-crashed",
        how=f"was terminated by {name}{_NOT_ENOUGH_MEMORY if name in _MAY_LACK_MEMORY else ''}",
    )


def _read_loss(shared: mmap.mmap, crashed: Crash) -> ModelFileError:
    start = _START + _COUNT.size
    end = start + _COUNT.unpack_from(shared, _START)[0]
    path, _, sentence = shared[start:end].decode("utf-8", "surrogateescape").partition("\0")
    return ModelFileError(path, crashed.code, sentence.format(how=crashed.how))
