"""The rows of ``inspect --summary`` for spreadsheets and data frames: one for each model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from policytool.commands.summary import POLICIES, saved_bytes
from policytool.model.model import Outcome
from policytool.reports.parquet import parquet_reporter
from policytool.reports.rows import CellType, RowColumn, csv_reporter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.commands.summary import FleetSummary, ModelRecord
    from policytool.reports.layout import View

COLUMNS: Final = (
    *map(RowColumn, ("path", "format", "written_by")),
    RowColumn("layers", CellType.INTEGER),
    RowColumn("parameters", CellType.INTEGER),
    RowColumn("bytes", CellType.INTEGER),
    RowColumn("stored_dtypes", CellType.WORDS),
    RowColumn("policies", CellType.TEXTS),
    *(RowColumn(loading.value, CellType.WORDS) for loading in Outcome),
    RowColumn("reasons", CellType.TEXTS),
    *(RowColumn(f"savings.{policy}", CellType.INTEGER) for policy, _ in POLICIES),
)
"""Later releases add columns at the end."""


def _rows(summary: FleetSummary, _view: View) -> Iterator[list[Any]]:
    yield from map(_values, summary.records)


def _values(record: ModelRecord) -> list[Any]:
    return [
        *(record.path, record.format, record.generation),
        *(record.layers, record.parameters, record.bytes),
        " ".join(record.stored),
        list(record.policies),
        *(
            " ".join(one.release for one in record.outcomes if one.loading is loading)
            for loading in Outcome
        ),
        [f"{one.release}: {one.reason}" for one in record.outcomes if one.reason is not None],
        *(saved_bytes(record.stored, dtype) for _, dtype in POLICIES),
    ]


REPORTER: Final = csv_reporter(COLUMNS, _rows)
PARQUET_REPORTER: Final = parquet_reporter(COLUMNS, _rows)
