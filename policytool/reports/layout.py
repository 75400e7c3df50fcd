"""
Layout of text in a given width, and of commands for a POSIX shell. Control characters in text from
files are escaped, so that no name can move the cursor.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool.support import project

if TYPE_CHECKING:
    from collections.abc import Sequence

STYLES: Final = {
    "title": "1",
    "dim": "2",
    "mixed": "36",
    "half": "35",
    "caution": "33",
    "bad": "31",
    "good": "32",
    "": "",
}
"""The parameters of an ANSI "select graphic rendition" sequence, by the name of the style."""

SPAN: Final = re.compile(r"`([^`]+)`")
"""Code in a sentence, between backticks."""

_ASCII: Final = str.maketrans({"→": "->", "·": "-", "…": "..."})
"""The replacements of characters in pages if the output supports only ASCII."""


_NARROW: Final = dict.fromkeys(map(ord, "→·…─├└│"), "x")
"""Characters in reports with a width of one column; rich returns the width of all others."""


class View(Struct, frozen=True, kw_only=True):
    """The options for the display of a report."""

    width: int = 80
    colour: bool = False
    unicode: bool = True
    variables: bool = False
    suppressed: bool = True
    """
    Whether suppressed findings are also displayed (``-v``). The JSON report always contains them;
    annotations never do.
    """

    is_searchable: bool = False
    """Whether readers can search and see charts; then each layer has a row."""

    @property
    def ellipsis(self) -> str:
        """The replacement of text that was left out."""
        return "…" if self.unicode else "..."

    @property
    def rule(self) -> str:
        """The character of a horizontal line."""
        return "─" if self.unicode else "-"

    def printable(self, text: str) -> str:
        """
        Return text that is safe to print. Non-ASCII characters of pages are replaced if the output
        supports only ASCII.
        """
        escaped = clean(text)
        return escaped if self.unicode or escaped.isascii() else escaped.translate(_ASCII)

    def paint(self, text: str, style: str) -> str:
        """Return the text in a style; unchanged if colour is off."""
        code = STYLES[style]
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and code and text else text


_LEAST: Final = 20
"""The minimum number of columns of text in a line, even in a narrower terminal."""

_COMMAND: Final = re.compile(r"(?<!\S):(?=:)|#(?=#\[)")
"""
The first character of a possible command to GitHub's runner, which parses each line that a step
prints: ``::error::`` at the start of a line, to which wrapping may move any word, and ``##[error]``
anywhere (``ActionCommand.TryParseV2`` and ``TryParse`` in actions/runner).
"""


def escape_unprintable(text: str) -> str:
    """
    Return text from a file with unprintable characters escaped: control characters, direction
    overrides, and lone surrogates.
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def clean(text: str) -> str:
    """Return text from a file with unprintable characters and commands to CI runners escaped."""
    text = escape_unprintable(text)
    return (
        _COMMAND.sub(lambda match: f"\\x{ord(match[0]):02x}", text)
        if "::" in text or "##[" in text
        else text
    )


def width_of(text: str) -> int:
    """Return the width of a text in columns of a terminal."""
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


def shorten_path(path: str, width: int, view: View) -> str:
    """
    Return a path in at most ``width`` columns if its last name fits: names in its middle are left
    out, the last of them first.
    """
    start, *names = path.split("/")
    tail = names[-1:]
    middle = names[:-1]
    while width_of(path) > width and middle:
        middle.pop()
        path = "/".join((start, *middle, view.ellipsis, *tail))
    return path


def wrap(label: str, text: str, view: View, style: str = "", indent: int = 2) -> list[str]:
    """
    Return ``label`` and ``text`` as lines, broken at spaces outside of shapes, and within words
    that are longer than a line. All lines after the first start below the text.
    """
    start = " " * indent + label
    below = width_of(start)
    room = max(_LEAST, view.width - below)
    lines: list[str] = []
    current = ""
    for word in _SPACE.split(text):
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
    """
    Return the parts of a word that is longer than a line: a path is broken after slashes, and other
    words, and names that are longer than a line, where the line ends. The URL of a page stays
    whole, so that it can be copied.
    """
    if width_of(word) <= room or word.startswith(project.URL):
        return [word]
    parts = [""]
    for name in _NAME.findall(word):
        if parts[-1] and width_of(parts[-1] + name) > room:
            parts.append("")
        for character in name:
            if width_of(parts[-1] + character) > room:
                parts.append("")
            parts[-1] += character
    return parts


_SPACE: Final = re.compile(r" (?![\d?, ]{1,80}\))")
"""A space where a line may be broken: not in the shape ``(?, 128, 3)``."""

_NAME: Final = re.compile(r"[^/]*/+|[^/]+")
"""A name in a path with the slash after it."""


_PLAIN: Final = re.compile(r"[A-Za-z0-9@%+=:,./_-]+")
_BEYOND: Final = 0x10000


def quote(word: str) -> str:
    """
    Return a word quoted for a shell. Unprintable characters are written by number (``$'...'``), so
    that no name can move the cursor.
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
    value, and all lines except the last end in a backslash.
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
    """Return the start of the command and its options, each with its value."""
    pieces: list[list[str]] = [[]]
    for word in words:
        if word.startswith("--"):
            pieces.append([])
        pieces[-1].append(word)
    return [command(piece) for piece in pieces]


def file(path: str) -> str:
    """Return a path in a form that no command parses as an option."""
    return f"./{path}" if path.startswith("-") else path


def _escape_character(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    if character.isprintable():
        return character
    if "\udc80" <= character <= "\udcff":  # a byte of a file name that is not UTF-8
        return f"\\x{ord(character) - 0xDC00:02x}"
    number = ord(character)
    return f"\\u{number:04x}" if number < _BEYOND else f"\\U{number:08x}"
