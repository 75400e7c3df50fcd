"""Rows as a Parquet file, written by pyarrow."""

from __future__ import annotations

import io
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from policytool.reports.fields import CellType
from policytool.reports.reporter import BinaryReporter
from policytool.support.errors import MissingPackageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from _typeshed import ReadableBuffer

    from policytool.reports.layout import View
    from policytool.reports.rows import RowColumn, Value

_PARQUET_GROUP: Final = 65_536
"""Rows that are held as Python values at a time."""

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
    Make sure that Parquet can be written.

    :raises MissingPackageError: without pyarrow.
    """
    try:
        import pyarrow.parquet  # noqa: F401  # 0.2 s; only where Parquet is written
    except ImportError as error:
        raise MissingPackageError(
            "Parquet reports need pyarrow, which is not installed; run `pip install "
            "'policytool[fleet]'`"
        ) from error


class _Sink(io.RawIOBase):
    """A file that passes on what is written."""

    def __init__(self) -> None:
        super().__init__()
        self._size = 0
        self._new = bytearray()

    def writable(self) -> bool:
        """Return that it can be written to."""
        return True

    def tell(self) -> int:
        """Return how much was written."""
        return self._size

    def write(self, data: ReadableBuffer, /) -> int:
        """Write some bytes."""
        count = memoryview(data).nbytes
        self._size += count
        self._new += data
        return count

    def new_bytes(self) -> bytes:
        """Return what was written since the last call."""
        new, self._new = bytes(self._new), bytearray()
        return new


def parquet_pieces(columns: Sequence[RowColumn], rows: Iterable[Sequence[Any]]) -> Iterator[bytes]:
    """
    Yield the rows as a Parquet file; every column may have nulls.

    An integer beyond 64 bits is null, and lone surrogates are escaped: Parquet has no such values.

    :raises MissingPackageError: without pyarrow.
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
    left = iter(rows)
    with parquet.ParquetWriter(file, schema) as writer:
        while group := list(islice(left, _PARQUET_GROUP)):
            values = [
                [_value(row[index], column.type) for row in group]
                for index, column in enumerate(columns)
            ]
            writer.write_table(pa.table(values, schema=schema))
            yield file.new_bytes()
    yield file.new_bytes()


def _value(value: Any, kind: CellType) -> Any:  # noqa: ANN401  # JSON
    """Return a JSON value as one of its column's type."""
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
