"""
Rows for spreadsheets and data frames, and CSV as in RFC 4180.

What a spreadsheet would take for a formula gets an apostrophe before it in CSV (CWE-1236), and so
does what begins with an apostrophe: without its first apostrophe, a cell has the value again.
"""

from __future__ import annotations

import io
import json
from enum import Enum, auto
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from policytool.reports.layout import clean
from policytool.reports.reporter import streaming_reporter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from policytool.reports.layout import View
    from policytool.reports.reporter import Reporter

Value = TypeVar("Value")

_FORMULAS: Final = frozenset("=+-@\uff1d\uff0b\uff0d\uff20'")
"""What begins a formula, in full width too; and the apostrophe itself."""


_GROUP: Final = 1_000
"""Rows of a piece."""


class CellType(Enum):
    """What the cells of a column hold; each may be null."""

    TEXT = auto()
    TEXTS = auto()
    """A list of texts; in CSV a JSON list."""

    WORDS = auto()
    """Texts without spaces, separated by a space; in Parquet a list."""

    INTEGER = auto()
    NUMBER = auto()
    FLAG = auto()


class RowColumn(NamedTuple):
    """A column: the JSON key of its values, keys of nested objects joined by a dot."""

    name: str
    type: CellType = CellType.TEXT


OF_MODEL: Final = (
    RowColumn("model.path"),
    RowColumn("model.format"),
    RowColumn("model.written_by"),
)
"""The columns that name the model of a row."""


def csv_reporter(
    columns: Sequence[RowColumn], rows: Callable[[Value, View], Iterable[Sequence[Any]]]
) -> Reporter[Value]:
    """Return the reporter that writes rows as CSV; without a row it is the header alone."""

    def pieces(value: Value, view: View) -> Iterator[str]:
        import csv  # 3 ms at start

        left = chain(
            ([column.name for column in columns],),
            ([cell(one) for one in row] for row in rows(value, view)),
        )
        while some := list(islice(left, _GROUP)):
            text = io.StringIO(newline="")
            csv.writer(text).writerows(some)
            yield text.getvalue()

    return streaming_reporter("csv", pieces)


def value_at(values: Mapping[str, Any], column: str) -> Any:  # noqa: ANN401  # JSON
    """
    Return the value that a column's name leads to; None where an object on the way is missing.
    """
    found: Any = values
    for key in column.split("."):
        found = None if found is None else found.get(key)
    return found


def cell(value: object) -> str:
    """Return a value as a cell: nothing for null, JSON's words for booleans and lists."""
    match value:
        case None | []:
            return ""
        case bool() | list():
            return json.dumps(value)
        case str():
            text = clean(value)
            return f"'{text}" if text[:1] in _FORMULAS else text
    return str(value)
