"""Which of several tasks have to wait for which, because they have to do with the same files."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from policytool.support.files.remote_path import AnyPath


def after(places: Sequence[Iterable[AnyPath]]) -> list[frozenset[int]]:
    """
    Return, for each task, the earlier tasks that must finish before it starts.

    Two tasks conflict if a place of the first is a place of the second, is inside it, or contains
    it. Tasks that wait for the same place run one after the other.

    :param places: the files and directories that each task reads or writes
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
