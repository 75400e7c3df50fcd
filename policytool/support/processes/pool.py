"""
Child processes (:class:`Child`), and a pool of worker processes that read or rewrite files
(:class:`Pool`).

A child process reads lines from stdin, and writes its answers as lines to a separate pipe. Its
stdout and stderr are kept for error messages. It has its own process group, so that Ctrl-C in the
terminal reaches only this process, and ending the child also ends the processes that it started.

The workers of a pool run ``python -m policytool.commands.batch.worker``, which processes one file
after the other. They start at the same time and run until the pool is closed. If a worker crashes
or takes too long, only the answer for the current file is lost, and a new worker replaces it. If
this process is killed, the stdin of the workers is closed, and they end. A worker that is rewriting
a file then has some seconds to undo its changes.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from policytool.support import limits
from policytool.support.errors import WorkerError
from policytool.support.processes import crash_guard, interrupts
from policytool.support.processes.crash_guard import Crash

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

    from policytool.support.limits import Limit

GRACE: Final = 2.0
"""Seconds that a child has to end by itself after its stdin was closed."""

_TAIL: Final = 4000
"""Maximum size in bytes of a child's stdout and stderr in the details of an error."""

_BLOCK: Final = 2**16
"""Size in bytes of one read: the capacity of a pipe."""

_MEMORY_SIGNALS: Final = (
    frozenset({signal.SIGKILL, signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS})
    if os.name == "posix"
    else frozenset()
)
"""Signals that may mean that memory ran out."""


class Child:
    """A child process. The code that starts it must end it."""

    def __init__(
        self,
        command: Sequence[str],
        arguments: Sequence[str] = (),
        *,
        environment: Mapping[str, str],
        longest: int,
        cwd: str | Path | None = None,
    ) -> None:
        """
        Start ``command`` with the descriptor of the pipe as the next argument, and then
        ``arguments``.

        :param longest: the maximum size of an answer in bytes
        :raises OSError: if the process cannot be started.
        """
        self._longest = longest
        self._begun: list[bytes] = []
        self._size = 0
        self.longest_line = 0
        """Size in bytes of the longest answer, which may be incomplete."""

        self._messages = tempfile.TemporaryFile()  # end() closes it  # noqa: SIM115
        self.descriptor, theirs = os.pipe()
        try:
            with interrupts.defer_interrupts():  # every started process must get an entry
                self.process = subprocess.Popen(  # noqa: S603  # this interpreter, or the one that the user chose
                    [*command, str(theirs), *arguments],
                    cwd=cwd,
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=self._messages,
                    stderr=self._messages,
                    pass_fds=(theirs,),
                    start_new_session=True,
                )
                self._entry = interrupts.add_group(self.process.pid)
        except BaseException:
            self._close()
            raise
        finally:
            os.close(theirs)

    @property
    def is_alive(self) -> bool:
        """Whether the process is still running."""
        return self.process.poll() is None

    def send(self, line: bytes) -> None:
        """
        Write a line to stdin of the process.

        :raises BrokenPipeError: if the process has closed its stdin.
        """
        if self.process.stdin is not None:
            self.process.stdin.write(line + b"\n")
            self.process.stdin.flush()

    def receive(self) -> list[bytes] | None:
        """
        Wait for output, read it once, and return the lines that are then complete. Return None if
        the process has ended, or if a line is longer than allowed.
        """
        block = os.read(self.descriptor, _BLOCK)
        *complete, incomplete = block.split(b"\n")
        if complete:
            complete[0] = b"".join((*self._begun, complete[0]))
            self._begun.clear()
            self._size = 0
        self._begun.append(incomplete)
        self._size += len(incomplete)
        self.longest_line = max(self.longest_line, self._size, *map(len, complete))
        return complete if block and self.longest_line <= self._longest else None

    @property
    def messages(self) -> str:
        """The end of the text that the process wrote to stdout and stderr."""
        if self._messages.closed:
            return ""
        size = os.fstat(self._messages.fileno()).st_size
        return os.pread(self._messages.fileno(), _TAIL, max(0, size - _TAIL)).decode(
            "utf-8", "replace"
        )

    def how_it_ended(self) -> str:
        """
        Return how the process ended, as a sentence without its subject. If the process exited by
        itself, the text includes its last line of output.
        """
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE)
        code = self.process.returncode
        if code is not None and code < 0:
            return (
                f"was terminated by {signal.Signals(-code).name}"
                if -code in set(signal.Signals)
                else f"was terminated by signal {-code}"
            )
        last = next(
            (line.strip() for line in reversed(self.messages.splitlines()) if line.strip()), ""
        )
        return f"exited with code {code}" + (f": {last[:300]}" if last else "")

    @property
    def may_have_lacked_memory(self) -> bool:
        """Whether a signal ended the process that may mean that memory ran out."""
        code = self.process.returncode
        return code is not None and -code in _MEMORY_SIGNALS

    def end(self, grace: float = 0) -> None:
        """
        End the process, and the processes that it started.

        :param grace: seconds that the process has to end by itself, before it is killed
        """
        if grace and self.is_alive:
            self.hang_up()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(grace)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        interrupts.remove(self._entry)
        self.hang_up()
        self._close()

    def hang_up(self) -> None:
        """Close stdin of the process, which tells it to end."""
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()

    def _close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
        self._messages.close()


AHEAD: Final = 8
"""
Maximum number of unanswered lines per worker: the current one, and some in advance, so that the
worker does not wait for this process after each line.
"""

_PLENTY: Final = 10
"""
Lines are sent in advance while more than this number per worker are left. The last lines are sent
one by one, so that none of them waits behind a slow one while another worker is idle.
"""

_MODULE: Final = "policytool.commands.batch.worker"
_ROOT: Final = Path(__file__).parents[3]
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})


@dataclass(kw_only=True, slots=True, eq=False)
class _Worker:
    """A worker process, and the numbers of the lines that it has not answered."""

    child: Child
    is_ready: bool = False
    given: deque[int] = field(default_factory=deque)
    deadline: float = 0.0
    """When the time limit of the first unanswered line is reached."""


class Pool:
    """Worker processes, as a context manager that starts and ends them."""

    def __init__(
        self,
        count: int,
        head: bytes,
        *,
        time: Limit,
        grace: float = 0.0,
        directory: str | None = None,
    ) -> None:
        """
        Set the options of the workers.

        :param head: the first line for each worker, which says how to process the next lines. The
            worker answers it with an empty line.
        :param time: the time limit for one line
        :param grace: seconds that a worker has to undo its changes before it is killed
        :param directory: the working directory of the workers; None for that of this process
        """
        self._count = count
        self._directory = directory
        self._head = head
        self._time = time
        self._grace = grace
        self._finished = set[int]()
        self._stack = ExitStack()
        self._selector = selectors.DefaultSelector()
        self._workers: list[_Worker] = []
        self._environment: dict[str, str] = {}

    def __enter__(self) -> Self:
        try:
            self._stack.enter_context(self._selector)
            # A process that is killed does not remove its temporary files, which are in here.
            scratch = self._stack.enter_context(interrupts.temporary_directory())
            self._environment = {**environment(os.environ), "TMPDIR": scratch}
            for worker in [
                self._start() for _ in range(self._count)
            ]:  # start all before sending: writing a long head waits until the worker reads it
                _send(worker, self._head)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            busy_children = (
                [worker.child for worker in self._workers if worker.given] if self._grace else []
            )
            grace = interrupts.GRACE if interrupts.is_interrupted() else self._grace
            deadline = time.monotonic() + grace  # the same deadline for all
            for child in busy_children:
                child.hang_up()
            for child in busy_children:
                child.end(max(0.0, deadline - time.monotonic()))
        finally:
            self._stack.close()

    def answers(
        self, lines: Sequence[bytes], after: Sequence[frozenset[int]] = ()
    ) -> Iterator[tuple[int, bytes | Crash]]:
        """
        Send lines to the workers, and yield the number and the answer of each line, in the order of
        the lines.

        :param after: for each line, the numbers of the earlier lines that must be finished before
            it is sent; empty if there are no such dependencies
        :raises WorkerError: if no worker can be started.
        """
        pending = deque(range(len(lines)))
        answers_by_line: dict[int, bytes | Crash] = {}
        for number in range(len(lines)):
            while number not in answers_by_line:
                for worker, crash in self._collect_answers(answers_by_line):
                    self._replace_worker(worker, crash, pending, answers_by_line)
                self._send_tasks(lines, pending, after)
            yield number, answers_by_line.pop(number)

    def _collect_answers(
        self, answers_by_line: dict[int, bytes | Crash]
    ) -> Iterator[tuple[_Worker, Crash]]:
        """
        Wait for answers and add them to ``answers_by_line``. Yield the workers that crashed or
        exceeded the time limit.
        """
        for key, _ in self._selector.select(self._seconds_left()):
            worker: _Worker = key.data
            answers = worker.child.receive()
            if answers is None:
                yield worker, _crash(worker.child)
            for answer in answers or ():
                if worker.is_ready:
                    self._finished.add(worker.given[0])
                    answers_by_line[worker.given.popleft()] = answer
                worker.is_ready = True
                worker.deadline = time.monotonic() + self._time.value
        current_time = time.monotonic()
        for worker in [
            worker for worker in self._workers if worker.given and worker.deadline < current_time
        ]:
            yield (
                worker,
                Crash(
                    code="worker-timeout",
                    how=f"took {self._time.exceeded_message(self._time.value + 1, counting=True)}",
                ),
            )

    def _seconds_left(self) -> float | None:
        """Return the seconds until the next time limit is reached; None if all workers are idle."""
        first = min((worker.deadline for worker in self._workers if worker.given), default=None)
        return None if first is None else max(0.0, first - time.monotonic())

    def _send_tasks(
        self, lines: Sequence[bytes], pending: deque[int], after: Sequence[frozenset[int]]
    ) -> None:
        """Send pending lines to the workers: one line to each before any worker gets a second."""
        for size in range(AHEAD if len(pending) > _PLENTY * len(self._workers) else 1):
            for worker in self._workers:
                if not worker.is_ready or len(worker.given) != size:
                    continue
                number = next(
                    (number for number in pending if not after or after[number] <= self._finished),
                    None,
                )
                if number is None:
                    return
                if not size:
                    worker.deadline = time.monotonic() + self._time.value
                pending.remove(number)
                worker.given.append(number)
                _send(worker, lines[number])

    def _replace_worker(
        self,
        worker: _Worker,
        crash: Crash,
        pending: deque[int],
        answers_by_line: dict[int, bytes | Crash],
    ) -> None:
        """
        Replace a worker that failed on a line. A worker that fails before its first line is not
        replaced.

        :raises WorkerError: if the last worker fails before its first line.
        """
        self._selector.unregister(worker.child.descriptor)
        self._workers.remove(worker)
        worker.child.end(self._grace)
        if worker.given:
            self._finished.add(worker.given[0])
            answers_by_line[worker.given.popleft()] = crash
            pending.extendleft(reversed(worker.given))
            if pending:
                _send(self._start(), self._head)
        elif not self._workers:
            message = f"cannot start a worker process: it {crash.how}; use --jobs 1"
            raise WorkerError("no-worker", message, details=crash.details, ended=True)

    def _start(self) -> _Worker:
        """Start a worker process."""
        # -P: no module may be imported from the working directory, which is not trusted.
        try:
            child = Child(
                [sys.executable, "-P", "-m", _MODULE],
                environment=self._environment,
                longest=limits.ANSWER_BYTES.value,
                cwd=self._directory,
            )
        except OSError as error:
            raise WorkerError(
                "no-worker",
                f"{sys.executable} cannot be run ({error.strerror or error}); use --jobs 1",
            ) from error
        self._stack.callback(child.end)
        worker = _Worker(child=child)
        self._workers.append(worker)
        self._selector.register(child.descriptor, selectors.EVENT_READ, worker)
        return worker


def environment(own_environment: Mapping[str, str]) -> dict[str, str]:
    """
    Return the environment variables of a worker: those of this process, and PYTHONPATH with the
    location of this package if it is not installed.
    """
    if _ROOT.name in _INSTALLED:
        return dict(own_environment)
    return {
        **own_environment,
        "PYTHONPATH": os.pathsep.join(
            part for part in (own_environment.get("PYTHONPATH"), str(_ROOT)) if part
        ),
    }


def _send(worker: _Worker, line: bytes) -> None:
    try:
        worker.child.send(line)
    except BrokenPipeError:
        return  # it has ended, which receive() reports


def _crash(child: Child) -> Crash:
    """Return the failure of a worker that ended."""
    if excess := limits.ANSWER_BYTES.exceeded_message(child.longest_line, counting=True):
        return Crash(code="worker-limit", how=f"returned {excess}")
    ending = child.how_it_ended()
    code = child.process.returncode
    crash = (
        crash_guard.crash(-code)
        if code is not None and code < 0
        else Crash(code="worker-crashed", how=ending)
    )
    return replace(crash, details=child.messages)
