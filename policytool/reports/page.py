"""
The content of a report for people, as a small tree of values. Each command creates it once, and
each output has a renderer for it.

The values are named tuples, because their definition takes a tenth of the time of dataclasses, and
``inspect`` must start fast. Text is not escaped: renderers escape control characters and markup.
Words between backticks are code. Arrows, dots and ellipses are Unicode; renderers replace them if
the output supports only ASCII.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from policytool.support.text.phrases import join_and_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Source = TypeVar("Source")

INDEX: Final = "index.html"
"""The file of a directory of pages that links to the others."""


class Tone(StrEnum):
    """The meaning of a text, which renderers display as a colour or in bold."""

    PLAIN = ""
    TITLE = "title"
    DIM = "dim"
    GOOD = "good"
    CAUTION = "caution"
    BAD = "bad"
    MIXED = "mixed"
    """A mixed policy, or a change of policies."""

    HALF = "half"
    """A 16-bit dtype."""


class Sentence(NamedTuple):
    """A paragraph."""

    text: str
    tone: Tone = Tone.PLAIN


class Verdict(NamedTuple):
    """The answer at the start of a report: a subject and a statement about it."""

    parts: tuple[Sentence, ...]
    """The parts of a sentence, each with a separate tone."""

    subject: str = ""
    """The path of the model, which is displayed before the sentence."""

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
    """A list of facts with aligned texts."""

    facts: tuple[Fact, ...]


class Column(NamedTuple):
    """A column of a table, with its behaviour in a narrow terminal."""

    title: str
    priority: int = 0
    """Columns with the highest number are left out first; those with 0 stay."""

    minimum: int = 8
    """The minimum width of the column in characters."""

    is_name: bool = False
    """Whether cells are names from the file: shortened in the middle, and code in Markdown."""

    is_beneath: bool = False
    """Whether a cell moves below its row if the column is left out."""

    is_last: bool = False
    """Whether HTML has the column after the others, which answer the question of the table."""


class Cell(NamedTuple):
    """A cell."""

    text: str
    tone: Tone = Tone.PLAIN
    is_code: bool | None = None
    """Whether Markdown displays it as code; None for the default of its column."""

    whole: str = ""
    """The text if the table is not displayed as a tree: the whole path of a layer."""

    names: tuple[str, ...] = ()
    """All names, if the text contains only the first of them; HTML opens them."""


class Row(NamedTuple):
    """A row of a table."""

    cells: tuple[Cell, ...]
    depth: int = 0
    """The number of ancestors of the row; a table with ancestors is a tree."""

    is_spanning: bool = False
    """Whether the first cell spans the whole table, because the others are empty."""

    is_missed: bool = False
    """Whether the row is a failure; then it has a mark, and the other rows are indented."""

    folded: tuple[Row, ...] = ()
    """The rows that the row stands for; HTML opens them."""


class Table(NamedTuple):
    """
    A table.

    The first column is the label. Different labels stay different when they are shortened.
    """

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]

    @property
    def shown(self) -> list[int]:
        """The indices of the columns, without optional columns that have no text."""
        return [
            index
            for index, column in enumerate(self.columns)
            if not column.priority or any(row.cells[index].text for row in self.rows)
        ]


class Notes(NamedTuple):
    """Notes of one line each, with a mark that is visible without colour."""

    texts: tuple[str, ...]
    tone: Tone = Tone.DIM


class Item(NamedTuple):
    """A sentence about several objects, and their names."""

    text: str
    names: tuple[str, ...] = ()
    most: int | None = None
    """The maximum number of displayed names, except in HTML, which opens them; None for all."""

    label: str = ""
    """The kind of the sentence; displayed once for consecutive items with the same kind."""

    tone: Tone = Tone.PLAIN

    @property
    def names_text(self) -> str:
        """The first names, and how many more there are."""
        return join_and_count(self.names, self.most)


class Listing(NamedTuple):
    """Sentence parts, each with the names of the objects that it is about."""

    items: tuple[Item, ...]


class Figures(NamedTuple):
    """A few numbers about the subject of a page, which HTML displays in large type."""

    figures: tuple[Fact, ...]
    """The number is the text, and what it counts is the label."""


class Bar(NamedTuple):
    """An amount in a bar chart."""

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
    """A value at each place; None if it was not measured, infinity if it exceeds the range."""

    label: str
    values: tuple[float | None, ...]


class Curves(NamedTuple):
    """A chart of values from place to place, on a logarithmic axis."""

    title: str
    places: tuple[str, ...]
    curves: tuple[Curve, ...]


class Spread(NamedTuple):
    """The number of values of each magnitude in a tensor."""

    label: str
    text: str
    """The description of the histogram."""

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


class Node(NamedTuple):
    """A layer in a graph, or a block of layers that readers open and fold."""

    label: str
    text: str
    """A short text below the label, such as a dtype, so that the meaning does not need colour."""

    tone: Tone = Tone.PLAIN
    parent: int | None = None
    """The index of the block that contains it, which is before it."""

    details: tuple[Fact, ...] = ()


class Graph(NamedTuple):
    """A picture of layers with their connections."""

    title: str
    nodes: tuple[Node, ...]
    edges: tuple[tuple[int, int], ...]
    """Indices of nodes: from the layer with the output to the layer that uses it."""

    legend: tuple[Sentence, ...] = ()
    """The meaning of each colour."""


Chart = Figures | Bars | Curves | Profile | Spreads | Graph


class Section(NamedTuple):
    """Blocks below a title."""

    title: str
    blocks: tuple[Block, ...]


Block = Verdict | Sentence | Command | Facts | Listing | Table | Notes | Section | Chart
"""The parts of a page. Renderers without graphics skip charts and figures."""


class Page(NamedTuple):
    """A report: groups of blocks, separated by empty lines, with a group per model or run."""

    groups: tuple[tuple[Block, ...], ...]
    failures: tuple[Fact, ...] = ()
    """Files on which a command failed, with the reason; for a terminal, stderr has them."""


def table_section(
    title: str,
    columns: Sequence[Column],
    rows: Sequence[Row],
    sentences: Sequence[str] = (),
) -> Section:
    """Return a section; without a table if there are no rows."""
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
    Return a section with a row for each item; without a table if there are no items.

    :param fields: the columns, each with the function that returns its cell for an item
    :param is_missed: returns whether an item is marked because it exceeds a limit
    """
    pairs = list(fields)
    rows = [
        Row(cells=tuple(cell(item) for _, cell in pairs), is_missed=is_missed(item))
        for item in items
    ]
    return table_section(title, [column for column, _ in pairs], rows, sentences)
