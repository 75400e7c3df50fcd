"""
What is done to each of many files: a description that each command's module has as its ``TASK``;
and the shards into which the files of a run can be split.

Another process finds it by the name of that module, so that nothing here imports a command.
"""

from __future__ import annotations

import hashlib
import os
import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from policytool.commands.destinations import output_path
from policytool.support import limits
from policytool.support.errors import UsageError
from policytool.support.text import codec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from policytool.commands.destinations import Destination
    from policytool.formats.discovery import Input
    from policytool.formats.input_identity import InputIdentity
    from policytool.support.files.remote_path import AnyPath
    from policytool.support.limits import Limit


Item = TypeVar("Item")
Request = TypeVar("Request")
Result = TypeVar("Result")

WRITE_GRACE: Final = 5.0
"""
Seconds: a process that writes is in the middle of a block of some MiB, or waits for the disk, and
then has a draft to remove.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Caching(Generic[Item]):
    """Of which items results are kept, and until when."""

    identity: Callable[[Item], InputIdentity | None]
    """
    Returns what tells whether everything that decides an item's result is as it was; None if
    nothing does.
    """

    is_complete: Callable[[Item], bool]
    """
    Returns, once an item was read, whether its result depends on nothing that the identity omits.
    """

    refresh: Callable[[Item], None]
    """Forgets what is known of an item, so that its identity is determined again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Task(Generic[Item, Request, Result]):
    """One thing that is done to each of many files, on its own."""

    module: str
    """The module whose ``TASK`` this is."""

    attempt: Callable[[Item, Request], Result]
    """
    Returns what became of a file; a failure to read or write it is a result.

    Its annotations say how its values go from one process to another.
    """

    shown: Callable[[Item], str]
    """Returns the file as reports show it."""

    lost: str = "could not be read: the worker process {how}"
    """What is said of a file over which a process ended, after its name."""

    time: Limit = limits.READ_SECONDS
    """What one file may take."""

    grace: float = 0.0
    """Seconds that a process has to take back what it began, when it is ended over a file."""

    caching: Caching[Item] | None = None
    """How results are kept for later runs; None if they are not."""

    places: Callable[[Item, Request], frozenset[AnyPath]] = lambda _, __: frozenset()
    """
    Returns the files and directories that are read or written; two items with one of them in common
    are done in their order. Drafts lie beside them.
    """

    def readers(self) -> Readers:
        """Return what reads the values of ``attempt`` in another process."""
        hints: dict[str, Any] = typing.get_type_hints(self.attempt)
        result = hints.pop("return")
        item, request, *_ = hints.values()
        return Readers(*map(codec.reader, (item, request, result)))


class Readers(typing.NamedTuple):
    """What reads the values of a task."""

    item: codec.Read
    request: codec.Read
    result: codec.Read


MOST: Final = 10_000
"""Shards of one run; ``merge`` holds one line of each at a time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shard:
    """One of several parts."""

    index: int
    """From 1 to ``count``."""

    count: int

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    def toml(self) -> str:
        """Return it as a settings file spells it."""
        return f'"{self}"'


def shard_items(every: Sequence[Item], shard: Shard | None) -> list[Item]:
    """Return the inputs of a shard; all without one."""
    return list(every) if shard is None else list(every[shard.index - 1 :: shard.count])


def position(number: int, shard: Shard | None) -> int:
    """Return the position among all inputs of an input of a shard, both counted from 0."""
    return number if shard is None else shard.index - 1 + number * shard.count


def names(inputs: Iterable[Input]) -> list[str]:
    """Return, for each input, its path and whether it was named, and so must be a model."""
    return [f"{'named' if source.exact else 'found'} {source.display_path}" for source in inputs]


def digest(names: Iterable[str]) -> str:
    """Return the SHA-256 of a list of paths or other texts, as hexadecimal digits."""
    hasher = hashlib.sha256()
    for name in names:
        hasher.update(os.fsencode(name) + b"\0")  # which no path contains
    return hasher.hexdigest()


def check_outputs(
    sources: Sequence[tuple[AnyPath, str]], destination: Destination, shard: Shard | None
) -> None:
    """
    Make sure that no two shards write the same file: the last one would win.

    :param sources: the inputs of all shards, each with what the name of its output contains
    :raises UsageError: if two do.
    """
    if shard is None or not destination.write or destination.in_place:
        return
    several = len(sources) > 1
    first: dict[AnyPath, int] = {}
    for number, (source, suffix) in enumerate(sources):
        output = output_path(source, suffix, destination, several=several)
        earlier = first.setdefault(output, number) if output is not None else number
        if (number - earlier) % shard.count:
            raise UsageError(
                f"--shard would write {output} from both {sources[earlier][0]} and {source}; "
                "specify inputs whose outputs have different names"
            )
