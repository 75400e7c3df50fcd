"""The signals that ask this process for an orderly end."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


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
