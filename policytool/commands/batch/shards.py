"""
Parts of the inputs of one run, which several machines process at the same time.

Shard I of N has the inputs I, I + N, I + 2N, ... of the list that the arguments mean. Each machine
finds the same list, so that no machine has to ask another.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from policytool.commands.destinations import output_path
from policytool.support.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from policytool.commands.destinations import Destination
    from policytool.formats.discovery import Input
    from policytool.support.files.remote_path import AnyPath

Item = TypeVar("Item")

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
    sources: Sequence[AnyPath],
    suffixes: Sequence[str],
    destination: Destination,
    shard: Shard | None,
) -> None:
    """
    Make sure that no two shards write the same file: the last one would win.

    :raises UsageError: if two do.
    """
    if shard is None or not destination.write or destination.in_place:
        return
    several = len(sources) > 1
    first: dict[AnyPath, int] = {}
    for number, (source, suffix) in enumerate(zip(sources, suffixes, strict=True)):
        output = output_path(source, suffix, destination, several=several)
        earlier = first.setdefault(output, number) if output is not None else number
        if (number - earlier) % shard.count:
            raise UsageError(
                f"--shard would write {output} from both {sources[earlier]} and {source}; specify "
                "inputs whose outputs have different names"
            )
