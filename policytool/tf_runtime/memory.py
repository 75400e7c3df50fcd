"""A bound on the memory that a job may take, beyond what the libraries take by themselves."""

from __future__ import annotations

import contextlib
import errno
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Iterator, Mapping

_STATUS = "/proc/self/status"
_DATA = "VmData:"
"""The line of the size that ``RLIMIT_DATA`` bounds: private memory that can be written."""

_KILOBYTE = 1024
_DEEPEST = 20
"""Causes of an error that are looked at."""


@contextlib.contextmanager
def bounded(bound: Mapping[str, Any] | None, tf: Any) -> Iterator[None]:
    """
    Let this process take so many bytes more than it has, within the context, and no more in all
    than ``bound["most"]``; without a bound, as many as before. Only Linux says what it has.

    Devices are set up before: what that takes depends on the machine and not on the job.
    """
    if bound is None:
        yield
        return
    import resource  # POSIX alone, as the parent is where it sends a bound

    tf.config.list_logical_devices()
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(
        resource.RLIMIT_DATA, (min(_data_size() + bound["bytes"], bound["most"]), hard)
    )
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def is_shortage(error: BaseException) -> bool:
    """Return whether an error, or what it was raised for, is that memory ran out."""
    cause = error  # type: BaseException | None
    for _ in range(_DEEPEST):
        if cause is None:
            return False
        text = str(cause).lower()
        if (
            isinstance(cause, MemoryError)
            or type(cause).__name__ == "ResourceExhaustedError"
            or getattr(cause, "errno", None) == errno.ENOMEM
            or ("memory" in text and "alloc" in text)
        ):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _data_size() -> int:
    with open(_STATUS, encoding="ascii") as stream:
        return next(int(line.split()[1]) * _KILOBYTE for line in stream if line.startswith(_DATA))
