"""
Which layer of one model is which of the other: by path first, then by rules that leave no choice.

The rules are the same read from either side, so that comparing B with A mirrors comparing A with B.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from policytool.comparison.result import Pairing
from policytool.support import steps

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from policytool.comparison.sides import ComparedModel


@dataclass(slots=True)
class Pairs:
    """The layers that belong together, by index."""

    of_a: dict[int, int] = field(default_factory=dict)
    of_b: dict[int, int] = field(default_factory=dict)
    by: dict[int, Pairing] = field(default_factory=dict)
    """What paired a layer of A."""

    further_a: dict[int, int] = field(default_factory=dict)
    """A further place that A lists of a layer that B lists once, to the layer of B."""

    further_b: dict[int, int] = field(default_factory=dict)
    """The same the other way round."""

    def as_a(self, a: int) -> int | None:
        """Return the paired layer of A that a layer of A is; None for one that is only there."""
        return (
            a if a in self.of_a else self.of_b[self.further_a[a]] if a in self.further_a else None
        )

    def of_other(self, b: int) -> int | None:
        """Return the paired layer of A that a layer of B is; None for one that is only in B."""
        return self.of_b.get(b, self.further_b.get(b))

    def add(self, a: int, b: int, by: Pairing) -> None:
        """Pair two layers."""
        self.of_a[a], self.of_b[b], self.by[a] = b, a, by


def pair_layers(a: ComparedModel, b: ComparedModel) -> Pairs:
    """Return which layers belong together."""
    work = _Pairing(a, b)
    if a.is_rooted and b.is_rooted:
        work.pairs.add(0, 0, Pairing.ROOT)
        work.below(0, 0)
    else:
        work.below(0 if a.is_rooted else None, 0 if b.is_rooted else None)
    work.places()
    work.pair_moved()
    work.pair_shared()
    return work.pairs


class _Pairing:
    """The pairing of two models."""

    def __init__(self, a: ComparedModel, b: ComparedModel) -> None:
        self._a, self._b = a, b
        self._below_a, self._below_b = a.children(), b.children()
        self._has_shapes = a.has_variables and b.has_variables
        self.pairs = Pairs()

    def below(self, a: int | None, b: int | None) -> None:
        """Pair the layers below two paired layers, at all depths."""
        pending = [(a, b)]
        while pending:
            parent_a, parent_b = pending.pop()
            children_a, children_b = (
                self._below_a.get(parent_a, []),
                self._below_b.get(parent_b, []),
            )
            steps.spend(len(children_a) + len(children_b), walk="layers of a pair")
            self._by(
                children_a,
                children_b,
                Pairing.PATH,
                lambda subject, index: subject.layers[index].names[-1:],
            )
            self._by(
                children_a,
                children_b,
                Pairing.NAME,
                lambda subject, index: subject.layers[index].layer.name,
            )
            self._by(children_a, children_b, Pairing.POSITION, self._kind)
            pending += [
                (index, self.pairs.of_a[index]) for index in children_a if index in self.pairs.of_a
            ]

    def places(self) -> None:
        """Pair shared layers that the two files list at different places of the layer."""
        by_place = {
            place: index
            for index, layer in enumerate(self._b.layers)
            if index not in self.pairs.of_b
            for place in layer.places
        }
        for index, layer in enumerate(self._a.layers):
            if index not in self.pairs.of_a:
                candidates = {
                    by_place[place] for place in layer.places if place in by_place
                } - self.pairs.of_b.keys()
                if len(candidates) == 1:
                    self._add_pair(index, candidates.pop(), Pairing.PATH)

    def pair_moved(self) -> None:
        """Pair layers of one name, class and shapes that stand under other parents."""
        self._by(
            range(len(self._a.layers)),
            range(len(self._b.layers)),
            Pairing.MOVED,
            self._named_kind,
            only=True,
        )

    def pair_shared(self) -> None:
        """Pair the further places of layers that the other file lists at each of their places."""
        places_a = {
            place: index
            for index, layer in enumerate(self._a.layers)
            for place in layer.places
            if index in self.pairs.of_a
        }
        places_b = {
            place: index
            for index, layer in enumerate(self._b.layers)
            for place in layer.places
            if index in self.pairs.of_b
        }
        self.pairs.further_a = {
            index: places_b[layer.names]
            for index, layer in enumerate(self._a.layers)
            if index not in self.pairs.of_a and layer.names in places_b
        }
        self.pairs.further_b = {
            index: places_a[layer.names]
            for index, layer in enumerate(self._b.layers)
            if index not in self.pairs.of_b and layer.names in places_a
        }

    def _by(
        self,
        indices_a: Iterable[int],
        indices_b: Iterable[int],
        by: Pairing,
        key: Callable[[ComparedModel, int], Hashable],
        *,
        only: bool = False,
    ) -> None:
        """
        Pair, in their order, the remaining layers of each key that both lists contain equally
        often; with ``only``, exactly once.
        """
        groups_a, groups_b = (
            self._group(self._a, indices_a, self.pairs.of_a, key),
            self._group(self._b, indices_b, self.pairs.of_b, key),
        )
        for value, members in groups_a.items():
            counterparts = groups_b.get(value, [])
            if len(members) == len(counterparts) and (len(members) == 1 or not only):
                for index_a, index_b in zip(members, counterparts, strict=True):
                    if by is Pairing.MOVED:
                        self._add_pair(index_a, index_b, by)
                    else:
                        self.pairs.add(index_a, index_b, by)

    @staticmethod
    def _group(
        subject: ComparedModel,
        indices: Iterable[int],
        taken: dict[int, int],
        key: Callable[[ComparedModel, int], Hashable],
    ) -> dict[Hashable, list[int]]:
        groups: dict[Hashable, list[int]] = defaultdict(list)
        for index in indices:
            if index not in taken:
                groups[key(subject, index)].append(index)
        return groups

    def _add_pair(self, a: int, b: int, by: Pairing) -> None:
        """Pair two layers that do not stand below a pair, and what is below them."""
        if a not in self.pairs.of_a and b not in self.pairs.of_b:
            self.pairs.add(a, b, by)
            self.below(a, b)

    def _kind(self, subject: ComparedModel, index: int) -> Hashable:
        compared = subject.layers[index]
        shapes = (
            sorted(str(variable.shape) for variable in compared.layer.variables)
            if self._has_shapes
            else []
        )
        return compared.layer.class_name, tuple(shapes)

    def _named_kind(self, subject: ComparedModel, index: int) -> Hashable:
        return subject.layers[index].layer.name, self._kind(subject, index)


def out_of_order(places: Sequence[int]) -> frozenset[int]:
    """
    Return the positions of a permutation whose elements moved: those that are not in every longest
    increasing subsequence.

    Of two neighbours that changed places both have moved, and read from the other side the same
    elements have.
    """
    ahead, behind = _lengths(places), _lengths([-place for place in reversed(places)])[::-1]
    longest = max(ahead, default=0)
    staying = [
        position
        for position in range(len(places))
        if ahead[position] + behind[position] == longest + 1
    ]
    at_length: dict[int, int] = defaultdict(int)
    for position in staying:
        at_length[ahead[position]] += 1
    kept = {position for position in staying if at_length[ahead[position]] == 1}
    return frozenset(range(len(places))) - kept


def _lengths(places: Sequence[int]) -> list[int]:
    """
    Return for each element the length of the longest increasing subsequence that ends with it.
    """
    from bisect import bisect_left

    ends: list[int] = []
    lengths = []
    for place in places:
        position = bisect_left(ends, place)
        ends[position : position + 1] = [place]
        lengths.append(position + 1)
    return lengths
