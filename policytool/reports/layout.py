"""
Text that fits the width it is given, and commands as they are typed into a POSIX shell. Text from
files is shown with its control characters escaped, so no name can move the cursor.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

STYLES: Final = {
    "title": "1",
    "dim": "2",
    "mixed": "36",
    "half": "33",
    "caution": "33",
    "bad": "31",
    "good": "32",
    "": "",
}
"""Style name to the parameters of an ANSI "select graphic rendition" sequence."""

_ASCII: Final = str.maketrans({"→": "->", "·": "-", "…": "..."})
"""What stands for the characters of pages where the output has only ASCII."""


_NARROW: Final = dict.fromkeys(map(ord, "→·…─├└│"), "x")
"""Characters of one column that reports themselves write; rich knows the widths of all others."""


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """How a report is shown."""

    width: int = 80
    colour: bool = False
    unicode: bool = True
    variables: bool = False
    suppressed: bool = True
    """
    Whether suppressed findings are shown too (``-v``). The JSON report always contains them, and
    annotations never do.
    """

    is_searchable: bool = False
    """Whether readers can search and see charts; every layer has a row then."""

    @property
    def ellipsis(self) -> str:
        """What stands for text that was left out."""
        return "…" if self.unicode else "..."

    @property
    def rule(self) -> str:
        """The character of a horizontal line."""
        return "─" if self.unicode else "-"

    def printable(self, text: str) -> str:
        """
        Return text that is safe to print, with the characters of pages replaced where the output
        has only ASCII.
        """
        cleaned = clean(text)
        return cleaned if self.unicode or cleaned.isascii() else cleaned.translate(_ASCII)

    def paint(self, text: str, style: str) -> str:
        """Return the text in a style, where colour is wanted."""
        code = STYLES[style]
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and code and text else text


_LEAST: Final = 20
"""Columns of text that a line has, however narrow the terminal."""

_COMMAND: Final = re.compile(r"(?<!\S):(?=:)|#(?=#\[)")
"""
The first character of what may be a command to GitHub's runner, which reads each line that a step
prints: ``::error::`` at its beginning, where any word may come to stand, and ``##[error]`` anywhere
(``ActionCommand.TryParseV2`` and ``TryParse`` in actions/runner).
"""


def escape_unprintable(text: str) -> str:
    """
    Return text from a file with what is not printable escaped: controls, direction overrides, lone
    surrogates.
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def clean(text: str) -> str:
    """Return text from a file with what is not printable escaped, and what a CI runner obeys."""
    text = escape_unprintable(text)
    return (
        _COMMAND.sub(lambda match: f"\\x{ord(match[0]):02x}", text)
        if "::" in text or "##[" in text
        else text
    )


def width_of(text: str) -> int:
    """Return how many columns of a terminal the text takes."""
    if text.isascii() or text.translate(_NARROW).isascii():
        return len(text)
    from rich.cells import cell_len  # only for names beyond ASCII

    return cell_len(text)


def shorten(text: str, width: int, view: View, *, middle: bool = False) -> str:
    """Return the text in at most ``width`` columns."""
    if width_of(text) <= width:
        return text
    room = max(0, width - width_of(view.ellipsis))
    if not room:
        return view.ellipsis[:width]
    head, tail = (room // 2, room - room // 2) if middle else (room, 0)
    while width_of(text[:head]) > (room // 2 if middle else room):
        head -= 1
    while tail and width_of(text[-tail:]) > room - room // 2:
        tail -= 1
    return f"{text[:head]}{view.ellipsis}{text[len(text) - tail :] if tail else ''}"


def wrap(label: str, text: str, view: View, style: str = "", indent: int = 2) -> list[str]:
    """
    Return ``label`` and ``text`` broken at spaces, and within words that are longer than a line;
    further lines begin below the text.
    """
    start = " " * indent + label
    below = width_of(start)
    room = max(_LEAST, view.width - below)
    lines: list[str] = []
    current = ""
    for word in text.split(" "):
        for piece in pieces(word, room):
            if current and width_of(current) + 1 + width_of(piece) > room:
                lines.append(current)
                current = piece
            else:
                current = f"{current} {piece}" if current else piece
    lines.append(current)
    return [
        (start if number == 0 else " " * below) + view.paint(line, style)
        for number, line in enumerate(lines)
    ]


def pieces(word: str, room: int) -> list[str]:
    """Return the parts of a word, each of which fills a line, except for the last."""
    if width_of(word) <= room:
        return [word]
    parts = [""]
    for character in word:
        if width_of(parts[-1] + character) > room:
            parts.append("")
        parts[-1] += character
    return parts


_PLAIN: Final = re.compile(r"[A-Za-z0-9@%+=:,./_-]+")
_BEYOND: Final = 0x10000


def quote(word: str) -> str:
    """
    Return a word so that a shell reads it as one; what is not printable is written by number
    (``$'...'``), so that no name moves the cursor.
    """
    if _PLAIN.fullmatch(word):
        return word
    if word.isprintable():
        return "'" + word.replace("'", "'\"'\"'") + "'"
    return "$'" + "".join(_escape_character(character) for character in word) + "'"


def command(words: Sequence[str]) -> str:
    """Return a command in one line."""
    return " ".join(quote(word) for word in words)


def lines(words: Sequence[str], width: int) -> list[str]:
    """
    Return a command in lines of at most ``width`` columns if possible. An option stays with its
    value, and every line but the last ends in a backslash.
    """
    complete_lines: list[str] = []
    current = ""
    for piece in _pieces(words):
        if current and width_of(current) + 1 + width_of(piece) > width - len(" \\"):
            complete_lines.append(f"{current} \\")
            current = f"  {piece}"
        else:
            current = f"{current} {piece}" if current else piece
    return [*complete_lines, current]


def _pieces(words: Sequence[str]) -> list[str]:
    """Return the command's beginning and its options, each with its value."""
    pieces: list[list[str]] = [[]]
    for word in words:
        if word.startswith("--"):
            pieces.append([])
        pieces[-1].append(word)
    return [command(piece) for piece in pieces]


def file(path: str) -> str:
    """Return a path that no command takes for an option."""
    return f"./{path}" if path.startswith("-") else path


def _escape_character(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    if character.isprintable():
        return character
    if "\udc80" <= character <= "\udcff":  # a byte of a file's name that is no UTF-8
        return f"\\x{ord(character) - 0xDC00:02x}"
    number = ord(character)
    return f"\\u{number:04x}" if number < _BEYOND else f"\\U{number:08x}"
