"""
Whether texts match regular expressions, in a bounded number of steps.

An automaton knows which characters a text may have one after the other. A pattern is parsed by
Python's own parser, and each set of characters, and each position such as ``$``, is later tested by
:mod:`re` for one character or position only. So both mean what they mean in Python, and no pattern
can make ``re`` try more than one way.
"""

from __future__ import annotations

import re
import warnings
from contextlib import contextmanager
from functools import lru_cache
from re import _constants as codes  # type: ignore[attr-defined]  # as the parser, it has no stub
from re import _parser as parser  # type: ignore[attr-defined]
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from msgspec import Struct

from policytool.support import limits
from policytool.support.errors import ModelFileError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


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


class Expression(Struct, frozen=True):
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
            minimum, maximum, body = value
            repetitions = max(minimum, 1) if maximum is codes.MAXREPEAT else maximum
            size += (_size(body) + 1) * int(repetitions)
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
        """Return the first state of one parsed part of a pattern."""
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
        """
        Return the first state of a repetition: the required copies of its body, followed by a loop
        or by optional copies.
        """
        minimum, maximum, body = value
        if maximum is codes.MAXREPEAT:
            loop = self._add(None)
            first = self.sequence(body, flags, loop, backwards=backwards)
            self.states[loop] = State(None, (first, after))
            after, minimum = (first, minimum - 1) if minimum else (loop, 0)
        else:
            end = after
            for _ in range(maximum - minimum):
                single_start = self.sequence(body, flags, after, backwards=backwards)
                after = self._add(None, single_start, end)
        for _ in range(minimum):
            after = self.sequence(body, flags, after, backwards=backwards)
        return after

    def _assert(self, assertion: OneCharacter | Look, after: int) -> int:
        """Add a state that is passed only where an assertion holds."""
        if assertion not in self.assertions:
            self.assertions.append(assertion)
        self.states.append(State(None, (after,), 1 << self.assertions.index(assertion)))
        return len(self.states) - 1

    def _add(self, test: Test | None, *following: int) -> int:
        """Add a state, and return its number."""
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


_STEPS_OF_PATTERN: Final = 500
_STEPS_OF_STATE: Final = 50
_STEPS_OF_SET: Final = 300
"""
What parsing a pattern, adding a state and compiling a set of characters take, compared with a
character that is matched (about 0.1 microseconds); measured with Python 3.11.
"""

_MOST_KEPT: Final = 200_000
"""Numbers of states that are kept to match the next text faster; about 20 MB."""


class StepsExceededError(Exception):
    """
    The patterns need more steps than the limit ``pattern-steps``; the text follows the path of the
    model or file in a sentence.
    """


def check_pattern(pattern: str, before: str) -> None:
    """
    Make sure that a pattern of a user can be matched.

    :param before: the beginning of the sentence, such as "--layer 'x' is not a layer path and"
    :raises UsageError: for a pattern that is not a supported regular expression.
    """
    try:
        parse(pattern)
    except ExpressionError as error:
        raise UsageError(f"{before} {error}") from error


class Matcher:
    """
    Matches the patterns of one file or one option against the names of one file.

    The steps depend only on the patterns and names, not on the time or on earlier files.
    """

    def __init__(self) -> None:
        self._most = limits.PATTERN_STEPS.value
        self.steps = 0
        """The steps so far."""

        self._kept = 0
        self._automata: dict[str, _Automaton] = {}
        self._compiled: dict[OneCharacter, re.Pattern[str]] = {}

    def fullmatch(self, pattern: str, text: str) -> bool:
        """
        Return whether the whole text matches a pattern, as ``re.fullmatch`` does.

        :raises ExpressionError: for a pattern that is not a supported regular expression.
        :raises StepsExceededError: if the limit is reached.
        """
        return self._automaton(pattern).matches(text, anywhere=False)

    def search(self, pattern: str, text: str) -> bool:
        """
        Return whether a part of the text matches a pattern, as ``re.search`` does.

        :raises ExpressionError: as for :meth:`fullmatch`.
        :raises StepsExceededError: as for :meth:`fullmatch`.
        """
        return self._automaton(pattern).matches(text, anywhere=True)

    def spend(self, steps: int) -> None:
        """Count steps."""
        self.steps += steps
        if self.steps > self._most:
            exceeded = limits.PATTERN_STEPS.exceeded_message(self._most + 1, counting=True)
            raise StepsExceededError(f"needs too many steps to match patterns: {exceeded}")

    def passes(self, test: OneCharacter, text: str, position: int = 0) -> bool:
        """Return whether a character or a position passes a test."""
        compiled = self._compiled.get(test)
        if compiled is None:
            self.spend(_STEPS_OF_SET + test.width)
            compiled = self._compiled[test] = test.compile()
        return compiled.match(text, position) is not None

    def drop_if_full(self, kept: int) -> bool:
        """
        Add ``kept`` to the count of kept numbers. If there are too many, drop all and return True.
        """
        self._kept += kept
        if self._kept <= _MOST_KEPT:
            return False
        self._kept = 0
        for automaton in self._automata.values():
            automaton.forget()
        return True

    def _automaton(self, pattern: str) -> _Automaton:
        automaton = self._automata.get(pattern)
        if automaton is None:
            self.spend(_STEPS_OF_PATTERN + _STEPS_OF_STATE * len(pattern))
            expression = parse(pattern)
            self.spend(_STEPS_OF_STATE * len(expression.states))
            automaton = self._automata[pattern] = _Automaton(expression, self)
        return automaton


@contextmanager
def matching_in(path: str) -> Iterator[Matcher]:
    """
    Give a matcher for the names in one model, which reports show as ``path``.

    :raises ModelFileError: for the model, if the limit is reached.
    """
    try:
        yield Matcher()
    except StepsExceededError as error:
        raise ModelFileError(path, "pattern-limit", str(error)) from error


class _Closure:
    """The states before a character."""

    __slots__ = ("accepts", "moves", "states")

    def __init__(self, states: tuple[int, ...], *, accepts: bool) -> None:
        self.states = states
        self.accepts = accepts
        self.moves: dict[str, frozenset[int]] = {}


class _Automaton:
    """An expression, with the sets of states that texts led to."""

    def __init__(self, expression: Expression, matcher: Matcher) -> None:
        self._expression = expression
        self._matcher = matcher
        self._closures: dict[tuple[frozenset[int], int], _Closure] = {}

    def forget(self) -> None:
        """Drop the sets of states."""
        self._closures.clear()

    def matches(self, text: str, *, anywhere: bool) -> bool:
        """Return whether the text, or a part of it, matches."""
        true_assertions = self._truths(text)
        start = frozenset({self._expression.start})
        current = start
        for position, character in enumerate(text):
            closure = self._closure(current, true_assertions[position] if true_assertions else 0)
            if anywhere:
                if closure.accepts:
                    return True
                current = self._move(closure, character) | start
            else:
                current = self._move(closure, character)
                if not current:
                    return False
        return self._closure(current, true_assertions[-1] if true_assertions else 0).accepts

    def _truths(self, text: str) -> list[int]:
        """
        Return which assertions hold at each position, as bits; empty if the pattern has none.
        """
        assertions = self._expression.assertions
        truths = [0] * (len(text) + 1) if assertions else []
        for number, assertion in enumerate(assertions):
            bit = 1 << number
            self._matcher.spend(len(truths))
            if isinstance(assertion, Look):
                self._look(assertion, text, truths, bit)
            else:
                for position in range(len(truths)):
                    if self._matcher.passes(assertion, text, position):
                        truths[position] |= bit
        return truths

    def _look(self, look: Look, text: str, true_assertions: list[int], bit: int) -> None:
        """Set the bit of a lookahead or lookbehind at each position at which it holds."""
        positions = range(len(true_assertions))
        current = start = frozenset({look.start})
        for position in reversed(positions) if look.is_ahead else positions:
            closure = self._closure(current, true_assertions[position])
            if closure.accepts is not look.is_negative:
                true_assertions[position] |= bit
            next_position = position - 1 if look.is_ahead else position
            if 0 <= next_position < len(text):
                current = self._move(closure, text[next_position]) | start

    def _closure(self, current: frozenset[int], true_assertions: int) -> _Closure:
        """Return the states that read a character, or accept, at a position."""
        key = (current, true_assertions)
        closure = self._closures.get(key)
        if closure is None:
            visited = set(current)
            pending = list(current)
            states = self._expression.states
            while pending:
                state = states[pending.pop()]
                if state.test is None and state.condition & true_assertions == state.condition:
                    new = [
                        state_number
                        for state_number in state.following
                        if state_number not in visited
                    ]
                    visited.update(new)
                    pending += new
            reading = tuple(
                state_number for state_number in visited if states[state_number].test is not None
            )
            self._matcher.spend(len(visited))
            self._matcher.drop_if_full(len(current) + len(reading))
            closure = self._closures[key] = _Closure(reading, accepts=MATCH in visited)
        return closure

    def _move(self, closure: _Closure, character: str) -> frozenset[int]:
        """Return the states after a character."""
        self._matcher.spend(1)
        next_states = closure.moves.get(character)
        if next_states is None:
            states = self._expression.states
            self._matcher.spend(len(closure.states))
            next_states = frozenset(
                next_state
                for state in closure.states
                if self._passes(states[state].test, character)
                for next_state in states[state].following
            )
            self._matcher.drop_if_full(len(next_states))
            closure.moves[character] = next_states
        return next_states

    def _passes(self, test: object, character: str) -> bool:
        if isinstance(test, OneCharacter):
            return self._matcher.passes(test, character)
        return test == character
