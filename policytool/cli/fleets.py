"""
Runs over many models, or over one of N parts of them, with ``--cache DIR``.

With ``--format jsonl``, the report on stdout grows with each model, so that memory does not. Each
line is written as a whole, even if the user interrupts the run, and a last line says whether the
run processed all of its inputs.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

from msgspec import Struct

from policytool.cli import messages, options
from policytool.cli.exit_codes import Exit, code_of
from policytool.commands.batch import parallel, task
from policytool.commands.batch.isolation import run_isolated
from policytool.commands.batch.task import Item, Request, Result
from policytool.commands.inspect import Failure
from policytool.reports import json_lines
from policytool.support.processes import crash_guard, interrupts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import TracebackType

    from policytool.cli.arguments import FleetArguments
    from policytool.commands.batch.cache import ResultCache
    from policytool.commands.batch.task import Shard, Task

Value = TypeVar("Value")


class Fleet(Struct, Generic[Item], frozen=True, kw_only=True):
    """The models of a run, and the options for processing them."""

    command: str
    terminal: FleetArguments
    every: Sequence[Item]
    """The inputs of all shards."""

    cache: ResultCache | None = None

    @property
    def inputs(self) -> list[Item]:
        """The inputs of this shard."""
        return task.shard_items(self.every, self.terminal.shard)

    def results(
        self,
        job: Task[Item, Request, Result],
        request: Request,
        items: Sequence[Item] | None = None,
    ) -> Iterator[Result | Failure]:
        """
        Yield the result of each input, with a progress bar.

        :param items: the inputs to process, if not all of this shard
        """
        inputs = self.inputs if items is None else items
        results = parallel.run_all(job, inputs, request, self.terminal.jobs, cache=self.cache)
        verbose = self.terminal.verbose
        return messages.track(results, len(inputs), self.command, verbose=verbose)

    def print_notes(self) -> None:
        """Print notes on the HDF5 library, and on the use of the cache."""
        verbose, cache = self.terminal.verbose, self.cache
        options.about_hdf5(verbose=verbose)
        if cache is None or verbose is False:
            return
        if cache.unwritten is not None:
            reason = cache.unwritten.strerror or cache.unwritten
            messages.warning(f"--cache {cache.directory} could not keep all results: {reason}")
        if verbose:
            messages.note(f"{cache.hits} of {cache.requested} results came from the cache")


def no_model(every: Sequence[object], shard: Shard | None, *, is_ok: bool = False) -> Exit:
    """
    Print that no model was found, and return the exit code; another shard may have a model.

    :param every: the inputs of all shards
    :param is_ok: whether this is also a success in a run without shards
    """
    if is_ok or (shard is not None and every):
        messages.note("no model found" + (f" in shard {shard}" if shard is not None else ""))
        return Exit.CLEAN
    messages.error("no model found")
    return Exit.NO_MODEL


def open_cache(directory: str | None) -> ResultCache | None:
    """
    Return the cache in a directory, which is created if it does not exist; None without one.

    :raises CacheError: if the directory cannot be created or read.
    """
    if directory is None:
        return None
    from policytool.commands.batch.cache import ResultCache  # only where it is asked for

    return ResultCache(Path(directory))


_ENDED: Final = crash_guard.Mark.REPORT_ENDED


class LineWriter:
    """Writes the lines of a report to stdout, and its last line if an error ends the run."""

    def __init__(self, header: str) -> None:
        self._header = header
        self._has_ended = False
        self._number = 0
        """Of the next line."""

    def __enter__(self) -> Self:
        crash_guard.begin_report()
        self.write(self._header)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and not self._has_ended and not crash_guard.is_marked(_ENDED):
            self.write(json_lines.early_end(code_of(error)), last=True)

    def write(self, text: str, *, last: bool = False) -> None:
        """Write a line as a whole, unless a copy of this process wrote it before it crashed."""
        number = self._number
        self._number += 1
        if number < crash_guard.lines_before() and not last:
            return
        with interrupts.defer_interrupts():
            self._has_ended |= last
            if last:
                crash_guard.mark(_ENDED)
            try:
                sys.stdout.write(text)
                sys.stdout.flush()
                crash_guard.count_line()
            except OSError:  # a closed pipe, or a full disk: no other line could be written
                self._has_ended = True
                raise


class LinesReport(LineWriter):
    """The report of one run, as a context manager that writes its first and its last line."""

    def __init__(
        self,
        command: str,
        inputs: Sequence[str],
        options: str,
        shard: Shard | None,
        *,
        no_model: int = Exit.NO_MODEL,
        counts: Iterable[str] = (),
    ) -> None:
        """
        Prepare the report.

        :param inputs: the inputs of all shards
        :param options: all options that affect other lines, as one text
        :param no_model: the exit code of a run without models
        :param counts: the counts in the last line except models, failures and skipped files
        """
        listed = (len(inputs), task.digest(inputs))
        super().__init__(
            json_lines.header(command, listed, task.digest([options]), int(no_model), shard)
        )
        self._shard = shard
        self.counts = Counter(dict.fromkeys(("models", "failures", "skipped", *counts), 0))
        self.failure_codes = set[str]()

    def write_all(
        self,
        results: Iterable[Value | Failure | None],
        display_path: Callable[[Value], str],
        values: Callable[[Value], tuple[Mapping[str, Any], Mapping[str, int]]],
    ) -> Iterator[Value | Failure | None]:
        """
        Write the line of each result, in the order of the inputs, and then yield the result. If its
        line cannot be created, write and yield a failure instead.

        :param display_path: returns the path of a model in reports
        :param values: returns a model as in the JSON report, and the numbers to add to the counts
        """

        def line(position: int, result: Value) -> tuple[str, Mapping[str, int]]:
            model, counts = values(result)
            return json_lines.model(position, model), counts

        for number, result in enumerate(results):
            position = task.position(number, self._shard)
            if result is None:
                self.counts["skipped"] += 1
                yield None
                continue
            outcome = (
                result
                if isinstance(result, Failure)
                else run_isolated(display_path(result), functools.partial(line, position, result))
            )
            if isinstance(outcome, Failure):
                self.write(json_lines.failure(position, outcome))
                self.counts["failures"] += 1
                self.failure_codes.add(outcome.code)
                yield outcome
                continue
            self.write(outcome[0])
            self.counts["models"] += 1
            self.counts.update(outcome[1])
            yield result

    def end(self, code: int) -> None:
        """Write the last line of a run that ends with this exit code."""
        self.write(json_lines.end(self.counts, int(code)), last=True)
