"""Which of several tasks have to wait for which, because they have to do with the same files."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from policytool.support.files.remote_path import AnyPath


def after(places: Sequence[Iterable[AnyPath]]) -> list[frozenset[int]]:
    """
    Return for each task which earlier ones have to be done before it is begun, given the places
    that each has to do with.

    Two have to do with each other where one's place is the other's, lies in it, or holds it. Those
    that wait for the same place form a row.
    """
    last: dict[AnyPath, int] = {}
    within: defaultdict[AnyPath, set[int]] = defaultdict(set)
    predecessors = []
    for number, own in enumerate(places):
        earlier = set[int]()
        for place in own:
            earlier |= {
                last[ancestor] for ancestor in (place, *place.parents) if ancestor in last
            } | within.get(place, set())
        for place in own:
            last[place] = number
            for parent in place.parents:
                within[parent].add(number)
        predecessors.append(frozenset(earlier))
    return predecessors
