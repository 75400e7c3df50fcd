"""
Rows for spreadsheets and data frames, and CSV as in RFC 4180.

What a spreadsheet would take for a formula gets an apostrophe before it in CSV (CWE-1236), and so
does what begins with an apostrophe: without its first apostrophe, a cell has the value again.
"""

from __future__ import annotations

import io
import json
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from policytool.reports.fields import CellType, Record
from policytool.reports.layout import clean
from policytool.reports.reporter import streaming_reporter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from policytool.reports.fields import Field, Type
    from policytool.reports.layout import View
    from policytool.reports.reporter import Reporter

Value = TypeVar("Value")

_FORMULAS: Final = frozenset("=+-@\uff1d\uff0b\uff0d\uff20'")
"""What begins a formula, in full width too; and the apostrophe itself."""


_CSV_GROUP: Final = 1_000
"""Rows of a piece."""


class RowColumn(NamedTuple):
    """A column: the JSON key of its values, keys of nested objects joined by a dot."""

    name: str
    type: CellType = CellType.TEXT
    text: str = ""
    """Its description on the reference page."""


def row_columns(
    record: Record[Any], names: Iterable[str], prefix: str = ""
) -> tuple[RowColumn, ...]:
    """
    Return columns of the fields of a record, in this order.

    :param names: fields; those of nested objects after the name of the object and a dot
    :param prefix: what stands before the names of the fields in those of the columns
    :raises KeyError: for a field that the record does not have.
    """
    fields = [(name, _field(record, name)) for name in names]
    return tuple(RowColumn(prefix + name, field.type.cell, field.text) for name, field in fields)


def _field(kind: Type, name: str) -> Field[Any]:
    key, _, rest = name.partition(".")
    field = next((field for field in _fields(kind) if field.name == key), None)
    if field is None:
        raise KeyError(name)
    return _field(field.type, rest) if rest else field


def _fields(kind: Type) -> Iterator[Field[Any]]:
    """Yield the fields of a record, or of those that a type consists of."""
    if isinstance(kind, Record):
        yield from kind.fields
    else:
        for part in kind.parts:
            yield from _fields(part)


def row_values(columns: Iterable[RowColumn], values: Mapping[str, Any]) -> list[Any]:
    """Return the cells of a row from JSON values; words are separated by a space."""
    return [_row_value(value_at(values, column.name), column.type) for column in columns]


def _row_value(value: Any, kind: CellType) -> Any:  # noqa: ANN401  # JSON
    if value is None:
        return None
    match kind:
        case CellType.TEXTS:
            return list(value)
        case CellType.WORDS:
            return " ".join(value)
    return value


def csv_reporter(
    columns: Sequence[RowColumn], rows: Callable[[Value, View], Iterable[Sequence[Any]]]
) -> Reporter[Value]:
    """Return the reporter that writes rows as CSV; without rows, it writes only the header."""

    def pieces(value: Value, view: View) -> Iterator[str]:
        import csv  # 3 ms at start

        left = chain(
            ([column.name for column in columns],),
            ([cell(field) for field in row] for row in rows(value, view)),
        )
        while some := list(islice(left, _CSV_GROUP)):
            text = io.StringIO(newline="")
            csv.writer(text).writerows(some)
            yield text.getvalue()

    return streaming_reporter("csv", pieces)


def value_at(values: Mapping[str, Any], column: str) -> Any:  # noqa: ANN401  # JSON
    """
    Return the value at the path that a column's name gives; None if an object on the path is
    missing.
    """
    value: Any = values
    for key in column.split("."):
        value = None if value is None else value.get(key)
    return value


def cell(value: object) -> str:
    """Return a value as a cell: nothing for null, JSON's words for booleans and lists."""
    match value:
        case None | []:
            return ""
        case bool() | list():
            return json.dumps(value)
        case float() if value - value != 0:  # NaN or an infinity
            return cell(json.dumps(value))
        case str():
            text = clean(value)
            return f"'{text}" if text[:1] in _FORMULAS else text
    return str(value)
