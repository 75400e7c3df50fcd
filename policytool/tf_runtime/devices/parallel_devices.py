"""The same work on several devices side by side."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ..library import Refused, sentence
from .available import short

if TYPE_CHECKING:
    from typing import Any, Callable, Sequence

TRACING = threading.RLock()
"""
To be held by whoever has Keras trace, or build, anything while other threads run: its scopes are
those of the whole process.
"""


def side_by_side(
    devices: Sequence[str], prepare: Callable[[str], Any], measure: Callable[[str, Any], Any]
) -> list[Any]:
    """
    Return what ``measure`` made of each device, in their order.

    ``prepare`` is called with one device after the other: Keras cannot trace in two threads at
    once. ``measure`` then gets a device and what was prepared for it, in a thread for each device,
    all at the same time: TensorFlow holds no lock of Python's while it computes. What is set for
    the whole process (soft placement, TF32) is set around all of it, never in ``measure``; what
    that still has to trace it traces holding ``TRACING``.

    :raises Refused: when all have ended, for the first device on which one failed, which is named;
        of one device alone what it raised.
    """
    if len(devices) == 1:  # nothing to tell apart
        return [measure(devices[0], prepare(devices[0]))]
    prepared = [_done(prepare, device) for device in devices]
    results: list[Any] = [None] * len(devices)
    failures: dict[int, BaseException] = {}

    def work(place: int) -> None:
        try:
            results[place] = measure(devices[place], prepared[place])
        except BaseException as error:  # raised again below, in the thread that asked
            failures[place] = error

    threads = [
        threading.Thread(target=work, args=(place,), name=short(device))
        for place, device in enumerate(devices)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for place, device in enumerate(devices):
        if place in failures:
            raise _named(device, failures[place]) from failures[place]
    return results


def _done(prepare: Callable[[str], Any], device: str) -> Any:
    try:
        return prepare(device)
    except Exception as error:
        raise _named(device, error) from error


def _named(device: str, error: BaseException) -> Refused:
    if isinstance(error, Refused):
        return Refused(error.code, "{}: {}".format(short(device), error))
    lacked = isinstance(error, MemoryError) or type(error).__name__ == "ResourceExhaustedError"
    return Refused(
        "memory" if lacked else "failed", "{}: {}".format(short(device), sentence(error))
    )
