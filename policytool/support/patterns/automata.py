"""
Automata of regular expressions: which characters a text may have one after the other.

A pattern is parsed by Python's own parser, and each set of characters, and each position such as
``$``, is later tested by :mod:`re` for one character or position only. So both mean what they
mean in Python, and no pattern can make ``re`` try more than one way.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from functools import lru_cache
from re import _constants as codes  # type: ignore[attr-defined]  # as the parser, it has no stub
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final, NamedTuple, TypeAlias

from policytool.support import limits

ParseTree: TypeAlias = Any
"""What Python's parser returns: sequences of pairs of a code and a value of its own kind."""

_INVALID: Final = (re.error, OverflowError, RecursionError)
"""
What Python raises for text that is not a regular expression; the second is for numbers, the third
for brackets in brackets.
"""

_TYPES: Final = re.ASCII | re.LOCALE | re.UNICODE
_KEPT: Final = re.ASCII | re.IGNORECASE | re.MULTILINE | re.DOTALL
_WIDEST: Final = 2**16
"""Characters of a set that :mod:`re` enumerates if case is ignored: those of the first plane."""

_UNSUPPORTED: Final = {
    codes.GROUPREF: "backreferences",
    codes.GROUPREF_EXISTS: "conditions on groups",
    codes.ATOMIC_GROUP: "atomic groups",
    codes.POSSESSIVE_REPEAT: "possessive repetitions",
}
"""What depends on how a part of the text was matched, and not only on whether it matches."""

_CATEGORIES: Final = {
    codes.CATEGORY_DIGIT: r"\d",
    codes.CATEGORY_NOT_DIGIT: r"\D",
    codes.CATEGORY_SPACE: r"\s",
    codes.CATEGORY_NOT_SPACE: r"\S",
    codes.CATEGORY_WORD: r"\w",
    codes.CATEGORY_NOT_WORD: r"\W",
}
_POSITIONS: Final = {
    codes.AT_BEGINNING: "^",
    codes.AT_BEGINNING_STRING: r"\A",
    codes.AT_BOUNDARY: r"\b",
    codes.AT_NON_BOUNDARY: r"\B",
    codes.AT_END: "$",
    codes.AT_END_STRING: r"\Z",
}
MATCH: Final = 0
"""The state in which a text matches."""


class ExpressionError(ValueError):
    """A pattern that cannot be matched; the text follows the pattern in a sentence."""


class OneCharacter(NamedTuple):
    """A regular expression for one character, or for a position."""

    source: str
    flags: int
    width: int = 1
    """Characters that :mod:`re` enumerates when it compiles the expression."""

    def compile(self) -> re.Pattern[str]:
        """Return it compiled."""
        return re.compile(self.source, self.flags)


Test: TypeAlias = str | OneCharacter
"""A character, or a set of characters."""


class State(NamedTuple):
    """A state: after a character that passes the test, or at once without one, others follow."""

    test: Test | None
    following: tuple[int, ...]
    condition: int = 0
    """
    The bits of the assertions that have to hold at the position; only of a state without test.
    """


class Look(NamedTuple):
    """A lookahead, whose automaton reads backwards, or a lookbehind."""

    start: int
    is_ahead: bool
    is_negative: bool


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed pattern."""

    text: str
    states: tuple[State, ...]
    start: int
    assertions: tuple[OneCharacter | Look, ...]
    """Those of a number need only those of lower numbers."""


@lru_cache(maxsize=128)  # with the largest patterns, about 100 MB
def parse(text: str) -> Expression:
    """
    Return the automaton of a pattern.

    :raises ExpressionError: for text that is not a regular expression, for one with a part that no
        automaton can match, and for one beyond the limit ``pattern-size``.
    """
    _check_size(len(text))
    try:
        with warnings.catch_warnings():
            # of sets that a later Python reads otherwise: no affair of those who read a file
            warnings.simplefilter("ignore")
            tree = parser.parse(text)
        builder = _Builder()
        flags = tree.state.flags
        _check_size(_size(tree))
        start = builder.sequence(tree, flags & _KEPT, MATCH)
    except _INVALID as error:
        reason = "too many nested groups" if isinstance(error, RecursionError) else error
        raise ExpressionError(f"is not a valid regular expression: {reason}") from error
    return Expression(
        text=text,
        states=tuple(builder.states),
        start=start,
        assertions=tuple(builder.assertions),
    )


def _check_size(size: int) -> None:
    if exceeded := limits.PATTERN_SIZE.exceeded_message(size):
        raise ExpressionError(f"has {exceeded}")


def _size(tree: ParseTree) -> int:
    """Return the most states that a part needs."""
    size = 0
    for code, value in tree:
        if code in _UNSUPPORTED:
            raise ExpressionError(
                f"contains {_UNSUPPORTED[code]}, which policytool does not support in regular "
                "expressions"
            )
        if code is codes.BRANCH:
            size += sum(map(_size, value[1]))
        elif code is codes.SUBPATTERN:
            size += _size(value[3])
        elif code in {codes.ASSERT, codes.ASSERT_NOT}:
            size += _size(value[1])
        elif code in {codes.MAX_REPEAT, codes.MIN_REPEAT}:
            least, most, body = value
            times = max(least, 1) if most is codes.MAXREPEAT else most
            size += (_size(body) + 1) * int(times)
        size += 1
    return size


class _Builder:
    """Adds states from the end of a pattern to its beginning, or backwards."""

    def __init__(self) -> None:
        self.states = [State(None, ())]
        self.assertions: list[OneCharacter | Look] = []

    def sequence(self, tree: ParseTree, flags: int, after: int, *, backwards: bool = False) -> int:
        """Return the first state of a part, after which another state follows."""
        for code, value in tree if backwards else reversed(list(tree)):
            after = self._part(code, value, flags, after, backwards=backwards)
        return after

    def _part(
        self, code: ParseTree, value: ParseTree, flags: int, after: int, *, backwards: bool
    ) -> int:
        if code is codes.BRANCH:
            return self._add(
                None,
                *(self.sequence(branch, flags, after, backwards=backwards) for branch in value[1]),
            )
        if code is codes.SUBPATTERN:
            _, added, removed, body = value
            kept = flags & ~_TYPES if added & _TYPES else flags
            inner = (kept | added) & ~removed & _KEPT
            return self.sequence(body, inner, after, backwards=backwards)
        if code in {codes.MAX_REPEAT, codes.MIN_REPEAT}:
            return self._repeat(value, flags, after, backwards=backwards)
        if code is codes.AT:
            return self._assert(OneCharacter(_POSITIONS[value], flags), after)
        if code in {codes.ASSERT, codes.ASSERT_NOT}:
            is_ahead = value[0] > 0
            start = self.sequence(value[1], flags, MATCH, backwards=is_ahead)
            return self._assert(Look(start, is_ahead, code is codes.ASSERT_NOT), after)
        if code is codes.FAILURE:
            return self._add(None)
        return self._add(_test(code, value, flags), after)

    def _repeat(self, value: ParseTree, flags: int, after: int, *, backwards: bool) -> int:
        least, most, body = value
        if most is codes.MAXREPEAT:
            loop = self._add(None)
            first = self.sequence(body, flags, loop, backwards=backwards)
            self.states[loop] = State(None, (first, after))
            after, least = (first, least - 1) if least else (loop, 0)
        else:
            end = after
            for _ in range(most - least):
                once = self.sequence(body, flags, after, backwards=backwards)
                after = self._add(None, once, end)
        for _ in range(least):
            after = self.sequence(body, flags, after, backwards=backwards)
        return after

    def _assert(self, assertion: OneCharacter | Look, after: int) -> int:
        if assertion not in self.assertions:
            self.assertions.append(assertion)
        self.states.append(State(None, (after,), 1 << self.assertions.index(assertion)))
        return len(self.states) - 1

    def _add(self, test: Test | None, *following: int) -> int:
        self.states.append(State(test, following))
        return len(self.states) - 1


def _test(code: ParseTree, value: ParseTree, flags: int) -> Test:
    """Return the test of a character."""
    if code is codes.ANY:
        return OneCharacter(".", flags & re.DOTALL)
    if code is codes.LITERAL and not flags & re.IGNORECASE:
        return chr(value)
    items = [(code, value)] if code is not codes.IN else value
    source, width = "", 1
    for kind, operand in items:
        if kind is codes.NEGATE:
            source += "^"
        elif kind is codes.NOT_LITERAL:
            source += f"^{_character(operand)}"
        elif kind is codes.LITERAL:
            source += _character(operand)
        elif kind is codes.RANGE:
            source += f"{_character(operand[0])}-{_character(operand[1])}"
            width += min(operand[1] - operand[0], _WIDEST)
        else:
            source += _CATEGORIES[operand]
    return OneCharacter(f"[{source}]", flags & (re.IGNORECASE | re.ASCII), width)


def _character(code: int) -> str:
    return f"\\U{code:08x}"
