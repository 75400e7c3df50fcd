"""
Rows for spreadsheets and data frames: CSV as in RFC 4180, and Parquet, which pyarrow writes.

In CSV, an apostrophe is added before text that a spreadsheet would evaluate as a formula (CWE-1236)
and before text that starts with an apostrophe. Remove the first apostrophe of a cell to get the
value.
"""

from __future__ import annotations

import io
import json
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from policytool.reports.fields import CellType, Record
from policytool.reports.layout import clean
from policytool.reports.reporter import BinaryReporter, streaming_reporter
from policytool.support.errors import MissingPackageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from _typeshed import ReadableBuffer

    from policytool.reports.fields import Field, Type
    from policytool.reports.layout import View
    from policytool.reports.reporter import Reporter


Value = TypeVar("Value")

_FORMULAS: Final = frozenset("=+-@\uff1d\uff0b\uff0d\uff20'")
"""The first characters of formulas, including full-width characters, and the apostrophe."""


_CSV_GROUP: Final = 1_000
"""The number of rows in a piece."""


class RowColumn(NamedTuple):
    """A column; its name is the JSON key of its values, with dots between nested keys."""

    name: str
    type: CellType = CellType.TEXT
    text: str = ""
    """The description on the reference page."""


def row_columns(
    record: Record[Any], names: Iterable[str], prefix: str = ""
) -> tuple[RowColumn, ...]:
    """
    Return columns of the fields of a record, in this order.

    :param names: names of fields; for nested objects, the names of object and field with a dot
    :param prefix: the prefix of column names before the names of the fields
    :raises KeyError: if the record does not have a field.
    """
    fields = [(name, _field(record, name)) for name in names]
    return tuple(RowColumn(prefix + name, field.type.cell, field.text) for name, field in fields)


def _field(kind: Type, name: str) -> Field[Any]:
    key, _, inner_name = name.partition(".")
    field = next((field for field in _fields(kind) if field.name == key), None)
    if field is None:
        raise KeyError(name)
    return _field(field.type, inner_name) if inner_name else field


def _fields(kind: Type) -> Iterator[Field[Any]]:
    """Yield the fields of a record, or of the records in a type."""
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

        remaining_rows = chain(
            ([column.name for column in columns],),
            ([cell(field) for field in row] for row in rows(value, view)),
        )
        while group := list(islice(remaining_rows, _CSV_GROUP)):
            text = io.StringIO(newline="")
            csv.writer(text).writerows(group)
            yield text.getvalue()

    return streaming_reporter("csv", pieces)


def value_at(values: Mapping[str, Any], column: str) -> Any:  # noqa: ANN401  # JSON
    """
    Return the value of a column, whose name is the path to the value; None if an object on the path
    is missing.
    """
    value: Any = values
    for key in column.split("."):
        value = None if value is None else value.get(key)
    return value


def cell(value: object) -> str:
    """Return a value as the text of a cell: empty for null, JSON for booleans and lists."""
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


_PARQUET_GROUP: Final = 65_536
"""The number of rows that are in memory as Python values at a time."""

_INTEGERS: Final = range(-(2**63), 2**63)


def parquet_reporter(
    columns: Sequence[RowColumn], rows: Callable[[Value, View], Iterable[Sequence[Any]]]
) -> BinaryReporter[Value]:
    """Return the reporter that writes the same rows as Parquet."""

    def pieces(value: Value, view: View) -> Iterator[bytes]:
        return parquet_pieces(columns, rows(value, view))

    def render(value: Value, view: View) -> bytes:
        return b"".join(pieces(value, view))

    return BinaryReporter(name="parquet", render=render, pieces=pieces, check=check_installed)


def check_installed() -> None:
    """
    Check that Parquet can be written.

    :raises MissingPackageError: if pyarrow is not installed.
    """
    try:
        import pyarrow.parquet  # noqa: F401  # 0.2 s; only where Parquet is written
    except ImportError as error:
        raise MissingPackageError(
            "Parquet reports need pyarrow, which is not installed; run `pip install "
            "'policytool[fleet]'`"
        ) from error


class _Sink(io.RawIOBase):
    """A file-like object that returns the written bytes."""

    def __init__(self) -> None:
        super().__init__()
        self._size = 0
        self._new = bytearray()

    def writable(self) -> bool:
        """Return True: the object is writable."""
        return True

    def tell(self) -> int:
        """Return the number of written bytes."""
        return self._size

    def write(self, data: ReadableBuffer, /) -> int:
        """Write some bytes."""
        count = memoryview(data).nbytes
        self._size += count
        self._new += data
        return count

    def new_bytes(self) -> bytes:
        """Return the bytes that were written since the last call."""
        new, self._new = bytes(self._new), bytearray()
        return new


def parquet_pieces(columns: Sequence[RowColumn], rows: Iterable[Sequence[Any]]) -> Iterator[bytes]:
    """
    Yield the rows as a Parquet file; all columns are nullable.

    An integer that exceeds 64 bits becomes null, and lone surrogates are escaped, because Parquet
    does not support such values.

    :raises MissingPackageError: if pyarrow is not installed.
    """
    check_installed()
    import pyarrow as pa
    from pyarrow import parquet

    types = {
        CellType.TEXT: pa.string(),
        CellType.TEXTS: pa.list_(pa.string()),
        CellType.WORDS: pa.list_(pa.string()),
        CellType.INTEGER: pa.int64(),
        CellType.NUMBER: pa.float64(),
        CellType.FLAG: pa.bool_(),
    }
    schema = pa.schema([(column.name, types[column.type]) for column in columns])
    file = _Sink()
    remaining_rows = iter(rows)
    with parquet.ParquetWriter(file, schema) as writer:
        while group := list(islice(remaining_rows, _PARQUET_GROUP)):
            values = [
                [_value(row[index], column.type) for row in group]
                for index, column in enumerate(columns)
            ]
            writer.write_table(pa.table(values, schema=schema))
            yield file.new_bytes()
    yield file.new_bytes()


def _value(value: Any, kind: CellType) -> Any:  # noqa: ANN401  # JSON
    """Convert a JSON value to the type of its column."""
    if value is None:
        return None
    match kind:
        case CellType.TEXT:
            return _text(value)
        case CellType.TEXTS:
            return [_text(text) for text in value]
        case CellType.WORDS:
            return [_text(word) for word in value.split()]
        case CellType.INTEGER:
            return value if value in _INTEGERS else None
        case CellType.NUMBER:
            return float(value)  # JSON has NaN and infinities as texts
        case CellType.FLAG:
            return value


def _text(value: str) -> str:
    return value.encode("utf-8", "backslashreplace").decode()
