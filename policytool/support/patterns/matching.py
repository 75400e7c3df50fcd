"""Whether texts match regular expressions, in a bounded number of steps."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from policytool.support import limits
from policytool.support.errors import ModelFileError, UsageError
from policytool.support.patterns import automata
from policytool.support.patterns.automata import MATCH, Look, OneCharacter

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator

    from policytool.support.patterns.automata import Expression

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
        automata.parse(pattern)
    except automata.ExpressionError as error:
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
            expression = automata.parse(pattern)
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
        truths = self._truths(text)
        start = frozenset({self._expression.start})
        current = start
        for position, character in enumerate(text):
            closure = self._closure(current, truths[position] if truths else 0)
            if anywhere:
                if closure.accepts:
                    return True
                current = self._move(closure, character) | start
            else:
                current = self._move(closure, character)
                if not current:
                    return False
        return self._closure(current, truths[-1] if truths else 0).accepts

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

    def _look(self, look: Look, text: str, truths: list[int], bit: int) -> None:
        """Set the bit of a lookahead or lookbehind at each position at which it holds."""
        positions = range(len(truths))
        current = start = frozenset({look.start})
        for position in reversed(positions) if look.is_ahead else positions:
            closure = self._closure(current, truths[position])
            if closure.accepts is not look.is_negative:
                truths[position] |= bit
            beside = position - 1 if look.is_ahead else position
            if 0 <= beside < len(text):
                current = self._move(closure, text[beside]) | start

    def _closure(self, current: frozenset[int], truths: int) -> _Closure:
        """Return the states that read a character, or accept, at a position."""
        key = (current, truths)
        closure = self._closures.get(key)
        if closure is None:
            seen = set(current)
            waiting = list(current)
            states = self._expression.states
            while waiting:
                state = states[waiting.pop()]
                if state.test is None and state.condition & truths == state.condition:
                    new = [
                        state_number for state_number in state.following if state_number not in seen
                    ]
                    seen.update(new)
                    waiting += new
            reading = tuple(
                state_number for state_number in seen if states[state_number].test is not None
            )
            self._matcher.spend(len(seen))
            self._matcher.drop_if_full(len(current) + len(reading))
            closure = self._closures[key] = _Closure(reading, accepts=MATCH in seen)
        return closure

    def _move(self, closure: _Closure, character: str) -> frozenset[int]:
        """Return the states after a character."""
        self._matcher.spend(1)
        next_states = closure.moves.get(character)
        if next_states is None:
            states = self._expression.states
            self._matcher.spend(len(closure.states))
            next_states = frozenset(
                following
                for state in closure.states
                if self._passes(states[state].test, character)
                for following in states[state].following
            )
            self._matcher.drop_if_full(len(next_states))
            closure.moves[character] = next_states
        return next_states

    def _passes(self, test: object, character: str) -> bool:
        if isinstance(test, OneCharacter):
            return self._matcher.passes(test, character)
        return test == character
