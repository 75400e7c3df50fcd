"""Runs over many models, or over one of N parts of them, with ``--cache DIR``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from policytool.cli import messages, options
from policytool.cli.exit_codes import Exit
from policytool.commands.batch import parallel, task

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from policytool.cli.arguments import FleetArguments
    from policytool.commands.batch.cache import ResultCache
    from policytool.commands.batch.task import Shard, Task
    from policytool.commands.inspect import Failure

Item = TypeVar("Item")
Request = TypeVar("Request")
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True, slots=True)
class Fleet(Generic[Item]):
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
