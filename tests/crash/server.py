"""
A process that has imported everything already and runs each command in a fork of itself, so that a
run costs a tenth of a new interpreter's.

It reads jobs from stdin, one JSON object a line, and answers on stdout. A fork waits until it is
told that strace looks on, and its number is told when it waits: what strace would see of a fork
that still prepares itself would depend on which of the two is faster.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import resource
import select
import signal
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from policytool.cli.main import main as command
from policytool.support.files import atomic

if TYPE_CHECKING:
    from collections.abc import Sequence

_PR_SET_PTRACER: Final = 0x59616D61
_ANYONE: Final = ctypes.c_ulong(-1)
_READY: Final = b"!"
"""What a fork prints before it waits."""

_PIPE_BYTES: Final = 2**20
"""
What a run prints has to fit: it is read when the run is over, because a file would count against
its own limits.
"""


def main() -> None:
    """Answer jobs until stdin ends."""
    with (
        os.fdopen(os.dup(0), "r", encoding="utf-8") as jobs,
        os.fdopen(os.dup(1), "w", encoding="utf-8") as answers,
    ):
        for line in jobs:
            job = json.loads(line)
            pid, gate, out = _forked(job)
            _say(answers, {"pid": pid})
            jobs.readline()
            os.write(gate, b"!")
            os.close(gate)
            status = os.waitpid(pid, 0)[1]
            text = _read(out)
            _say(answers, {"status": status, "out": text})


def forget_unnamed() -> None:
    """Give drafts names from the beginning, as on systems that have no other files."""
    atomic._DESCRIPTORS = Path("/nonexistent")  # type: ignore[misc]  # noqa: SLF001  # what tests/conftest.py does too


def _forked(job: dict[str, Any]) -> tuple[int, int, int]:
    """Return a fork that waits, what opens its gate, and what it will have printed."""
    job["nothing"] = os.open(
        os.devnull, os.O_RDONLY
    )  # here: a fault in opening is meant for the command
    wait, gate = os.pipe()
    out, into = os.pipe()
    fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    pid = os.fork()
    if pid == 0:
        _run(job, (wait, gate), (out, into))
    for descriptor in (wait, into, job["nothing"]):
        os.close(descriptor)
    os.read(out, len(_READY))
    return pid, gate, out


def _run(job: dict[str, Any], entry: tuple[int, int], output: tuple[int, int]) -> NoReturn:
    """Do a job, and end with its exit code."""
    code, (wait, gate), (out, into) = 70, entry, output
    try:
        os.close(gate)
        os.close(out)
        ctypes.CDLL(None).prctl(
            _PR_SET_PTRACER, _ANYONE, 0, 0, 0
        )  # where a system lets only parents trace, this lets strace
        os.dup2(job["nothing"], 0)
        os.dup2(into, 1)
        os.dup2(into, 2)
        sys.stdout, sys.stderr = (
            open(descriptor, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
            for descriptor in (1, 2)
        )  # for as long as it runs
        os.chdir(job["cwd"])
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if job.get("named"):
            forget_unnamed()
        if job.get("largest") is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (job["largest"], job["largest"]))
        poll = select.poll()
        poll.register(wait, select.POLLIN)
        os.write(into, _READY)
        poll.poll()
        code = _code(job["arguments"])
    except BaseException:  # noqa: BLE001  # a fork must not return into the server; what happened is in the answer
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


def _code(arguments: Sequence[str]) -> int:
    try:
        command(list(arguments))
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0


def _read(descriptor: int) -> str:
    with os.fdopen(descriptor, "rb") as stream:
        return stream.read().decode("utf-8", "replace")


def _say(answers: Any, what: dict[str, Any]) -> None:
    answers.write(json.dumps(what) + "\n")
    answers.flush()


def _warm(modules: Sequence[str]) -> None:
    """
    Import what commands import where they need it: a fork that imported it itself would do so every
    time.
    """
    for name in modules:
        __import__(name)


if __name__ == "__main__":
    _warm(sys.argv[1:])
    main()
