"""
One thing done to many files: in this process, or in several that each take one file at a time.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final, TypeVar

from policytool.commands.batch.tasks import TASKS
from policytool.commands.inspect import Failure
from policytool.support import limits
from policytool.support.errors import ModelFileError, UsageError
from policytool.support.processes import crash_guard
from policytool.support.processes.crash_guard import Crash

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from policytool.commands.batch.tasks import Task

Item = TypeVar("Item")
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

    Unless the user says how many, there are as many as processors, and one input needs none. One
    file takes less time than a process needs to start, but with several a fault of a library that
    reads them is not to cost the others' reports.
    """
    if jobs is not None:
        return min(jobs, inputs) if jobs > 1 and inputs > 1 else 0
    if (
        inputs < 2 or os.name != "posix"  # noqa: PLR2004  # one; and a pipe of its own cannot be handed to a process on Windows
    ):  # one; and a pipe of its own cannot be handed to a process on Windows
        return 0
    return min(processors(), inputs)


def each(
    task: Task[Item, Asked, Result],
    items: Sequence[Item],
    asked: Asked,
    jobs: int | None,
    after: Callable[[], Sequence[frozenset[int]]] = tuple,
) -> Iterator[Result | Failure]:
    """
    Yield what becomes of each item, in their order.

    ``after`` returns, for each item, which earlier ones have to be done before it is begun. Where
    an item ends the call, what other processes have in hand is finished first, and yielded.

    :raises UsageError: for what the task refuses to be asked.
    :raises WorkerError: where processes are wanted and cannot be started.
    :raises ModelFileError: where several items are done in this process, and a library ends it over
        one.
    """
    count = workers(jobs, len(items))
    if not count:
        yield from in_turn(items, lambda item: task.attempt(item, asked), task, asked)
        return
    untidy = True
    try:
        untidy = yield from _shared(task, items, asked, count, after)
    finally:
        if untidy:
            _tidy(task, items, asked)


def in_turn(
    items: Sequence[Item],
    attempt: Callable[[Item], Result],
    task: Task[Item, Asked, Result],
    asked: Asked,
) -> Iterator[Result | Failure]:
    """
    Yield what becomes of each item in a copy of this process, if it may have one; ``task`` says
    what is lost where the copy ends over an item.

    :raises ModelFileError: where that leaves others without a result.
    """
    if lost := crash_guard.split() if items else None:
        _tidy(task, items, asked)
        if len(items) > 1:
            raise ModelFileError(lost.path, lost.code, lost.message)
        yield Failure(path=lost.path, code=lost.code, message=lost.message)
        return
    for item in items:
        crash_guard.about(task.shown(item), task.lost)
        yield attempt(item)


def _shared(
    task: Task[Item, Asked, Result],
    items: Sequence[Item],
    asked: Asked,
    count: int,
    after: Callable[[], Sequence[frozenset[int]]],
) -> Generator[Result | Failure, None, bool]:
    """
    Yield what further processes make of each item, and return whether any of them ended over one.
    """
    from policytool.support.processes.pool import Pool

    wire = task.wire()
    head = json.dumps([task.name, dict(limits.asked()), wire.asked.encoded(asked)]).encode()
    lines = [wire.item.encoded(item).encode() for item in items]
    crashed = False
    ending: UsageError | UnexpectedError | None = None
    with Pool(count, head, time=task.time, grace=task.grace) as pool:
        for number, answer in pool.answers(lines, after()):
            if isinstance(answer, Crash):
                crashed = True
                yield Failure(
                    path=task.shown(items[number]),
                    code=answer.code,
                    message=task.lost.format(how=answer.how),
                    details=answer.details,
                )
            elif answer.startswith(_RESULT):
                yield wire.result.decoded(answer[len(_RESULT) :])
            else:
                ending = ending or _ending(answer)
                pool.stop()
    if ending is not None:
        raise ending
    return crashed


def answerer(head: bytes) -> Callable[[bytes], bytes]:
    """Return what answers each item's line, in the process that was given ``head``."""
    name, bounds, encoded = json.loads(head)
    task: Task[Any, Any, Any] = TASKS[name]()
    wire = task.wire()
    asked = wire.asked.decoded(encoded)

    def answer(line: bytes) -> bytes:
        try:
            with limits.given(bounds):
                return (
                    _RESULT
                    + wire.result.encoded(task.attempt(wire.item.decoded(line), asked)).encode()
                )
        except UsageError as error:
            return _USAGE + json.dumps(str(error)).encode()
        except Exception as error:  # told to the other process as it would be told in this one  # noqa: BLE001  # told to the other process as it would be told in this one
            import traceback  # 5 ms, once at most

            return (
                _BUG
                + json.dumps([f"{type(error).__name__}: {error}", traceback.format_exc()]).encode()
            )

    return answer


def _tidy(task: Task[Item, Asked, Result], items: Sequence[Item], asked: Asked) -> None:
    """Remove the drafts of processes that were ended before they could do so themselves."""
    directories = {directory for item in items for directory in task.drafts(item, asked)}
    if directories:
        from policytool.support.files import atomic  # only where something is written

        for directory in directories:
            atomic.remove_stale(directory)


def _ending(answer: bytes) -> UsageError | UnexpectedError:
    """Return what another process met that ends the call."""
    if answer.startswith(_USAGE):
        return UsageError(json.loads(answer[len(_USAGE) :]))
    message, trace = json.loads(answer[len(_BUG) :])
    error = UnexpectedError(message)
    error.add_note(trace)
    return error


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
