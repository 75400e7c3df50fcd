"""
The entries that a pasted error message or traceback matches.

The confidence of an entry is the product of two numbers:

- the specificity of the pattern that matches: 0.95 if only one cause prints the message, 0.75 if it
  is the usual cause, 0.4 if several causes print it
- the place of the match: 1 in the last exception of a traceback, 0.8 in an earlier one, such as the
  first of a chain (``During handling of the above exception, ...``), and 0.5 outside of an
  exception if the text contains one. In a text without an exception, every place counts 1.

Of several matches of one entry, the best counts. Equal confidences are ordered by the line of the
match, the last first, and then by the order of the entries. An entry is left out if its confidence
is at most half of the best, or if a better entry matches the same line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policytool.support.errors import UsageError
from policytool.support.limits import MESSAGE_BYTES
from policytool.troubleshooting.entries import entries
from policytool.troubleshooting.message_text import messages, plain_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from policytool.troubleshooting.entries import Entry, Pattern
    from policytool.troubleshooting.message_text import Message

EARLIER: Final = 0.8
"""The weight of a match in an exception that is not the last."""

OUTSIDE: Final = 0.5
"""The weight of a match outside of an exception, in a text that contains one."""

MOST: Final = 3
"""Entries that are returned."""

_SHARE: Final = 0.5
"""Matches with at most this share of the best confidence are left out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """An entry that a text matches."""

    entry: Entry
    confidence: float
    """From 0 to 1."""

    line: int
    """The number of the line in which the match begins, from 1."""

    text: str
    """That line, without colors."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """The entries that explain an error message, the best first."""

    matches: tuple[Match, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Place:
    """A message, and how much a match in it counts."""

    message: Message
    texts: tuple[str, ...]
    weight: float


def explain_text(text: str) -> Explanation:
    """
    Return the entries that a text matches, the best first, and at most :data:`MOST`.

    :raises UsageError: if the text is empty or too long
    """
    if limit_message := MESSAGE_BYTES.exceeded_message(len(text)):
        raise UsageError(f"the error message has {limit_message}")
    lines = plain_lines(text)
    if not any(line.strip() for line in lines):
        raise UsageError("the error message is empty; paste a message or a whole traceback")
    all_messages = messages(lines)
    whole = "\n".join(lines)
    places = [
        _Place(message=message, texts=message.joined(), weight=weight)
        for message, weight in zip(all_messages, _weights(all_messages), strict=True)
    ]
    best = [
        match
        for entry in entries()
        if (match := _best_match(entry, places, whole, lines)) is not None
    ]
    best.sort(key=lambda match: (-match.confidence, -match.line))
    return Explanation(matches=tuple(_worth_showing(best))[:MOST])


def _worth_showing(best: Sequence[Match]) -> Iterator[Match]:
    """Yield the matches, the best first, that others do not make superfluous."""
    highest: dict[int, float] = {}
    for match in best:
        if match.confidence > best[
            0
        ].confidence * _SHARE and match.confidence >= highest.setdefault(
            match.line, match.confidence
        ):
            yield match


def _weights(messages: Sequence[Message]) -> list[float]:
    """Return how much a match in each message counts."""
    if not any(message.is_exception for message in messages):
        return [1.0] * len(messages)
    return [
        (1.0 if message.is_last else EARLIER) if message.is_exception else OUTSIDE
        for message in messages
    ]


def _best_match(
    entry: Entry, places: Sequence[_Place], whole: str, lines: Sequence[str]
) -> Match | None:
    """Return the best match of an entry; of equal ones the last."""
    best: tuple[float, int] | None = None
    for pattern in entry.patterns:
        hits = [
            (round(pattern.specificity.value * place.weight, 2), line)
            for place in places
            if (line := _first_line(pattern, place)) is not None
        ]
        if hits and re.search(pattern.needs, whole):
            best = max(hits if best is None else [best, *hits])
    if best is None:
        return None
    confidence, line = best
    return Match(entry=entry, confidence=confidence, line=line, text=lines[line - 1].strip())


def _first_line(pattern: Pattern, place: _Place) -> int | None:
    """Return the line of the first match in a message; None if there is none."""
    for number, text in enumerate(place.texts):
        if match := pattern.regex.search(text):
            return place.message.line_at(match.start(), number)
    return None
