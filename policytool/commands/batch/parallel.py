"""
One thing done to many files: in this process, or in several that each take one file at a time.
"""

from __future__ import annotations

import importlib
import json
import os
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from policytool.commands.batch import file_conflicts
from policytool.commands.inspect import Failure
from policytool.support import limits
from policytool.support.errors import ModelFileError, UsageError
from policytool.support.processes import crash_guard, interrupts
from policytool.support.processes.crash_guard import Crash
from policytool.support.text import codec

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from policytool.commands.batch.cache import CachedResults, ResultCache
    from policytool.commands.batch.cluster import Cluster
    from policytool.commands.batch.task import Task
    from policytool.support.processes.pool import Pool

Item = TypeVar("Item")
Request = TypeVar("Request")
Result = TypeVar("Result")

_RESULT: Final = "result"
_USAGE: Final = "usage"
_BUG: Final = "bug"


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
    ):
        return 0
    return min(processors(), inputs)


def run_all(
    task: Task[Item, Request, Result],
    items: Sequence[Item],
    request: Request,
    jobs: int | None,
    *,
    scheduler: str | None = None,
    cache: ResultCache | None = None,
) -> Iterator[Result | Failure | None]:
    """
    Yield what becomes of each item, in their order; None for one that was not begun, because
    another ended the call.

    ``scheduler`` is the address of a Dask scheduler, whose workers do it in place of ``jobs``
    processes of this machine. Results that are in the cache are not made again.

    If an item ends the call, what other processes have in hand is finished first, and yielded.

    :raises UsageError: for what the task refuses to do.
    :raises WorkerError: where processes are wanted and cannot be started.
    :raises ModelFileError: where several items are done in this process, and a library ends it over
        one.
    """
    results = cache.results(task, request) if cache is not None else None
    if cache is None or results is None:
        yield from _run(task, items, request, jobs, scheduler)
        return
    if (yield from _run_missing(task, items, request, jobs, scheduler=scheduler, results=results)):
        cache.trim()


def _run_missing(
    task: Task[Item, Request, Result],
    items: Sequence[Item],
    request: Request,
    jobs: int | None,
    *,
    scheduler: str | None,
    results: CachedResults[Item, Request, Result],
) -> Generator[Result | Failure | None, None, bool]:
    """
    Yield what becomes of each item, from the cache if possible, and return whether any result was
    added to it.
    """
    keys = [results.key(item) for item in items]
    kept = [results.has(key) for key in keys]
    missing = [item for item, is_kept in zip(items, kept, strict=True) if not is_kept]
    made = _run(task, missing, request, jobs, scheduler)
    begun = [next(made)] if missing else []  # processes work while entries are read
    others = chain(begun, made)
    is_new, found_count, skipped = False, 0, []
    for item, key, is_kept in zip(items, keys, kept, strict=True):
        if is_kept and (found := results.find(key)) is not None:
            found_count += 1
            yield found.result
            continue
        if is_kept:
            # The entry vanished meanwhile, or has another type, which is rare. This process may
            # have children by now, so that no copy of it may go on.
            [result] = _run_in_processes(task, [item], request, 1, None)
        else:
            result = next(others)
        if result is None:
            skipped.append((item, key))
        else:
            is_new |= results.keep(item, key, result)
        yield result
    next(made, None)  # ends the processes; raises if an item ended the call
    for item, key in skipped:  # and then some may not have been begun
        is_new |= results.keep(item, key, None)
    results.count(len(items), found_count)
    return is_new


def _run(
    task: Task[Item, Request, Result],
    items: Sequence[Item],
    request: Request,
    jobs: int | None,
    scheduler: str | None,
) -> Iterator[Result | Failure | None]:
    """Yield what becomes of each item, as :func:`run_all` without a cache."""
    count = workers(jobs, len(items)) if scheduler is None else 0
    if scheduler is None and not count:
        yield from run_serially(task, items, request, lambda item: task.attempt(item, request))
        return
    untidy = True
    try:
        untidy = yield from _run_in_processes(task, items, request, count, scheduler)
    finally:
        if untidy:
            _tidy(task, items, request)


def run_serially(
    task: Task[Item, Request, Result],
    items: Sequence[Item],
    request: Request,
    attempt: Callable[[Item], Result],
) -> Iterator[Result | Failure]:
    """
    Yield what ``attempt`` makes of each item in a copy of this process, if it may have one;
    ``task`` says what is lost if the copy ends over an item.

    :raises ModelFileError: where that leaves others without a result.
    """
    if lost := crash_guard.split() if items else None:
        _tidy(task, items, request)
        if len(items) > 1:
            raise ModelFileError(lost.path, lost.code, lost.message)
        yield Failure(path=lost.path, code=lost.code, message=lost.message)
        return
    for item in items:
        interrupts.check()
        crash_guard.about(task.shown(item), task.lost)
        yield attempt(item)


def _run_in_processes(
    task: Task[Item, Request, Result],
    items: Sequence[Item],
    request: Request,
    count: int,
    scheduler: str | None,
) -> Generator[Result | Failure | None, None, bool]:
    """
    Yield what further processes make of each item, and return whether any of them ended over one.
    """
    read_result = task.readers().result
    head = codec.encode([task.module, limits.overrides(), request]).encode()
    after = file_conflicts.after([task.places(item, request) for item in items])
    lines = [codec.encode(item).encode() for item in items]
    crashed = False
    ending: UsageError | UnexpectedError | None = None
    expected = 0
    with _helpers(task, head, count, scheduler) as pool:
        for number, answer in pool.answers(lines, after):
            yield from [None] * (number - expected)
            expected = number + 1
            if isinstance(answer, Crash):
                crashed = True
                yield Failure(
                    path=task.shown(items[number]),
                    code=answer.code,
                    message=task.lost.format(how=answer.how),
                    details=answer.details,
                )
                continue
            kind, values = json.loads(answer)
            if kind == _RESULT:
                yield read_result(values)
            else:
                ending = ending or _ending(kind, values)
                pool.stop()
                yield None
    if ending is not None:
        raise ending
    return crashed


def _helpers(
    task: Task[Item, Request, Result], head: bytes, count: int, scheduler: str | None
) -> Pool | Cluster:
    """Return the processes, of this machine or of a cluster."""
    if scheduler is not None:
        from policytool.commands.batch.cluster import Cluster  # Dask, only for this option

        return Cluster(scheduler, head, together=not task.grace)
    from policytool.support.processes.pool import Pool

    return Pool(count, head, time=task.time, grace=task.grace)


def answerer(head: bytes) -> Callable[[bytes], bytes]:
    """Return what answers each item's line, in the process that was given ``head``."""
    module, bounds, encoded = json.loads(head)
    task: Task[Any, Any, Any] = importlib.import_module(module).TASK
    readers = task.readers()
    request = readers.request(encoded)

    def answer(line: bytes) -> bytes:
        try:
            with limits.override(bounds):
                result = task.attempt(readers.item(json.loads(line)), request)
                return codec.encode([_RESULT, result]).encode()
        except UsageError as error:
            return codec.encode([_USAGE, str(error)]).encode()
        except Exception as error:  # noqa: BLE001  # the other process reports it as its own
            import traceback  # 5 ms, once at most

            said = [f"{type(error).__name__}: {error}", traceback.format_exc()]
            return codec.encode([_BUG, said]).encode()

    return answer


def _tidy(task: Task[Item, Request, Result], items: Sequence[Item], request: Request) -> None:
    """Remove the drafts of processes that were ended before they could do so themselves."""
    directories = {
        place.parent
        for item in items
        for place in task.places(item, request)
        if isinstance(place, Path)
    }
    if directories:
        from policytool.support.files import atomic  # only where something is written

        for directory in directories:
            atomic.remove_stale(directory)


def _ending(kind: str, values: Any) -> UsageError | UnexpectedError:  # noqa: ANN401
    """Return what another process met that ends the call."""
    if kind == _USAGE:
        return UsageError(values)
    message, trace = values
    error = UnexpectedError(message)
    error.add_note(trace)
    return error


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
