r"""
Few regular expressions that select some names and no others, as a person would write them: common
beginnings and ends, and numbers (``block_\d+/dense``, ``encoder/.*``, ``blk_([4-9]|1[01])``).
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from policytool.support.patterns.matching import Matcher, StepsExceededError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Names = tuple[str, ...]
    """The names of one thing, of which any may match; the first one is its own."""

_PIECE: Final = re.compile(r"\d+|[^\W\d_]+|.", re.DOTALL)
_SPECIAL: Final = re.compile(r"([\\.^$*+?{}\[\]|()])")
_WILDCARD: Final = re.compile(r"\.\*|\\d\+|\(|^(?=[^(]*\[)")
"""What a reader has to think about: of two patterns for the same, the one with fewer is taken."""

_ANY: Final = ".*"
_NUMBER: Final = r"\d+"

_MOST_PIECES: Final = 64
"""A name with more parts is only selected as it is: a person would not read its pattern."""

_MOST_ALTERNATIVES: Final = 8
"""How many alternatives a number has at most, so that the pattern can be read."""


def selecting_patterns(chosen: Sequence[Names], others: Sequence[Names]) -> tuple[str, ...]:
    """
    Return few patterns that select the chosen things and none of the others: names as they are, or
    regular expressions, no two of which match the same thing.

    The largest group is chosen first (greedy set cover), after its pattern was matched with all
    names. There are never more patterns than things.
    """
    unselected = dict(enumerate(chosen))
    placed_patterns: list[tuple[int, str]] = []
    others_left = list(others)
    names = {name for thing_names in (*chosen, *others) for name in thing_names}
    matcher = Matcher()
    try:
        while patterns := list(_disjoint_patterns(unselected, others_left, names, matcher)):
            for pattern, group in patterns:
                placed_patterns.append((min(group), pattern))
                others_left += [unselected.pop(index) for index in group]
    except StepsExceededError:
        return tuple(thing_names[0] for thing_names in chosen)
    return tuple(
        pattern
        for _, pattern in sorted(
            [*placed_patterns, *((i, thing_names[0]) for i, thing_names in unselected.items())]
        )
    )


def _disjoint_patterns(
    unselected: Mapping[int, Names], other_names: Sequence[Names], names: set[str], matcher: Matcher
) -> Iterator[tuple[str, frozenset[int]]]:
    """
    Yield patterns that select at least two names each, and no name twice, the largest groups first.
    """
    groups = _groups(unselected, other_names)
    selected: set[int] = set()
    for pattern in sorted(
        groups,
        key=lambda expression: (
            -len(groups[expression]),
            len(_WILDCARD.findall(expression)),
            len(expression),
            expression,
        ),
    ):
        group = groups[pattern]
        if selected & group or pattern in names:
            continue
        if any(
            matcher.fullmatch(pattern, name) for thing_names in other_names for name in thing_names
        ):
            continue
        if group == {
            index
            for index, thing_names in unselected.items()
            if any(matcher.fullmatch(pattern, name) for name in thing_names)
        }:
            selected |= group
            yield pattern, frozenset(group)


def _groups(unselected: Mapping[int, Names], other_names: Sequence[Names]) -> dict[str, set[int]]:
    """Return the patterns that select several of the names, with the indices of these names."""
    groups: defaultdict[str, set[int]] = defaultdict(set)
    numbered: defaultdict[tuple[str, str], _Numbers] = defaultdict(_Numbers)
    for index, name in (
        (index, name) for index, thing_names in unselected.items() for name in thing_names
    ):
        for pattern in _patterns(name):
            groups[pattern].add(index)
        for place, number in _places(name):
            numbered[place].inside[number].add(index)
    groups = defaultdict(
        set, {pattern: group for pattern, group in groups.items() if len(group) > 1}
    )
    for name in (name for thing_names in other_names for name in thing_names):
        for pattern in _patterns(name):
            groups.pop(pattern, None)
        for place, number in _places(name):
            if place in numbered:
                numbered[place].outside.add(number)
    for (before, after), numbers in numbered.items():
        for alternatives, group in numbers.alternatives():
            choice = "|".join(alternatives)
            groups[f"{before}({choice}){after}" if "|" in choice else before + choice + after] |= (
                group
            )
    return groups


def _patterns(name: str) -> Iterator[str]:
    """
    Yield the patterns of a name: its beginning, its end, both, and the same with any numbers. They
    are also patterns of the other names that they match, unless the beginning or end is a part of a
    word.
    """
    pieces = _pieces(name)
    if not pieces:
        return
    numbers = [place for place, piece in enumerate(pieces) if piece.isdecimal()]
    yield _ANY
    yield from _optional_number(pieces, numbers)
    for wild in {(), tuple(numbers), *((place,) for place in numbers)}:
        parts = [_NUMBER if place in wild else escape(piece) for place, piece in enumerate(pieces)]
        if wild:
            yield "".join(parts)
        for cut in range(1, len(pieces)):
            if cut - 1 not in numbers:
                yield "".join(parts[:cut]) + _ANY
            if _is_separator(pieces[cut]):
                yield _ANY + "".join(parts[cut:])
    yield from _between(pieces)


def _optional_number(pieces: Sequence[str], numbers: Sequence[int]) -> Iterator[str]:
    """
    Yield the pattern of names that Keras numbers, such as ``dense``, ``dense_1`` and ``dense_2``.
    """
    is_numbered = len(pieces) - 1 in numbers and pieces[-2:-1] == ["_"]
    base = pieces[:-2] if is_numbered else pieces
    yield "".join(map(escape, base)) + rf"(_{_NUMBER})?"


def _between(pieces: Sequence[str]) -> Iterator[str]:
    """Yield the part between slashes of a name without numbers at its beginning and end."""
    slashes = [place for place, piece in enumerate(pieces) if piece == "/"]
    for first in slashes:
        before = pieces[: first + 1]
        if any(piece.isdecimal() for piece in before):
            return
        for last in slashes:
            after = pieces[last:]
            if last > first and not any(piece.isdecimal() for piece in after):
                yield "".join(map(escape, before)) + _ANY + "".join(map(escape, after))


def _places(name: str) -> Iterator[tuple[tuple[str, str], str]]:
    """
    Yield the text around each number of a name, with the number: the other numbers unchanged or
    any, and after the number the rest of the name or the beginning of the rest.
    """
    pieces = _pieces(name)
    for place, number in enumerate(pieces):
        if not (number.isdecimal() and number.isascii()):
            continue
        for any_number in (False, True):
            parts = [
                _NUMBER if any_number and piece.isdecimal() else escape(piece) for piece in pieces
            ]
            before = "".join(parts[:place])
            yield (before, "".join(parts[place + 1 :])), number
            for cut in range(place + 1, len(pieces) - 1):
                if _is_separator(pieces[cut]):
                    yield (before, "".join(parts[place + 1 : cut + 1]) + _ANY), number


@dataclass(slots=True)
class _Numbers:
    """The numbers at one place of names."""

    inside: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    """The things that are selected, by their number."""

    outside: set[str] = field(default_factory=set)
    """The numbers of other things."""

    def alternatives(self) -> Iterator[tuple[list[str], set[int]]]:
        """Yield ranges of numbers that are easy to read, each with the things that it selects."""
        texts: list[str] = []
        group: set[int] = set()
        for run in self._runs():
            ranges = list(_range(run[0], run[-1]))
            if texts and len(texts) + len(ranges) > _MOST_ALTERNATIVES:
                yield texts, group
                texts, group = [], set()
            texts = [*texts, *ranges]
            group = group.union(*(self.inside[number] for number in run))
        if len(group) > 1:
            yield texts, group

    def _runs(self) -> Iterator[list[str]]:
        """Yield runs of chosen numbers of one length without other numbers between them."""
        chosen_numbers = self.inside.keys() - self.outside
        if not self.outside or len(chosen_numbers) < 2:  # noqa: PLR2004  # any number is a pattern already
            return
        run: list[str] = []
        all_numbers = sorted(
            chosen_numbers | self.outside, key=lambda number: (len(number), number)
        )
        for number, next_number in pairwise((*all_numbers, "")):
            if number in chosen_numbers:
                run.append(number)
            if run and (next_number not in chosen_numbers or len(next_number) != len(number)):
                yield run
                run = []


def _range(first: str, last: str) -> Iterator[str]:
    """Yield expressions for all numbers between two of the same length."""
    if first == last:
        yield first
    elif first[0] == last[0]:
        yield from (first[0] + end for end in _range(first[1:], last[1:]))
    else:
        zeros, nines = "0" * (len(first) - 1), "9" * (len(first) - 1)
        lowest, highest = int(first[0]), int(last[0])
        below, above = first[1:] != zeros, last[1:] != nines
        if below:
            yield from (first[0] + end for end in _range(first[1:], nines))
        if lowest + below <= highest - above:
            yield _digits(lowest + below, highest - above) + r"\d" * len(zeros)
        if above:
            yield from (last[0] + end for end in _range(zeros, last[1:]))


def _digits(lowest: int, highest: int) -> str:
    if lowest == highest:
        return str(lowest)
    if (lowest, highest) == (0, 9):
        return r"\d"
    return f"[{lowest}{highest}]" if highest == lowest + 1 else f"[{lowest}-{highest}]"


def _pieces(name: str) -> list[str]:
    """Return the numbers, words and other characters of a name; nothing if there are too many."""
    pieces = _PIECE.findall(name)
    return pieces if len(pieces) <= _MOST_PIECES else []


def _is_separator(piece: str) -> bool:
    return not piece.isalnum()


def escape(text: str) -> str:
    """Return text as a pattern. Unlike ``re.escape``, this keeps hyphens and spaces."""
    return _SPECIAL.sub(r"\\\1", text)
