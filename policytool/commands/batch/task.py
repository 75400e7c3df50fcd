"""
The tasks that commands run for many files, and the shards into which the files of a run can be
split.

The module of a command has its task as ``TASK``. Another process finds the task by the name of this
module, so that this package does not import commands.
"""

from __future__ import annotations

import hashlib
import os
import typing
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from msgspec import Struct

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
Seconds that a process that writes files has to remove its draft, before it is killed. It may first
have to complete a block of some MiB, or wait for the disk.
"""


class Caching(Struct, Generic[Item], frozen=True, kw_only=True):
    """The functions that determine whether the result of an item can be cached."""

    identity: Callable[[Item], InputIdentity | None]
    """
    Returns a value that changes if the result of the item may change; None if there is no such
    value.
    """

    is_complete: Callable[[Item], bool]
    """
    Returns, after an item was read, whether its identity covers everything that its result depends
    on.
    """

    refresh: Callable[[Item], None]
    """Discards cached data of an item, so that its identity is determined again."""


class Task(Struct, Generic[Item, Request, Result], frozen=True, kw_only=True):
    """An operation that a command runs for each of many files, independently of the others."""

    module: str
    """The module whose ``TASK`` this is."""

    attempt: Callable[[Item, Request], Result]
    """
    Returns the result of a file; a failure to read or write the file is also a result.

    The codec uses the annotations of the function to send values between processes.
    """

    shown: Callable[[Item], str]
    """Returns the path of an item in reports."""

    lost: str = "could not be read: the worker process {how}"
    """The message about a file, after its name, if the process crashed or was stopped."""

    time: Limit = limits.READ_SECONDS
    """The time limit for one file."""

    grace: float = 0.0
    """Seconds that a process has to undo its changes, before it is killed."""

    caching: Caching[Item] | None = None
    """How ``--cache`` caches results; None if it does not."""

    places: Callable[[Item, Request], frozenset[AnyPath]] = lambda _, __: frozenset()
    """
    Returns the files and directories that an item reads or writes. Items that share one of them run
    in their order. Drafts are next to these files.
    """

    def readers(self) -> Readers:
        """Return the codec's readers for the arguments and the result of ``attempt``."""
        hints: dict[str, Any] = typing.get_type_hints(self.attempt)
        result = hints.pop("return")
        item, request, *_ = hints.values()
        return Readers(*map(codec.reader, (item, request, result)))


class Readers(typing.NamedTuple):
    """The codec's readers for the values of a task."""

    item: codec.Read
    request: codec.Read
    result: codec.Read


MOST: Final = 10_000
"""Maximum number of shards of a run; ``merge`` keeps one line of each in memory."""


class Shard(Struct, frozen=True, kw_only=True):
    """A shard of a run."""

    index: int
    """The number of the shard, from 1 to ``count``."""

    count: int

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    def toml(self) -> str:
        """Return the shard as a value of a settings file."""
        return f'"{self}"'


def shard_items(every: Sequence[Item], shard: Shard | None) -> list[Item]:
    """Return the inputs of a shard; all inputs if ``shard`` is None."""
    return list(every) if shard is None else list(every[shard.index - 1 :: shard.count])


def position(number: int, shard: Shard | None) -> int:
    """Return the position of a shard's input among all inputs; both are counted from 0."""
    return number if shard is None else shard.index - 1 + number * shard.count


def names(inputs: Iterable[Input]) -> list[str]:
    """Return, for each input, its path and whether the user named it, which requires a model."""
    return [f"{'named' if source.exact else 'found'} {source.display_path}" for source in inputs]


def digest(names: Iterable[str]) -> str:
    """Return the SHA-256 of a list of paths or other texts, as hexadecimal digits."""
    hasher = hashlib.sha256()
    for name in names:
        hasher.update(os.fsencode(name) + b"\0")  # no path contains a null byte
    return hasher.hexdigest()


def check_outputs(
    sources: Sequence[tuple[AnyPath, str]], destination: Destination, shard: Shard | None
) -> None:
    """
    Check that no two shards write the same file, because the last one would replace it.

    :param sources: the inputs of all shards, each with what the name of its output contains
    :raises UsageError: if two shards write the same file.
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
