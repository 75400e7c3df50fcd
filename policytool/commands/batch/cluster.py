"""
Runs tasks on the workers of a Dask cluster, instead of processes on this machine.

A Dask task contains some lines, and its result contains their answers, as bytes of policytool's
codec. A guarded child process of the Dask worker computes the answers, so that a crash of a C
library affects only one model and not the worker. The workers need the same release of policytool,
and the same files under the same paths.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import pickle
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Self

from policytool.support import limits
from policytool.support.errors import MissingPackageError, WorkerError, short
from policytool.support.processes.crash_guard import Crash
from policytool.support.processes.pool import Pool
from policytool.support.project import VERSION
from policytool.support.text import codec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from distributed import Future

    from policytool.commands.batch.task import Task

_LINES: Final = 64
"""
Maximum number of lines in a task. A task starts a child process, which takes as long as reading
some hundred small models.
"""

_ROUNDS: Final = 4
"""Minimum number of tasks per thread of the cluster, so that no thread is idle for long."""

_AHEAD: Final = 3
"""Maximum number of submitted tasks per thread, because their results are kept in memory."""

_CLOSING_SECONDS: Final = 0.5

_REPLY_SECONDS: Final = 10.0
"""Time limit in seconds for the scheduler to list its workers."""

_PATIENCE_SECONDS: Final = 60.0
"""Time limit in seconds for the cluster to start its first worker."""

_PICKLED_FROM: Final = frozenset({"asyncio", "builtins", "concurrent", "distributed"})
"""The packages whose exceptions a cluster can send."""

_PICKLED: Final = frozenset(
    {
        *(("builtins", kind) for kind in ("bytes", "bytearray", "frozenset", "set")),
        ("distributed.scheduler", "WorkerState"),
        ("distributed.core", "Status"),
        *(
            ("tblib.pickling_support", f"unpickle_{kind}")
            for kind in ("traceback", "exception", "exception_with_attrs")
        ),
    }
)
"""The classes and functions in pickled answers and exceptions, in addition to plain values."""

_CRASH: Final = "crash"
_REFUSED: Final = "refused"
_STARTS: Final = (b'["crash"', b'["refused"')
"""The beginnings of lines that are not answers of the child process."""


class Cluster:
    """A Dask cluster with the interface of a ``Pool``, as a context manager that connects to it."""

    def __init__(self, address: str, head: bytes, *, together: bool) -> None:
        """
        Set the options; entering the context connects to the cluster.

        :param address: the address of the Dask scheduler
        :param head: the first line for each child process, as for a ``Pool``
        :param together: whether a task can contain several lines; not if the lines write files
        """
        self._address = address
        self._head = head
        self._lines = _LINES if together else 1
        self._client: Any = None
        self._restricted = contextlib.ExitStack()
        self._futures = deque[tuple[range, "Future[bytes]"]]()

    def __enter__(self) -> Self:
        try:
            import dask

            # before the import, which sets the log levels: policytool reports errors itself
            dask.config.set({"logging": {"distributed": "critical"}})
            import distributed
        except ImportError as error:
            raise MissingPackageError(
                "--jobs ADDRESS needs Dask, which is not installed; run `pip install "
                "'policytool[fleet]'`"
            ) from error
        self._restricted.enter_context(restricted_unpickling())
        try:
            self._client = distributed.Client(  # type: ignore[no-untyped-call]
                self._address, set_as_default=False, name="policytool"
            )
        except (OSError, ValueError, TypeError, AssertionError) as error:
            # Dask asserts that its thread starts within ten seconds, which fails on a busy machine
            self._restricted.close()
            raise WorkerError(
                "no-cluster",
                f"cannot connect to the Dask scheduler at {short(self._address)}: "
                f"{short(_first_line(error))}; check the address",
            ) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # the scheduler then drops the tasks that no worker has begun
        with self._restricted:
            self._client.close(timeout=_CLOSING_SECONDS)

    def answers(
        self, lines: Sequence[bytes], after: Sequence[frozenset[int]]
    ) -> Iterator[tuple[int, bytes | Crash]]:
        """
        Run lines on the workers, and yield the number and the answer of each line, in the order of
        the lines.

        :param after: for each line, the numbers of the earlier lines that must be finished before
            it is run
        :raises WorkerError: if the workers fail, or if the connection is lost.
        """
        size = min(max(len(lines) // (max(self._threads(), 1) * _ROUNDS), 1), self._lines)
        pending = deque(
            range(first, min(first + size, len(lines))) for first in range(0, len(lines), size)
        )
        while pending or self._futures:
            most = max(self._threads(), 1) * _AHEAD  # requests the number from the scheduler
            while pending and len(self._futures) < most:
                numbers = pending.popleft()
                earlier = frozenset[int]().union(*(after[number] for number in numbers))
                self._futures.append((numbers, self._submit(lines, numbers, earlier)))
            numbers, future = self._futures[0]
            answers = self._answers(lines, numbers, future)
            self._futures.popleft()
            yield from zip(numbers, answers, strict=True)

    def _threads(self) -> int:
        """
        Return the number of threads of all workers; 0 if there are no workers.

        :raises WorkerError: if the scheduler does not answer.
        """
        try:
            threads = self._client.sync(
                self._client.scheduler.ncores, workers=None, callback_timeout=_REPLY_SECONDS
            )
        except OSError as error:  # also if the time limit is reached
            raise self._connection_error() from error
        return sum(threads.values())

    def _connection_error(self) -> WorkerError:
        return WorkerError(
            "no-cluster",
            f"the connection to the Dask scheduler at {short(self._address)} was lost; run the "
            "command again",
        )

    def _submit(
        self, lines: Sequence[bytes], numbers: range, earlier: frozenset[int] = frozenset()
    ) -> Future[bytes]:
        """Submit lines as a task that starts when the tasks of the ``earlier`` lines are done."""
        dependencies = [
            future for task_numbers, future in self._futures if earlier.intersection(task_numbers)
        ]
        future: Future[bytes] = self._client.submit(
            answer_lines,
            VERSION,
            os.getcwd(),  # noqa: PTH109  # a text
            self._head,
            [lines[number] for number in numbers],
            dependencies,
            pure=False,
        )
        return future

    def _answers(
        self, lines: Sequence[bytes], numbers: range, future: Future[bytes], *, again: bool = False
    ) -> list[bytes | Crash]:
        """
        Return the answers of a task.

        If several workers crashed on the task, or on a task that it waited for, each of its lines
        is submitted again as a separate task, so that only one model is lost.

        :param again: whether the task is such a single line
        """
        from distributed import CancelledError, KilledWorker

        try:
            answers = self._wait(future)
        except KilledWorker:
            if again:
                return [Crash(code="worker-crashed", how="ended with several Dask workers")]
            return [
                self._answers(lines, line_range, self._submit(lines, line_range), again=True)[0]
                for line_range in (range(number, number + 1) for number in numbers)
            ]
        except ImportError as error:
            raise WorkerError(
                "no-cluster",
                f"the Dask workers cannot import policytool ({short(_first_line(error))}); install "
                f"policytool {VERSION} there",
            ) from error
        except pickle.UnpicklingError as error:
            raise self._invalid_answer_error() from error
        except (CancelledError, OSError) as error:
            raise self._connection_error() from error
        encoded = answers.split(b"\n") if isinstance(answers, bytes) else []
        if len(encoded) != len(numbers):
            raise self._invalid_answer_error()
        try:
            return [read(line) for line in encoded]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise self._invalid_answer_error() from error

    def _invalid_answer_error(self) -> WorkerError:
        """Return the error for a result that no task of policytool returns."""
        return WorkerError(
            "no-cluster",
            f"the Dask cluster at {short(self._address)} sent something other than the answers to "
            "the task; use a cluster that runs only trusted workers",
        )

    def _wait(self, future: Future[bytes]) -> object:
        """
        Wait for a task and return its result, which can be any object because workers are not
        trusted.

        :raises WorkerError: if there is no worker for :data:`_PATIENCE_SECONDS`.
        """
        while True:
            try:
                result: object = future.result(timeout=_PATIENCE_SECONDS)
            except TimeoutError:
                if not self._threads():
                    raise WorkerError(
                        "no-cluster",
                        f"the Dask scheduler at {short(self._address)} has no workers; start some",
                    ) from None
            else:
                return result


@contextlib.contextmanager
def restricted_unpickling() -> Iterator[None]:
    """
    Let Dask unpickle only exceptions and plain values in this process. Anyone who can connect to
    the scheduler can send objects, which could otherwise run any function.

    The restriction also applies to other Dask clients of this process; a command has none.
    """
    from distributed.protocol import pickle as dask_pickle

    before = dask_pickle.loads
    dask_pickle.loads = _load
    try:
        yield
    finally:
        dask_pickle.loads = before


def _load(data: bytes | memoryview, *, buffers: Sequence[Any] = ()) -> object:
    """Replace ``distributed.protocol.pickle.loads``, for the allowed classes only."""
    return _Unpickler(io.BytesIO(data), buffers=buffers).load()


class _Unpickler(pickle.Unpickler):
    """Unpickles exceptions of Python and of Dask, and values of plain types."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401  # as the method of the class
        """Return the class that a pickle names, if it is an allowed exception."""
        if module.partition(".")[0] in _PICKLED_FROM or (module, name) in _PICKLED:
            named_class = super().find_class(module, name)
            if (module, name) in _PICKLED or (
                isinstance(named_class, type) and issubclass(named_class, BaseException)
            ):
                return named_class
        raise pickle.UnpicklingError(f"{short(module)}.{short(name)} is not read from a cluster")


def answer_lines(
    version: str, directory: str, head: bytes, lines: Sequence[bytes], _earlier: Sequence[bytes]
) -> bytes:
    """
    Return the answers to lines, separated by newlines. This function runs in a thread of a Dask
    worker.

    :param directory: the working directory of the run
    """
    if version != VERSION:
        return _refusal_line(
            f"has policytool {VERSION} instead of {version}; install the same release"
        )
    if not os.path.isdir(directory):  # noqa: PTH112  # os.path raises no errors
        return _refusal_line(
            f"has no directory {directory}; use a directory that all machines share"
        )
    module, bounds, _ = json.loads(head)
    task: Task[Any, Any, Any] = importlib.import_module(module).TASK
    try:
        with (
            limits.override(bounds),
            Pool(1, head, time=task.time, grace=task.grace, directory=directory) as pool,
        ):
            return b"\n".join(
                crash_line(answer) if isinstance(answer, Crash) else answer
                for _, answer in pool.answers(lines)
            )
    except WorkerError as error:
        return _refusal_line(f"failed: {error}")


def crash_line(crash: Crash) -> bytes:
    """Return the line that replaces the answer of a child process that ended."""
    return codec.encode([_CRASH, crash]).encode()


def _refusal_line(reason: str) -> bytes:
    return codec.encode([_REFUSED, reason]).encode()


def read(line: bytes) -> bytes | Crash:
    """
    Return an answer in the form of those of a ``Pool``.

    :raises WorkerError: if the worker rejected the task.
    :raises ValueError: if the bytes are not an answer; also TypeError and KeyError.
    """
    if line.startswith(_STARTS):
        kind, value = json.loads(line)
        if kind == _REFUSED:
            raise WorkerError("no-cluster", f"a Dask worker {value}")
        crash: Crash = codec.reader(Crash)(value)
        return crash
    return line


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
