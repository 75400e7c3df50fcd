"""
Pasted error messages as messages with their line numbers.

The text is as a user copied it: with colors, prefixes of log lines, frames of tracebacks, and lines
that a terminal broke.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_ESCAPES: Final = re.compile(
    r"\x1b\[[0-9;:?]{0,64}[ -/]{0,8}[@-~]|\x1b\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)?|\x1b[@-Z\\-_]"
)
"""Sequences that set colors, titles and the cursor of a terminal."""

_LONGEST: Final = 2_000
"""
Characters of a line that are searched. Messages of Keras begin with what is wrong, and continue
with configs of any length.
"""

_HEADER: Final = re.compile(
    r"Traceback \(most recent call last\)|During handling of the above exception|"
    r"The above exception was the direct cause"
)
_FRAME: Final = re.compile(
    r"\bFile \"[^\"]{1,400}\", line \d{1,9}|\bFile [^ ]{1,400}:\d{1,9}, in |"
    r"^\s{0,40}[^ ]{1,400}\.py:\d{1,9} \w"
)
_MARK: Final = re.compile(r"^[\s|>E]{0,40}[~^]{1,400}\s*$")
_RAISED: Final = re.compile(
    r"(?:^|[\s|\]])(?:[A-Za-z_]\w{0,80}\.){0,10}"
    r"(?:[A-Z]\w{0,80}(?:Error|Exception|Warning|Interrupt)|AssertionError|KeyError)(?:: |:?$)"
)
"""The type of an exception, at the beginning of its message."""

_SPACES: Final = re.compile(r"\s+")
_SEPARATORS: Final = (" ", "")
"""What joins lines: people break messages at spaces, and terminals anywhere."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """Lines that belong together: the message of an exception, or a paragraph."""

    lines: tuple[tuple[int, str], ...]
    """The lines with their numbers from 1, without colors, each run of white space one space."""

    is_exception: bool
    """Whether it begins with the type of an exception."""

    is_last: bool
    """Whether no exception follows."""

    def joined(self) -> tuple[str, ...]:
        """
        Return the lines as one line: with a space between them, and if there are several, also
        without, as a terminal broke them.
        """
        texts = tuple(separator.join(self._pieces(separator)) for separator in _SEPARATORS)
        return texts[: len(self.lines)]

    def line_at(self, offset: int, text: int) -> int:
        """
        Return the number of the line that has a character of a joined line.

        :param text: which of the joined lines
        """
        separator = _SEPARATORS[text]
        end = 0
        for (number, _), piece in zip(self.lines, self._pieces(separator), strict=True):
            end += len(piece) + len(separator)
            if offset < end:
                return number
        return self.lines[-1][0]

    def _pieces(self, separator: str) -> list[str]:
        return [line.strip() if separator else line for _, line in self.lines]


def plain_lines(text: str) -> list[str]:
    """Return the lines of a text without colors; escaped line breaks of a log count as such."""
    plain = _ESCAPES.sub("", text)
    if "\n" not in plain.strip() and "\\n" in plain and "Traceback (most" in plain:
        plain = plain.replace("\\n", "\n").replace('\\"', '"')
    return plain.splitlines()


def messages(lines: list[str]) -> list[Message]:
    """
    Return the messages in lines, in their order; frames and the source lines below them are left
    out.
    """
    groups = [*_grouped(lines)]
    last = max((number for number, (raised, _) in enumerate(groups) if raised), default=-1)
    return [
        Message(lines=tuple(group), is_exception=raised, is_last=number >= last)
        for number, (raised, group) in enumerate(groups)
    ]


def _grouped(lines: list[str]) -> Iterator[tuple[bool, list[tuple[int, str]]]]:
    """Yield groups of lines, each with whether it begins with an exception."""
    raised, group, in_frame = False, list[tuple[int, str]](), False
    for number, whole in enumerate(lines, 1):
        line = whole[:_LONGEST]
        starts = _RAISED.search(line[:400]) is not None
        is_frame = not starts and (_FRAME.search(line) is not None)
        ends = starts or is_frame or _HEADER.search(line) is not None
        if (ends or (not raised and not line.strip())) and group:
            yield raised, group
            raised, group = False, []
        if ends:
            in_frame, raised = is_frame, starts
        if is_frame or (ends and not starts):
            continue
        if in_frame:  # the source line below a frame
            in_frame = _MARK.match(line) is not None
            continue
        plain = _SPACES.sub(" ", line)
        if plain.strip() and not _MARK.match(line):
            group.append((number, plain))
    if group:
        yield raised, group
