"""
Runs a task for many files: in this process, in worker processes that process one file at a time, or
on a cluster.

Tasks that read or write the same files run one after the other. A copy of this process returns its
results through an unnamed temporary file.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
from collections import defaultdict
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self

from policytool.commands.batch.isolation import (
    decode_outcome,
    encode_outcome,
    failure_from,
    run_isolated,
)
from policytool.commands.batch.task import Item, Request, Result
from policytool.commands.inspect import Failure
from policytool.support import limits
from policytool.support.errors import USAGE, UsageError
from policytool.support.processes import crash_guard, interrupts
from policytool.support.processes.crash_guard import Crash
from policytool.support.text import codec

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
    from typing import BinaryIO

    from policytool.commands.batch.cache import CachedResults, ResultCache
    from policytool.commands.batch.cluster import Cluster
    from policytool.commands.batch.task import Task
    from policytool.support.files.remote_path import AnyPath
    from policytool.support.processes.pool import Pool


Jobs = int | str | None
"""
A number of processes of this machine, or the address of a Dask scheduler whose workers do the work;
None for as many processes as processors.
"""


class ResultsOfCopies(ExitStack, Generic[Item, Request, Result]):
    """
    The results of copies of this process, as a context manager.

    If there are several items, results are in an unnamed temporary file, which is open in the
    original and in each copy.
    """

    def __init__(self, task: Task[Item, Request, Result], count: int) -> None:
        super().__init__()
        self._task = task
        self._count = count
        self._file: BinaryIO | None = None
        self.known: list[Result | Failure] = []
        """The results from copies that ended: those of the first items."""

    def __enter__(self) -> Self:
        if self._count > 1 and crash_guard.may_split():
            import tempfile  # imports hashlib and random, which only several items need

            self._file = self.enter_context(tempfile.TemporaryFile(buffering=0))
        return self

    def write(self, result: Result | Failure) -> None:
        """Write the next result to the file, from which the original reads it."""
        if self._file is not None:
            remaining = encode_outcome(result) + b"\n"
            while remaining:
                remaining = remaining[self._file.write(remaining) :]

    def add(self, failure: Failure) -> bool:
        """
        Add the results that a crashed copy of this process wrote, and then the failure of the item
        that it was processing.

        Return False if the copy had processed all items, so that the failure belongs to none.
        """
        if self._file is not None:
            read = self._task.readers().result
            self._file.seek(0)
            for line in self._file.read().splitlines()[len(self.known) :]:
                self.known.append(decode_outcome(line, read))
        if len(self.known) == self._count:
            return False
        self.known.append(failure)
        self.write(failure)
        return True


def predecessors_of(places: Sequence[Iterable[AnyPath]]) -> list[frozenset[int]]:
    """
    Return, for each task, the earlier tasks that must finish before it starts.

    Two tasks conflict if a place of the first is a place of the second, is inside it, or contains
    it. Tasks that wait for the same place run one after the other.

    :param places: the files and directories that each task reads or writes
    """
    last: dict[AnyPath, int] = {}
    tasks_below: defaultdict[AnyPath, set[int]] = defaultdict(set)
    predecessors = []
    for number, task_places in enumerate(places):
        earlier = set[int]()
        for place in task_places:
            earlier |= {
                last[ancestor] for ancestor in (place, *place.parents) if ancestor in last
            } | tasks_below.get(place, set())
        for place in task_places:
            last[place] = number
            for parent in place.parents:
                tasks_below[parent].add(number)
        predecessors.append(frozenset(earlier))
    return predecessors


def workers(jobs: int | None, inputs: int) -> int:
    """
    Return the number of worker processes for a number of inputs; 0 if this process reads them.

    By default, there is one worker for each processor. A single input needs no worker, because
    starting one takes longer than reading a file. Several inputs need workers, so that a crash of a
    library affects only the report of one file.
    """
    if jobs is not None:
        return min(jobs, inputs) if jobs > 1 and inputs > 1 else 0
    if (
        inputs < 2 or os.name != "posix"  # noqa: PLR2004  # on Windows, a child process cannot inherit the pipe
    ):
        return 0
    return min(processors(), inputs)


def run_all(
    task: Task[Item, Request, Result],
    items: Sequence[Item],
    request: Request,
    jobs: Jobs,
    *,
    cache: ResultCache | None = None,
) -> Iterator[Result | Failure]:
    """
    Run a task for each item, and yield the results in the order of the items.

    Cached results are not computed again. If an error occurs for one of several items, its result
    is a failure, and the other items are still processed.

    :raises UsageError: if the task raises it for the only item.
    :raises WorkerError: if the processes cannot be started.
    """
    results = cache.results(task, request) if cache is not None else None
    if cache is None or results is None:
        yield from _run(task, items, request, jobs)
        return
    if (yield from _run_missing(task, items, request, jobs, results)):
        cache.trim()


def _run_missing(
    task: Task[Item, Request, Result],
    items: Sequence[Item],
    request: Request,
    jobs: Jobs,
    results: CachedResults[Item, Request, Result],
) -> Generator[Result | Failure, None, bool]:
    """
    Yield the result of each item, from the cache if possible, and return whether any result was
    added to the cache.
    """
    entries = [
        run_isolated(task.shown(item), functools.partial(results.entry, item)) for item in items
    ]
    missing = [
        item
        for item, entry in zip(items, entries, strict=True)
        if not isinstance(entry, Failure) and not entry.exists
    ]
    new_results = _run(task, missing, request, jobs)
    begun = [next(new_results)] if missing else []  # processes work while entries are read
    others = chain(begun, new_results)
    is_new, found_count = False, 0
    for item, entry in zip(items, entries, strict=True):
        if isinstance(entry, Failure):
            yield entry
            continue
        display_path = task.shown(item)
        if entry.exists:
            cached = run_isolated(display_path, functools.partial(results.find, entry.key))
            if cached is not None:
                found_count += 1
                yield cached if isinstance(cached, Failure) else cached.result
                continue
            # The entry has vanished, or has another type, which is rare. This process may have
            # child processes by now, so it must not continue in a copy of itself.
            [result] = _run_in_processes(task, [item], request, 1)
        else:
            result = next(others)
        kept = run_isolated(display_path, functools.partial(results.keep, item, entry.key, result))
        if isinstance(kept, Failure):
            yield kept
            continue
        is_new |= kept
        yield result
    next(new_results, None)  # ends the processes
    results.count(len(items), found_count)
    return is_new


def _run(
    task: Task[Item, Request, Result],
    items: Sequence[Item],
    request: Request,
    jobs: Jobs,
) -> Iterator[Result | Failure]:
    """Run a task for each item and yield the results, like :func:`run_all` without a cache."""
    processes = jobs if isinstance(jobs, str) else workers(jobs, len(items))
    if not processes and len(items) > 1 and crash_guard.may_split():
        processes = 1  # a copy of this process that crashed would lose the results of other items
    if not processes:
        yield from run_serially(task, items, request, lambda item: task.attempt(item, request))
        return
    may_leave_drafts = True
    try:
        may_leave_drafts = yield from _run_in_processes(task, items, request, processes)
    finally:
        if may_leave_drafts:
            _remove_drafts(task, items, request)


def run_serially(
    task: Task[Item, Request, Result],
    items: Sequence[Item],
    request: Request,
    attempt: Callable[[Item], Result],
) -> Iterator[Result | Failure]:
    """
    Yield the result of ``attempt`` for each item, run in a copy of this process if one can be
    created. If the copy crashes on an item, that item fails with the message of ``task``, and
    another copy continues.

    :raises UsageError: if ``attempt`` raises it for the only item.
    :raises ModelFileError: if a copy crashes after the last item.
    """
    with ResultsOfCopies(task, len(items)) as results:
        while len(results.known) < len(items):
            try:
                lost_file = crash_guard.split()
            except KeyboardInterrupt:  # the copy may have been killed before it removed its drafts
                _remove_drafts(task, items, request)
                raise
            if lost_file is None:
                break
            _remove_drafts(task, items, request)
            if not results.add(failure_from(lost_file.path, lost_file)):
                raise lost_file
        yield from results.known
        for item in items[len(results.known) :]:
            interrupts.check()
            display_path = task.shown(item)
            crash_guard.set_next_file(display_path, task.lost)
            result = _result_of(
                display_path, functools.partial(attempt, item), is_only=len(items) == 1
            )
            results.write(result)
            yield result


def _result_of(
    display_path: str, action: Callable[[], Result], *, is_only: bool
) -> Result | Failure:
    """
    Return the result of an action for an item, or its failure.

    :param is_only: whether there is no other item, so that a usage error ends the run
    :raises UsageError: if the action raises it for the only item.
    """
    result = run_isolated(display_path, action)
    if is_only and isinstance(result, Failure) and result.code == USAGE:
        raise UsageError(result.message)
    return result


def _run_in_processes(
    task: Task[Item, Request, Result],
    items: Sequence[Item],
    request: Request,
    processes: int | str,
) -> Generator[Result | Failure, None, bool]:
    """
    Yield the results of each item from worker processes, and return whether any of them crashed.
    """
    read_result = task.readers().result
    head = codec.encode([task.module, limits.overrides(), request]).encode()
    after = predecessors_of([task.places(item, request) for item in items])
    lines = [codec.encode(item).encode() for item in items]
    crashed = False
    with _helpers(task, head, processes) as pool:
        for number, answer in pool.answers(lines, after):
            display_path = task.shown(items[number])
            if isinstance(answer, Crash):
                crashed = True
                yield Failure(
                    path=display_path,
                    code=answer.code,
                    message=task.lost.format(how=answer.how),
                    details=answer.details,
                )
                continue
            yield _result_of(
                display_path,
                functools.partial(decode_outcome, answer, read_result),
                is_only=len(items) == 1,
            )
    return crashed


def _helpers(
    task: Task[Item, Request, Result], head: bytes, processes: int | str
) -> Pool | Cluster:
    """Return the pool of worker processes, or the cluster."""
    if isinstance(processes, str):
        from policytool.commands.batch.cluster import Cluster  # only needed for this option

        return Cluster(processes, head, together=not task.grace)
    from policytool.support.processes.pool import Pool

    return Pool(processes, head, time=task.time, grace=task.grace)


def line_answerer(head: bytes) -> Callable[[bytes], bytes]:
    """
    Return the function that runs the task for the item in a line, in a worker process.

    :param head: the first line of the worker: the module of the task, the limits and the request
    """
    module, bounds, encoded = json.loads(head)
    task: Task[Any, Any, Any] = importlib.import_module(module).TASK
    readers = task.readers()
    request = readers.request(encoded)

    def answer(line: bytes) -> bytes:
        item = readers.item(json.loads(line))

        def run_task() -> bytes:
            with limits.override(bounds):
                return encode_outcome(task.attempt(item, request))

        outcome = run_isolated(task.shown(item), run_task)
        return encode_outcome(outcome) if isinstance(outcome, Failure) else outcome

    return answer


def _remove_drafts(
    task: Task[Item, Request, Result], items: Sequence[Item], request: Request
) -> None:
    """Remove the drafts of processes that crashed or were killed."""
    directories = {
        place.parent
        for item in items
        for place in task.places(item, request)
        if isinstance(place, Path)
    }
    if directories:
        from policytool.support.files import atomic  # only tasks that write need it

        for directory in directories:
            atomic.remove_stale(directory)


def processors() -> int:
    """Return the number of processors that this process can use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
