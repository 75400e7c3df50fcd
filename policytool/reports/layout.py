"""
Tables that fit the width they are given.

rich's own table takes 0.35 s for EfficientNetV2-L's 1,031 layers, ten times what reading their
config takes; laying out plain cells by hand takes a hundredth of that. Text from files is shown
with its control characters escaped, so no name can move the cursor.
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
    "bad": "31",
    "good": "32",
    "": "",
}
"""Style name to the parameters of an ANSI "select graphic rendition" sequence."""

_GAPS: Final = (2, 1)
"""Spaces between columns; the second where the table does not fit otherwise."""


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """How a report is shown."""

    width: int = 80
    colour: bool = False
    unicode: bool = True
    variables: bool = False
    suppressed: bool = True
    """
    Whether findings that were let pass are shown too (``--show-suppressed``); the JSON report
    always has them, annotations never.
    """

    @property
    def ellipsis(self) -> str:
        """What stands for text that was left out."""
        return "…" if self.unicode else "..."

    @property
    def rule(self) -> str:
        """The character of a horizontal line."""
        return "─" if self.unicode else "-"

    def paint(self, text: str, style: str) -> str:
        """Return the text in a style, where colour is wanted."""
        code = STYLES[style]
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and code and text else text


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """A column and how it gives way when the table is too wide."""

    title: str
    minimum: int
    middle: bool = False
    """Whether text is shortened in its middle instead of its end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One cell."""

    text: str
    style: str = ""
    before: str = ""
    """
    What stands before the text and is not shortened while there is room for some of the text: a
    tree's guides.
    """


_COMMAND: Final = re.compile(r"(?<!\S):(?=:)|#(?=#\[)")
"""
The first character of what may be a command to GitHub's runner, which reads each line that a step
prints: ``::error::`` at its beginning, where any word may come to stand, and ``##[error]`` anywhere
(``ActionCommand.TryParseV2`` and ``TryParse`` in actions/runner).
"""


def clean(text: str) -> str:
    """
    Return text from a file with what is not printable escaped (controls, direction overrides, lone
    surrogates), and what a CI runner would obey.
    """
    if not text.isprintable():
        text = "".join(
            character
            if character.isprintable()
            else character.encode("unicode_escape").decode("ascii")
            for character in text
        )
    return (
        _COMMAND.sub(lambda match: f"\\x{ord(match[0]):02x}", text)
        if "::" in text or "##[" in text
        else text
    )


def width_of(text: str) -> int:
    """Return how many columns of a terminal the text takes."""
    if text.isascii():
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


def table(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], view: View, indent: int = 2
) -> list[str]:
    """
    Return the lines of a table; the widest shortenable columns give way first, none below its
    minimum.
    """
    natural = [
        max(
            [
                width_of(column.title),
                *(width_of(row[index].before) + width_of(row[index].text) for row in rows),
            ]
        )
        for index, column in enumerate(columns)
    ]
    least = [
        min(width, max(column.minimum, width_of(column.title)))
        for width, column in zip(natural, columns, strict=True)
    ]
    gap = next(
        (gap for gap in _GAPS if sum(least) + gap * (len(columns) - 1) + indent <= view.width),
        _GAPS[-1],
    )
    widths = _fit(natural, least, view.width - indent - gap * (len(columns) - 1))
    margin = " " * indent
    titles = [Cell(text=column.title, style="title") for column in columns]
    rule = view.paint(
        view.rule * min(view.width - indent, sum(widths) + gap * (len(columns) - 1)), "dim"
    )
    return [
        margin + _line(titles, columns, widths, view, gap),
        margin + rule,
        *(margin + _line(row, columns, widths, view, gap) for row in rows),
    ]


def _fit(natural: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """
    Return widths that fill ``room`` at most, as far as the least widths allow; the widest column is
    narrowed first.
    """
    widths = list(natural)
    while sum(widths) > room:
        widest = max(
            range(len(widths)), key=lambda index: (widths[index] > least[index], widths[index])
        )
        if widths[widest] <= least[widest]:
            break
        widths[widest] -= 1
    return widths


_LEAST: Final = 4
"""Columns of text without which what stands before it is worth nothing."""


def _fitting(cell: Cell, width: int, view: View, *, middle: bool) -> str:
    room = width - width_of(cell.before)
    if room < min(_LEAST, width_of(cell.text)):
        return shorten(cell.before + cell.text, width, view, middle=middle)
    return cell.before + shorten(cell.text, room, view, middle=middle)


def _line(
    cells: Sequence[Cell], columns: Sequence[Column], widths: Sequence[int], view: View, gap: int
) -> str:
    parts = []
    last = len(cells) - 1
    for index, (cell, column, width) in enumerate(zip(cells, columns, widths, strict=True)):
        text = _fitting(cell, width, view, middle=column.middle)
        padding = "" if index == last else " " * (width - width_of(text) + gap)
        parts.append(view.paint(text, cell.style) + padding)
    return "".join(parts).rstrip()


def wrap(label: str, text: str, view: View, style: str = "", indent: int = 2) -> list[str]:
    """Return ``label`` and ``text`` broken at spaces, further lines below the text's beginning."""
    start = " " * indent + label
    room = max(20, view.width - len(start))
    lines: list[str] = []
    current = ""
    for word in text.split(" "):
        if current and width_of(current) + 1 + width_of(word) > room:
            lines.append(current)
            current = word
        else:
            current = f"{current} {word}" if current else word
    lines.append(current)
    return [
        (start if number == 0 else " " * len(start)) + view.paint(line, style)
        for number, line in enumerate(lines)
    ]
