"""
Processes that read or rewrite files for this one, each one file after the other: ``python -m
policytool.commands.batch.worker``.

They start at the same time and stay until the end. One that dies over a file, or takes too long for
it, costs that file's answer alone, and another takes its place. All of them end with this process,
whichever way that ends: they are ended when the pool is closed, and see their stdin close where it
was killed itself. One that is in the middle of a file then has some seconds to take back what it
began.

A process of its own that takes lines on stdin and answers with lines on a pipe that nothing else
writes to.

What it prints beside that, on stdout or stderr, is kept for when it ends badly. It has a process
group of its own: a Ctrl-C at the terminal is heard here alone, and ending the process ends whatever
it started.
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
"""Seconds that a child has to end by itself when it is asked to."""

_TAIL: Final = 4000
"""Bytes of the child's own output that go into an error's details."""

_BLOCK: Final = 2**16
"""What a pipe holds."""

_DIED_OF: Final = (
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
        Start ``command``, then the number of the pipe's descriptor, then ``arguments``; an answer
        has at most ``longest`` bytes.

        :raises OSError: where it cannot be started.
        """
        self._longest = longest
        self._begun: list[bytes] = []
        self._size = 0
        self.longest_line = 0
        """Bytes of the longest line that it said, or has begun to say."""

        self._messages = tempfile.TemporaryFile()  # end() closes it  # noqa: SIM115
        self.descriptor, theirs = os.pipe()
        try:
            with interrupts.deferred():  # no process without an entry
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
        """Whether it still runs."""
        return self.process.poll() is None

    def send(self, line: bytes) -> None:
        """
        Give it a line.

        :raises BrokenPipeError: where it takes none any more.
        """
        if self.process.stdin is not None:
            self.process.stdin.write(line + b"\n")
            self.process.stdin.flush()

    def receive(self) -> list[bytes] | None:
        """
        Return the lines that one read completes, waiting for something to read; None where it is
        gone, or says more than it may.
        """
        block = os.read(self.descriptor, _BLOCK)
        *complete, rest = block.split(b"\n")
        if complete:
            complete[0] = b"".join((*self._begun, complete[0]))
            self._begun.clear()
            self._size = 0
        self._begun.append(rest)
        self._size += len(rest)
        self.longest_line = max(self.longest_line, self._size, *map(len, complete))
        return complete if block and self.longest_line <= self._longest else None

    @property
    def messages(self) -> str:
        """The end of what it printed."""
        if self._messages.closed:
            return ""
        size = os.fstat(self._messages.fileno()).st_size
        return os.pread(self._messages.fileno(), _TAIL, max(0, size - _TAIL)).decode(
            "utf-8", "replace"
        )

    def how_it_ended(self) -> str:
        """
        Return, as a sentence part, what ended it, with its last words where it ended by itself.
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
        """Whether it ended as the system ends what takes too much."""
        code = self.process.returncode
        return code is not None and -code in _DIED_OF

    def end(self, grace: float = 0) -> None:
        """
        End it and the processes that it started, immediately or after some seconds in which it may
        end by itself.
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
        """Close its stdin, which it takes as the end."""
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
Lines that a process has at a time: the one that it works on, and some more, so that it need not
wait for this process, nor wake it for each.
"""

_PLENTY: Final = 10
"""
Lines per process that have to be left for any to be given ahead: of the last ones, none is to wait
behind a slow one.
"""

_MODULE: Final = "policytool.commands.batch.worker"
_ROOT: Final = Path(__file__).parents[3]
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})


@dataclass(kw_only=True, slots=True, eq=False)
class _Worker:
    """One process, and what it has been given and has not answered."""

    child: Child
    is_ready: bool = False
    given: deque[int] = field(default_factory=deque)
    deadline: float = 0.0
    """When it has had enough time for the first of them."""


class Pool:
    """The processes, as a context manager that starts and ends them."""

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
        ``head`` is the line that each process is given first: what to do with the others.

        It is answered by an empty line.

        ``time`` is what one line may take, and ``grace`` how long a process that is ended over a
        line has to take back what it began.

        ``directory`` is where relative paths are; None for this process's working directory.
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
            # A process that is killed leaves its temporary files behind: they lie in here.
            scratch = self._stack.enter_context(interrupts.temporary_directory())
            self._environment = {**environment(os.environ), "TMPDIR": scratch}
            for worker in [
                self._start() for _ in range(self._count)
            ]:  # all of them first: a long head waits for its reader
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
            busy = [worker.child for worker in self._workers if worker.given] if self._grace else []
            grace = interrupts.GRACE if interrupts.is_interrupted() else self._grace
            until = time.monotonic() + grace  # all of them together
            for child in busy:
                child.hang_up()
            for child in busy:
                child.end(max(0.0, until - time.monotonic()))
        finally:
            self._stack.close()

    def answers(
        self, lines: Sequence[bytes], after: Sequence[frozenset[int]] = ()
    ) -> Iterator[tuple[int, bytes | Crash]]:
        """
        Yield each line's number and the processes' answer to it, in the order of the lines.

        ``after`` has for each line the earlier ones that must be finished before it begins.

        :raises WorkerError: if no process can be started.
        """
        pending = deque(range(len(lines)))
        done: dict[int, bytes | Crash] = {}
        for number in range(len(lines)):
            while number not in done:
                for worker, crash in self._collect_answers(done):
                    self._replace_worker(worker, crash, pending, done)
                self._send_tasks(lines, pending, after)
            yield number, done.pop(number)

    def _collect_answers(self, done: dict[int, bytes | Crash]) -> Iterator[tuple[_Worker, Crash]]:
        """
        Take the answers that there are, wait for one where there is none, and yield the processes
        that are lost.
        """
        for key, _ in self._selector.select(self._seconds_left()):
            worker: _Worker = key.data
            answers = worker.child.receive()
            if answers is None:
                yield worker, _crash(worker.child)
            for answer in answers or ():
                if worker.is_ready:
                    self._finished.add(worker.given[0])
                    done[worker.given.popleft()] = answer
                worker.is_ready = True
                worker.deadline = time.monotonic() + self._time.value
        now = time.monotonic()
        for worker in [
            worker for worker in self._workers if worker.given and worker.deadline < now
        ]:
            yield (
                worker,
                Crash(
                    code="worker-timeout",
                    how=f"took {self._time.exceeded_message(self._time.value + 1, counting=True)}",
                ),
            )

    def _seconds_left(self) -> float | None:
        """Return the seconds until some process has had enough time."""
        first = min((worker.deadline for worker in self._workers if worker.given), default=None)
        return None if first is None else max(0.0, first - time.monotonic())

    def _send_tasks(
        self, lines: Sequence[bytes], pending: deque[int], after: Sequence[frozenset[int]]
    ) -> None:
        """Give the processes something to do, one line each before any has a second."""
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
        self, worker: _Worker, crash: Crash, pending: deque[int], done: dict[int, bytes | Crash]
    ) -> None:
        """
        Put another process in the place of one that died over a line; one that died before its
        first line cannot be started.
        """
        self._selector.unregister(worker.child.descriptor)
        self._workers.remove(worker)
        worker.child.end(self._grace)
        if worker.given:
            self._finished.add(worker.given[0])
            done[worker.given.popleft()] = crash
            pending.extendleft(reversed(worker.given))
            if pending:
                _send(self._start(), self._head)
        elif not self._workers:
            message = f"cannot start a worker process: it {crash.how}; use --jobs 1"
            raise WorkerError("no-worker", message, details=crash.details, ended=True)

    def _start(self) -> _Worker:
        # -P: the working directory is a stranger's, and no module is imported from it.
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


def environment(own: Mapping[str, str]) -> dict[str, str]:
    """
    Return the variables that a process gets: this one's own, and where this package is found if it
    is not installed.
    """
    if _ROOT.name in _INSTALLED:
        return dict(own)
    return {
        **own,
        "PYTHONPATH": os.pathsep.join(part for part in (own.get("PYTHONPATH"), str(_ROOT)) if part),
    }


def _send(worker: _Worker, line: bytes) -> None:
    try:
        worker.child.send(line)
    except BrokenPipeError:
        return  # it is gone, which the end of its answers says too


def _crash(child: Child) -> Crash:
    if excess := limits.ANSWER_BYTES.exceeded_message(child.longest_line, counting=True):
        return Crash(code="worker-limit", how=f"returned {excess}")
    how = child.how_it_ended()
    code = child.process.returncode
    crash = (
        crash_guard.crash(-code)
        if code is not None and code < 0
        else Crash(code="worker-crashed", how=how)
    )
    return replace(crash, details=child.messages)
