"""
What is done to each of many files: a description that each command's module has as its ``TASK``.

Another process finds it by the name of that module, so that nothing here imports a command.
"""

from __future__ import annotations

import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from policytool.support import limits
from policytool.support.text import codec

if TYPE_CHECKING:
    from collections.abc import Callable

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
