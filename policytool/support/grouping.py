"""Values by what they have in common."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

Key = TypeVar("Key", bound="Hashable")
Member = TypeVar("Member")


def group_pairs(pairs: Iterable[tuple[Key, Member]]) -> defaultdict[Key, list[Member]]:
    """Return the second parts of pairs by the first, both in the order of the pairs."""
    groups: defaultdict[Key, list[Member]] = defaultdict(list)
    for key, member in pairs:
        groups[key].append(member)
    return groups
