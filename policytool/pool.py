"""
Processes that read files for this one, each one file after the other: ``python -m policytool._worker``.

They start at the same time and stay until the end. One that dies over a file, or takes too long for it, costs that file's answer alone, and another
takes its place. All of them end with this process, whichever way that ends: they are killed when the pool is closed, and see their stdin close where it
was killed itself.
"""

from __future__ import annotations

import os
import selectors
import sys
import tempfile
import time
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from policytool import limits
from policytool.child import Child
from policytool.errors import WorkerError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

AHEAD: Final = 2
"""Lines that a process has at a time: the one that it works on, and one more, so that it need not wait until this process has heard of the first."""

_PLENTY: Final = 10
"""Lines per process that have to be left for any to be given ahead: of the last ones, none is to wait behind a slow one."""

_MODULE: Final = "policytool._worker"
_ROOT: Final = Path(__file__).parent.parent
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Crash:
    """What stands in the place of an answer that never came."""

    code: str
    message: str
    """What became of the file, as the rest of a sentence that begins with its name."""

    details: str = ""


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

    def __init__(self, count: int, head: bytes) -> None:
        """``head`` is the line that each process is given first: what to do with the others. It is answered by an empty line."""
        self._count = count
        self._head = head
        self._stack = ExitStack()
        self._selector = selectors.DefaultSelector()
        self._workers: list[_Worker] = []
        self._environment: dict[str, str] = {}

    def __enter__(self) -> Self:
        try:
            self._stack.enter_context(self._selector)
            # A process that is killed leaves its temporary files behind: they lie in here.
            scratch = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="policytool-", ignore_cleanup_errors=True))
            self._environment = {**environment(os.environ), "TMPDIR": scratch}
            for worker in [self._started() for _ in range(self._count)]:  # all of them first: a long head waits for its reader
                _tell(worker, self._head)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def answers(self, lines: Sequence[bytes]) -> Iterator[bytes | Crash]:
        """
        Yield what the processes make of each line, in the order of the lines.

        :raises WorkerError: where no process can be started.
        """
        pending = deque(range(len(lines)))
        done: dict[int, bytes | Crash] = {}
        for number in range(len(lines)):
            while number not in done:
                for worker, crash in self._heard(done):
                    self._lost(worker, crash, pending, done)
                self._give(lines, pending)
            yield done.pop(number)

    def _heard(self, done: dict[int, bytes | Crash]) -> Iterator[tuple[_Worker, Crash]]:
        """Take the answers that there are, wait for one where there is none, and yield the processes that are lost."""
        for key, _ in self._selector.select(self._patience()):
            worker: _Worker = key.data
            answers = worker.child.received()
            if answers is None:
                yield worker, _crash(worker.child)
            for answer in answers or ():
                if worker.is_ready:
                    done[worker.given.popleft()] = answer
                worker.is_ready = True
                worker.deadline = time.monotonic() + limits.MAX_READ_SECONDS
        now = time.monotonic()
        for worker in [worker for worker in self._workers if worker.given and worker.deadline < now]:
            yield worker, Crash(code="worker-timeout", message=f"took more than {limits.MAX_READ_SECONDS} seconds to read, and was given up")

    def _patience(self) -> float | None:
        """Return the seconds until some process has had enough time."""
        first = min((worker.deadline for worker in self._workers if worker.given), default=None)
        return None if first is None else max(0.0, first - time.monotonic())

    def _give(self, lines: Sequence[bytes], pending: deque[int]) -> None:
        """Give the processes something to do, one line each before any has a second."""
        for size in range(AHEAD if len(pending) > _PLENTY * len(self._workers) else 1):
            for worker in self._workers:
                if pending and worker.is_ready and len(worker.given) == size:
                    if not size:
                        worker.deadline = time.monotonic() + limits.MAX_READ_SECONDS
                    worker.given.append(pending.popleft())
                    _tell(worker, lines[worker.given[-1]])

    def _lost(self, worker: _Worker, crash: Crash, pending: deque[int], done: dict[int, bytes | Crash]) -> None:
        """Put another process in the place of one that died over a line; one that died before its first line cannot be started."""
        self._selector.unregister(worker.child.descriptor)
        self._workers.remove(worker)
        worker.child.end()
        if worker.given:
            done[worker.given.popleft()] = crash
            pending.extendleft(reversed(worker.given))
            if pending:
                _tell(self._started(), self._head)
        elif not self._workers:
            message = f"no process that reads files can be started: it {crash.message}; --jobs 1 needs none"
            raise WorkerError("no-worker", message, details=crash.details, ended=True)

    def _started(self) -> _Worker:
        # -P: the working directory is a stranger's, and no module is imported from it.
        try:
            child = Child([sys.executable, "-P", "-m", _MODULE], environment=self._environment, longest=limits.MAX_ANSWER_BYTES)
        except OSError as error:
            raise WorkerError("no-worker", f"{sys.executable} cannot be run ({error.strerror or error}); --jobs 1 needs no further process") from error
        self._stack.callback(child.end)
        worker = _Worker(child=child)
        self._workers.append(worker)
        self._selector.register(child.descriptor, selectors.EVENT_READ, worker)
        return worker


def environment(own: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a process gets: this one's own, and where this package is found if it is not installed."""
    if _ROOT.name in _INSTALLED:
        return dict(own)
    return {**own, "PYTHONPATH": os.pathsep.join(part for part in (own.get("PYTHONPATH"), str(_ROOT)) if part)}


def _tell(worker: _Worker, line: bytes) -> None:
    try:
        worker.child.send(line)
    except BrokenPipeError:
        return  # it is gone, which the end of its answers says too


def _crash(child: Child) -> Crash:
    how = child.how_it_ended()
    hint = ", by a fault of a library that reads it or because memory ran out" if child.may_have_lacked_memory else ""
    return Crash(code="worker-crashed", message=f"was not read: the process that read it {how}{hint}", details=child.messages)
