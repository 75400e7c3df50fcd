"""
A report for people as a small tree of values, which each command fills once and each output renders
in its own way.

They are named tuples, which take a tenth of the time of dataclasses to define: ``inspect`` is to
start in a blink. Text is as it was found: renderers escape what could move a cursor or be markup.
Words between backticks are code. Arrows, dots and ellipses are written as Unicode; renderers
replace them where the output has only ASCII.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Source = TypeVar("Source")

INDEX: Final = "index.html"
"""The file of a directory of pages that links to the others."""


class Tone(StrEnum):
    """What a text means to the reader, which renderers show as a colour or in bold."""

    PLAIN = ""
    TITLE = "title"
    DIM = "dim"
    GOOD = "good"
    CAUTION = "caution"
    BAD = "bad"
    MIXED = "mixed"
    """A mixed policy, and names of layers."""

    HALF = "half"
    """A 16-bit dtype."""


class Sentence(NamedTuple):
    """A paragraph."""

    text: str
    tone: Tone = Tone.PLAIN


class Verdict(NamedTuple):
    """The answer, which comes first: a heading's subject, and what is true of it."""

    parts: tuple[Sentence, ...]
    """Parts of one sentence, each with a tone of its own."""

    subject: str = ""
    """The path of the model that the sentence is about; shown before it."""

    @classmethod
    def whole(cls, text: str, tone: Tone, subject: str = "") -> Verdict:
        """Return a verdict of one part."""
        return cls(parts=(Sentence(text=text, tone=tone),), subject=subject)

    @property
    def text(self) -> str:
        """The sentence."""
        return "; ".join(part.text for part in self.parts)


class Command(NamedTuple):
    """A command that was planned before it is printed."""

    label: str
    words: tuple[str, ...]


class Fact(NamedTuple):
    """A short label, and a sentence part."""

    label: str
    text: str
    tone: Tone = Tone.PLAIN


class Facts(NamedTuple):
    """Facts below each other, their texts lined up."""

    facts: tuple[Fact, ...]


class Column(NamedTuple):
    """A column of a table, and how it gives way in a narrow terminal."""

    title: str
    priority: int = 0
    """Columns with the highest number are left out first; those with 0 stay."""

    minimum: int = 8
    """Characters that the column keeps."""

    is_name: bool = False
    """Whether cells hold names from the file: shortened in the middle, and code in Markdown."""

    is_beneath: bool = False
    """Whether a cell moves below its row if the column is left out."""


class Cell(NamedTuple):
    """A cell."""

    text: str
    tone: Tone = Tone.PLAIN
    is_code: bool | None = None
    """Whether Markdown shows it as code; None for what its column says."""

    whole: str = ""
    """What stands for the text where there is no tree around it: a layer's whole path."""


class Row(NamedTuple):
    """A row of a table."""

    cells: tuple[Cell, ...]
    depth: int = 0
    """How many rows hold this one; if any is held, the table is a tree."""

    is_spanning: bool = False
    """Whether the first cell reaches over the whole table, as the others say nothing."""

    is_missed: bool = False
    """Whether the row shows a failure; it has a mark then, and the others are indented alike."""


class Table(NamedTuple):
    """
    A table.

    The first column is the label. Where labels are shortened, no two different ones read the same.
    """

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]

    @property
    def shown(self) -> list[int]:
        """The places of the columns but for those that can be left out and have no text."""
        return [
            index
            for index, column in enumerate(self.columns)
            if not column.priority or any(row.cells[index].text for row in self.rows)
        ]


class Notes(NamedTuple):
    """Remarks, one line each, with a mark that needs no colour."""

    texts: tuple[str, ...]
    tone: Tone = Tone.DIM


class Item(NamedTuple):
    """A sentence about several things, and their names."""

    text: str
    names: str
    label: str = ""
    """What kind of sentence it is; shown once for several that follow each other."""

    tone: Tone = Tone.PLAIN


class Listing(NamedTuple):
    """Sentence parts, each with the names of what it is about."""

    items: tuple[Item, ...]


class Bar(NamedTuple):
    """One of several amounts."""

    label: str
    value: float
    text: str
    """The amount with its unit."""

    tone: Tone = Tone.PLAIN


class Bars(NamedTuple):
    """A chart with a bar for each amount."""

    title: str
    bars: tuple[Bar, ...]


class Curve(NamedTuple):
    """A value at each place; None if none was measured, infinity if it left the range."""

    label: str
    values: tuple[float | None, ...]


class Curves(NamedTuple):
    """A chart of values from place to place, on a logarithmic axis."""

    title: str
    places: tuple[str, ...]
    curves: tuple[Curve, ...]


class Spread(NamedTuple):
    """How many values a tensor has of each magnitude."""

    label: str
    text: str
    """What to see in it."""

    counts: tuple[tuple[int, int], ...]
    """Binary exponents in ascending order, each with its number of values."""

    normal: tuple[int, int]
    """The smallest and the largest exponent of a normal number of its dtype."""

    tone: Tone = Tone.PLAIN


class Spreads(NamedTuple):
    """A chart with a histogram of binary exponents for each tensor."""

    title: str
    spreads: tuple[Spread, ...]


class Point(NamedTuple):
    """A value at a share."""

    share: float
    """From 0 to 1."""

    value: float
    text: str
    is_missed: bool = False
    """Whether it is a failure."""

    is_chosen: bool = False


class Profile(NamedTuple):
    """A chart of values from 0 to 100 %, on a logarithmic axis, with a limit."""

    title: str
    points: tuple[Point, ...]
    limit: float
    limit_text: str


Chart = Bars | Curves | Profile | Spreads


class Section(NamedTuple):
    """Blocks below a title."""

    title: str
    blocks: tuple[Block, ...]


Block = Verdict | Sentence | Command | Facts | Listing | Table | Notes | Section | Chart
"""Charts are in pages for outputs that draw; the others leave them out."""


class Page(NamedTuple):
    """A report: its blocks, one group for each model or run, divided by an empty line."""

    groups: tuple[tuple[Block, ...], ...]
    failures: tuple[Fact, ...] = ()
    """Files that a command failed on, with the reason; beside a terminal, stderr has them."""


def table_section(
    title: str,
    columns: Sequence[Column],
    rows: Sequence[Row],
    sentences: Sequence[str] = (),
) -> Section:
    """Return a part; without a table if there are no rows."""
    table = Table(columns=tuple(columns), rows=tuple(rows))
    blocks: list[Block] = [table] if rows else []
    return Section(title=title, blocks=(*blocks, *(Sentence(text=text) for text in sentences)))


def fields_section(
    title: str,
    fields: Iterable[tuple[Column, Callable[[Source], Cell]]],
    items: Sequence[Source],
    sentences: Sequence[str] = (),
    is_missed: Callable[[Source], bool] = lambda _: False,
) -> Section:
    """
    Return a part with a row for each item; without a table if there are no items.

    :param fields: the columns, each with the function that returns its cell for an item
    :param is_missed: returns whether an item is marked because it exceeds a limit
    """
    pairs = list(fields)
    rows = [
        Row(cells=tuple(cell(item) for _, cell in pairs), is_missed=is_missed(item))
        for item in items
    ]
    return table_section(title, [column for column, _ in pairs], rows, sentences)
