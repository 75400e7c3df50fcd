"""Commands as they are typed into a POSIX shell."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from policytool.reports.layout import width_of

if TYPE_CHECKING:
    from collections.abc import Sequence

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
