"""
The signals that ask this process for an orderly end, and the bound on the time that it takes.

The first signal raises KeyboardInterrupt. If the process is still there after :data:`SECONDS`, or
if a second signal arrives because a user does not want to wait, it ends at once, and removes what
it would leave behind (:mod:`policytool.support.processes.leftovers`).
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from policytool.support.processes import leftovers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

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
    """End this process without a word, and remove what it would leave behind."""
    leftovers.clear()
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
