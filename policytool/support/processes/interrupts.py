"""The signals that ask this process for an orderly end."""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


@dataclass(kw_only=True, slots=True)
class _State:
    """What this process was asked."""

    has_arrived: bool = False


_state: Final = _State()


def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    """Handle a signal: raise KeyboardInterrupt, and remember it for :func:`check`."""
    _state.has_arrived = True
    raise KeyboardInterrupt


def check() -> None:
    """
    Raise KeyboardInterrupt if a signal has arrived.

    Python ignores what a handler raises while an object is finalized, and h5py finalizes many.
    """
    if _state.has_arrived:
        raise KeyboardInterrupt


def hide_ignored(unraisable: sys.UnraisableHookArgs) -> None:
    """Print an exception that Python ignores, unless :func:`check` will raise it again."""
    if not (_state.has_arrived and issubclass(unraisable.exc_type, KeyboardInterrupt)):
        sys.__unraisablehook__(unraisable)


def numbers() -> list[signal.Signals]:
    """Return these signals, without those that this process was started to ignore."""
    return [
        number
        for name in ("SIGINT", "SIGTERM", "SIGHUP")
        if (number := getattr(signal, name, None)) is not None  # Windows has no SIGHUP
        and signal.getsignal(number) is not signal.SIG_IGN
    ]


@contextmanager
def deferred() -> Iterator[None]:
    """
    Let Python's handlers of these signals wait until the block ends, so that the block is done as a
    whole. A second signal, from a user who does not want to wait, ends it at once.
    """
    before = {
        number: handler for number in numbers() if callable(handler := signal.getsignal(number))
    }
    arrived: list[tuple[int, FrameType | None]] = []

    def remember(number: int, frame: FrameType | None) -> None:
        arrived.append((number, frame))
        if len(arrived) > 1:
            before[signal.Signals(number)](number, frame)

    for number in before:
        signal.signal(number, remember)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if arrived:
            first, frame = arrived[0]
            before[signal.Signals(first)](first, frame)
