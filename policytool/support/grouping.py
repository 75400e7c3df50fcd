"""Values by what they have in common, and walks that visit each value once."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

Key = TypeVar("Key", bound="Hashable")
Member = TypeVar("Member")


def group_pairs(pairs: Iterable[tuple[Key, Member]]) -> defaultdict[Key, list[Member]]:
    """Return the second parts of pairs by the first, both in the order of the pairs."""
    groups: defaultdict[Key, list[Member]] = defaultdict(list)
    for key, member in pairs:
        groups[key].append(member)
    return groups


class EachOnce(Generic[Key]):
    """A walk that yields each value once; the value that was added last is next."""

    def __init__(self, starts: Iterable[Key]) -> None:
        self._pending = list(starts)
        self.visited: set[Key] = set()
        """The values that were yielded."""

    def __iter__(self) -> Iterator[Key]:
        while self._pending:
            value = self._pending.pop()
            if value not in self.visited:
                self.visited.add(value)
                yield value

    def add(self, values: Iterable[Key]) -> None:
        """Add values that are visited later, if they were not visited already."""
        self._pending += values
