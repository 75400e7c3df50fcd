"""
Runs of the real command under strace: in a fork of a server, which is cheap, or in a new
interpreter, as a user has it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from tests.crash import tracing
from tests.helpers.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType

    from tests.crash.tracing import Call

_IMPORTED: Final = (
    "h5py",
    "yaml",
    "rich",
    "ml_dtypes",
    "google_crc32c",
    "shutil",
    "socket",
    "tempfile",
    "importlib.metadata",
    "email.feedparser",
    "tests.crash.modules",
)
_NAMED: Final = (
    "from tests.crash.server import forget_unnamed; forget_unnamed(); from policytool.cli.main "
    "import main; main()"
)
_ENVIRONMENT: Final = {
    "PYTHONPATH": str(ROOT),
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "COLUMNS": "200",
    "POLICYTOOL_COPY": "0",
}
"""
So that every run makes the same calls: sets in one order, no compiled files, no copy of the process
that only waits for it. And of this tree: a new interpreter in another directory would import what
is installed.
"""

_SECONDS: Final = 120


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """What is done to a run: expressions of strace's ``inject``, or a limit."""

    inject: tuple[str, ...] = ()
    largest: int | None = None
    """RLIMIT_FSIZE, which the system answers with a short write, and with EFBIG after it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """How a run ended."""

    code: int
    """The exit code, or that of the signal that ended it, below zero."""

    said: str
    calls: tuple[Call, ...]
    """Those of the traced names."""

    killed: bool = False
    """Whether a process was killed: this one, or one that it started; known of new interpreters."""


NOTHING: Final = Fault()


def permitted() -> str | None:
    """Return why nothing can be traced here; None where it can."""
    if sys.platform != "linux" or shutil.which("strace") is None:
        return "strace is not there"
    done = subprocess.run(
        ["strace", "-o", os.devnull, "-e", "inject=getpid:error=EIO:when=9", "true"],
        capture_output=True,
        check=False,
    )
    return None if done.returncode == 0 else "strace may not trace, or knows no faults"


class Server:
    """Forks of a process that has imported everything; a context manager."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._log = directory / "strace.log"

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.server", *_IMPORTED],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **_ENVIRONMENT},
            text=True,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process.wait(_SECONDS)

    def run(
        self,
        arguments: Sequence[str],
        fault: Fault = NOTHING,
        *,
        trace: Sequence[str] | None = (),
        named: bool = False,
        when_stopped: Callable[[], None] | None = None,
    ) -> Run:
        """
        Run the command; with ``trace`` None every call is in the log, with names these, without any
        strace is not there.

        Of what a run starts, calls are in the log where all are, and no fault is put into them.

        ``when_stopped`` is called when the run was stopped by a signal, and then it goes on.
        """
        job = {
            "arguments": list(arguments),
            "cwd": str(self._directory),
            "named": named,
            "largest": fault.largest,
        }
        pid = int(self._ask(job)["pid"])
        strace = self._attached(pid, fault, trace) if trace is None or trace else None
        try:
            self._tell("go")
            if when_stopped is not None:
                _meet(pid, self._log, when_stopped)
            ended = self._answer()
        finally:
            if strace is not None:
                strace.communicate(timeout=_SECONDS)
        log = self._log.read_text(encoding="utf-8", errors="replace") if strace is not None else ""
        return Run(
            code=os.waitstatus_to_exitcode(ended["status"]),
            said=ended["out"],
            calls=tuple(tracing.calls(log)),
        )

    def _attached(
        self, pid: int, fault: Fault, trace: Sequence[str] | None
    ) -> subprocess.Popen[str]:
        """Return strace, which looks on from now on."""
        self._log.unlink(missing_ok=True)
        command = [
            "strace",
            *(["-f"] if trace is None else []),
            "-y",
            "-s",
            "0",
            "-o",
            str(self._log),
            *_expressions(fault, trace),
            "-p",
            str(pid),
        ]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        said = ""
        while "attached" not in said:
            line = process.stderr.readline() if process.stderr is not None else ""
            if not line:
                raise RuntimeError(f"strace ended: {said}")
            said += line
        return process

    def _ask(self, job: dict[str, Any]) -> Any:
        self._tell(json.dumps(job))
        return self._answer()

    def _tell(self, line: str) -> None:
        if self._process.stdin is not None:
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()

    def _answer(self) -> Any:
        return json.loads(
            self._process.stdout.readline() if self._process.stdout is not None else ""
        )


def in_a_new_interpreter(
    arguments: Sequence[str],
    directory: Path,
    fault: Fault = NOTHING,
    *,
    trace: Sequence[str] | None = None,
    named: bool = False,
) -> Run:
    """Run the command as a process of its own from its first instruction, which strace starts."""
    with tempfile.NamedTemporaryFile("r", encoding="utf-8", errors="replace") as log:
        program = ["-c", _NAMED] if named else ["-m", "policytool"]
        quick = [] if fault.inject else ["--seccomp-bpf"]  # with which strace 6.1 puts in no faults
        done = subprocess.run(
            [
                "strace",
                "-f",
                *quick,
                "-y",
                "-s",
                "0",
                "-o",
                log.name,
                *_expressions(fault, trace),
                sys.executable,
                *program,
                *arguments,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            cwd=directory,
            env={**os.environ, **_ENVIRONMENT},
            timeout=_SECONDS,
            text=True,
        )
        text = log.read()
    return Run(
        code=done.returncode,
        said=done.stdout,
        calls=tuple(tracing.calls(text)),
        killed="+++ killed by SIGKILL" in text,
    )


def _expressions(fault: Fault, trace: Sequence[str] | None) -> list[str]:
    names = "all" if trace is None else ",".join(trace)
    return [
        "-e",
        f"trace={names}",
        *(word for expression in fault.inject for word in ("-e", f"inject={expression}")),
    ]


def _meet(pid: int, log: Path, act: Callable[[], None]) -> None:
    """
    Act while a process is stopped, and let it go on; one that ended before it was stopped is let
    be.
    """
    deadline = time.monotonic() + _SECONDS
    while "--- stopped by SIGSTOP ---" not in (
        text := log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    ):
        if "+++ exited" in text or "+++ killed" in text:
            return
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.002)
    act()
    os.kill(pid, signal.SIGCONT)
