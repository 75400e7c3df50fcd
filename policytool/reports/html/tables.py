"""Tables of pages with what HTML needs beside the cells: filters and the columns that are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from policytool.reports.page import Cell, Tone

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.reports.page import Column, Table

_SEARCHED: Final = 12
"""Rows from which on a table has a search field."""

_CHOICES: Final = 12
"""Different texts that a column with a filter has at most."""

_DEEPEST: Final = 12
"""Levels of a tree that are indented; deeper ones are shown at the last of them."""


class Filter(NamedTuple):
    """A choice between the texts of a column."""

    title: str
    column: int
    """The place among the shown columns."""

    choices: tuple[str, ...]


class ShownRow(NamedTuple):
    """A row of the shown columns."""

    cells: tuple[Cell, ...]
    depth: int
    indent: int
    above: str
    """The part of the first cell's whole name that its label leaves out."""

    is_spanning: bool
    is_missed: bool


class ShownTable(NamedTuple):
    """A table as it is shown."""

    columns: tuple[Column, ...]
    rows: tuple[ShownRow, ...]
    filters: tuple[Filter, ...]
    is_searched: bool


def prepare(table: Table) -> ShownTable:
    """Return the table without columns that have no text in any row."""
    indices = table.shown
    is_searched = len(table.rows) >= _SEARCHED
    return ShownTable(
        columns=tuple(table.columns[index] for index in indices),
        rows=tuple(_rows(table, indices)),
        filters=tuple(_filters(table, indices)) if is_searched else (),
        is_searched=is_searched,
    )


def _rows(table: Table, indices: list[int]) -> Iterator[ShownRow]:
    """
    Yield the rows. A row without a label gets that of the row before, which a search may hide.
    """
    label = Cell(text="")
    for row in table.rows:
        first = row.cells[0]
        label = first if first.text else label._replace(tone=Tone.DIM)
        yield ShownRow(
            cells=(label, *(row.cells[index] for index in indices[1:])),
            depth=row.depth,
            indent=min(row.depth, _DEEPEST),
            above=label.whole.removesuffix(label.text) if label.whole.endswith(label.text) else "",
            is_spanning=row.is_spanning,
            is_missed=row.is_missed,
        )


def _filters(table: Table, indices: list[int]) -> list[Filter]:
    """
    Return the filters of the columns that have a few different texts; columns of measurements have
    none.
    """
    filters = []
    for place, index in enumerate(indices[1:], start=1):
        texts = sorted({row.cells[index].text for row in table.rows} - {""})
        if 1 < len(texts) <= _CHOICES and not all(text[0].isdigit() for text in texts):
            filters.append(
                Filter(title=table.columns[index].title, column=place, choices=tuple(texts))
            )
    return filters
