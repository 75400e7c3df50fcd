"""
``python -m policytool.commands.batch.worker``: reads or rewrites one file after the other for the
process that started it.

The first line on stdin says what to do with the files that the next lines name. It ends with its
stdin, in the middle of a file too: whoever wanted the answer is gone. What it began to write it
takes back, as at a Ctrl-C.
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
"""Seconds to take back what was begun."""

_COLLECT_AFTER: Final = 100_000
"""Objects; see :func:`policytool.cli.main.main`."""


def main() -> None:
    """Answer each line."""
    gc.set_threshold(_COLLECT_AFTER)
    vars(platform.uname()).setdefault("processor", "")  # as policytool.cli.main says
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # which a shell's background job has not
    crash_guard.watch()
    lines = SimpleQueue[bytes]()
    # Not sys.stdin: the interpreter cannot end while another thread waits in that.
    threading.Thread(
        target=_listen,
        args=(open(0, "rb", closefd=False), lines),  # noqa: SIM115
        daemon=True,
    ).start()  # open to the end
    answer = parallel.line_answerer(lines.get())
    with open(int(sys.argv[1]), "wb", buffering=0) as stream:  # noqa: PTH123  # a descriptor
        _tell(stream, b"")  # ready
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                _tell(stream, answer(lines.get()))


def _listen(stream: BinaryIO, lines: SimpleQueue[bytes]) -> None:
    """Hand over each line as it comes, and end the process after the last."""
    for line in stream:
        lines.put(line)
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    time.sleep(_GRACE)
    os._exit(0)


def _tell(stream: BinaryIO, line: bytes) -> None:
    """Write a whole line, in as many pieces as the pipe takes it."""
    rest = memoryview(line + b"\n")
    while rest:
        rest = rest[stream.write(rest) :]


if __name__ == "__main__":
    main()
