"""
The worker process of a pool: ``python -m policytool.commands.batch.worker`` reads or rewrites one
file after the other for its parent process.

The first line on stdin contains the task, and each of the next lines contains a file. The worker
ends when its stdin is closed, even while it processes a file, because the parent process has then
ended. It first undoes incomplete changes, as after Ctrl-C.
"""

from __future__ import annotations

import contextlib
import gc
import os
import platform
import signal
import sys
import threading
import time
from queue import SimpleQueue
from typing import BinaryIO, Final

from policytool.commands.batch import parallel
from policytool.support.processes import crash_guard

_GRACE: Final = 10.0
"""Seconds to undo incomplete changes."""

_COLLECT_AFTER: Final = 100_000
"""Number of new objects before a garbage collection; see :func:`policytool.cli.main.main`."""


def main() -> None:
    """Read lines from stdin, and write an answer to each."""
    gc.set_threshold(_COLLECT_AFTER)
    vars(platform.uname()).setdefault("processor", "")  # policytool.cli.main explains it
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # background jobs of a shell start with SIGINT ignored
    crash_guard.watch()
    lines = SimpleQueue[bytes]()
    # Not sys.stdin: the interpreter cannot exit while another thread reads it.
    threading.Thread(
        target=_queue_lines,
        args=(open(0, "rb", closefd=False), lines),  # noqa: SIM115
        daemon=True,
    ).start()  # open to the end
    answer = parallel.line_answerer(lines.get())
    with open(int(sys.argv[1]), "wb", buffering=0) as stream:  # noqa: PTH123  # a descriptor
        _write_line(stream, b"")  # ready
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                _write_line(stream, answer(lines.get()))


def _queue_lines(stream: BinaryIO, lines: SimpleQueue[bytes]) -> None:
    """Put each line into the queue as it arrives, and end the process when the stream is closed."""
    for line in stream:
        lines.put(line)
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    time.sleep(_GRACE)
    os._exit(0)


def _write_line(stream: BinaryIO, line: bytes) -> None:
    """Write a whole line, in several pieces if the pipe is full."""
    remaining = memoryview(line + b"\n")
    while remaining:
        remaining = remaining[stream.write(remaining) :]


if __name__ == "__main__":
    main()
