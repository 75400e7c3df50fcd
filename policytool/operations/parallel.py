"""One thing done to many files: in this process, or in several that each take one file at a time."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from policytool.discovery import Input
from policytool.errors import UsageError
from policytool.operations.inspection import Failure
from policytool.operations.tasks import TASKS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from policytool.operations.tasks import Task

Asked = TypeVar("Asked")
Result = TypeVar("Result")

_RESULT: Final = b"result "
_USAGE: Final = b"usage "
_BUG: Final = b"bug "


class UnexpectedError(Exception):
    """A bug of ours that another process met; its notes hold the traceback."""


def workers(jobs: int | None, inputs: int) -> int:
    """
    Return how many further processes read so many inputs; 0 where this one does.

    Unless the user says how many, there are as many as processors, and one input needs none. One file takes less time than a process needs to start, but
    with several a fault of a library that reads them is not to cost the others' reports.
    """
    if jobs is not None:
        return min(jobs, inputs) if jobs > 1 and inputs > 1 else 0
    if inputs < 2 or os.name != "posix":  # noqa: PLR2004  # one; and a pipe of its own cannot be handed to a process on Windows
        return 0
    return min(_processors(), inputs)


def each(task: Task[Asked, Result], inputs: Sequence[Input], asked: Asked, jobs: int | None) -> Iterator[Result | Failure]:
    """
    Yield what becomes of each input, in their order.

    :raises UsageError: for what the task refuses to be asked.
    :raises WorkerError: where processes are wanted and cannot be started.
    """
    count = workers(jobs, len(inputs))
    if not count:
        for found in inputs:
            yield task.attempt(found, asked)
        return
    from policytool.pool import Crash, Pool  # subprocess and tempfile, only where they are used

    head = json.dumps([task.name, task.asked.encoded(asked)]).encode()
    with Pool(count, head) as pool:
        for found, answer in zip(inputs, pool.answers([_line(found) for found in inputs]), strict=True):
            if isinstance(answer, Crash):
                yield Failure(path=found.shown, code=answer.code, message=answer.message, details=answer.details)
            else:
                yield _result(task, answer)


def answerer(head: bytes) -> Callable[[bytes], bytes]:
    """Return what answers each input's line, in the process that was given ``head``."""
    name, encoded = json.loads(head)
    task: Task[Any, Any] = TASKS[name]()
    asked = task.asked.decoded(encoded)

    def answer(line: bytes) -> bytes:
        path, exact = json.loads(line)
        try:
            return _RESULT + task.result.encoded(task.attempt(Input(path=Path(path), exact=exact), asked)).encode()
        except UsageError as error:
            return _USAGE + json.dumps(str(error)).encode()
        except Exception as error:  # noqa: BLE001  # told to the other process as it would be told in this one
            import traceback  # 5 ms, once at most

            return _BUG + json.dumps([f"{type(error).__name__}: {error}", traceback.format_exc()]).encode()

    return answer


def _line(found: Input) -> bytes:
    return json.dumps([str(found.path), found.exact]).encode()


def _result(task: Task[Asked, Result], answer: bytes) -> Result:
    if answer.startswith(_RESULT):
        return task.result.decoded(answer[len(_RESULT) :])
    if answer.startswith(_USAGE):
        raise UsageError(json.loads(answer[len(_USAGE) :]))
    message, trace = json.loads(answer[len(_BUG) :])
    error = UnexpectedError(message)
    error.add_note(trace)
    raise error


def _processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
