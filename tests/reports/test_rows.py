"""Rows as CSV and as Parquet: the same values, with types."""

from __future__ import annotations

import csv
import io
import json
import sys
from typing import TYPE_CHECKING, Any, Final

import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policytool.reports import View, findings, inspection
from policytool.reports.fields import CellType
from policytool.reports.layout import clean
from policytool.reports.rows import RowColumn, csv_reporter, parquet_pieces
from policytool.support.errors import MissingPackageError
from tests.contracts.reporter_contract import MODELS, inspected, rendered_by
from tests.helpers import example_audits
from tests.helpers.drawn_models import models
from tests.helpers.marks import THOROUGH

if TYPE_CHECKING:
    from policytool.commands.inspect import SelectedInspection

COLUMNS: Final = (
    RowColumn("text"),
    RowColumn("texts", CellType.TEXTS),
    RowColumn("words", CellType.WORDS),
    RowColumn("integer", CellType.INTEGER),
    RowColumn("number", CellType.NUMBER),
    RowColumn("flag", CellType.FLAG),
)


def _read(data: bytes) -> list[dict[str, Any]]:
    """Return the rows of a Parquet file."""
    rows: list[dict[str, Any]] = pyarrow.parquet.read_table(io.BytesIO(data)).to_pylist()
    return rows


def _csv_rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))


def _cell(value: Any) -> str:
    """Return a Parquet value as a CSV cell has it, without the apostrophe before a formula."""
    match value:
        case None | []:
            return ""
        case bool():
            return json.dumps(value)
        case str():
            return clean(value)
    return str(value)


@THOROUGH
@given(models())
def test_parquet_has_the_rows_of_csv(selected: SelectedInspection) -> None:
    """Each cell, whatever the names; lists and numbers are values and no texts."""
    read = _read(inspection.PARQUET_REPORTER.render(selected, View()))
    rows = _csv_rows(rendered_by(inspection.REPORTERS, "csv", selected))
    assert len(read) == len(rows) == len(selected.inspection.models[0].layers)
    for row, cells in zip(read, rows, strict=True):
        assert list(row) == list(cells)
        for name, value in row.items():
            cell = cells[name].removeprefix("'")  # which keeps -Infinity from being a formula
            if isinstance(value, float):  # NaN and infinities are words in CSV, as in JSON
                assert str(float(cell)) == str(value)
            elif name == "loss_scale.value":
                assert value is None
            elif name == "also_at":
                assert (json.loads(cells[name]) if cells[name] else []) == value
            elif isinstance(value, list):
                assert cells[name].split() == value
            else:
                assert cell == _cell(value)


def test_parquet_of_findings_has_the_rows_of_csv() -> None:
    """Suppressed findings too, if they are shown."""
    audit = example_audits.made()
    for suppressed in (True, False):
        view = View(suppressed=suppressed)
        read = _read(findings.PARQUET_REPORTER.render(audit, view))
        rows = _csv_rows(rendered_by(findings.FINDING_REPORTERS, "csv", audit, view))
        hidden = 0 if suppressed else sum(len(item.suppressed) for item in audit.audited)
        assert len(read) == len(rows)
        total = sum(len(item.findings) + len(item.suppressed) for item in audit.audited)
        assert len(rows) == total - hidden
        assert sum(row["by"] is not None for row in read) == (
            sum(len(item.suppressed) for item in audit.audited) - hidden
        )
        for row, cells in zip(read, rows, strict=True):
            assert (row["rule"], row["fingerprint"]) == (cells["rule"], cells["fingerprint"])
            arguments = cells["fix.arguments"]
            assert (json.loads(arguments) if arguments else []) == (row["fix.arguments"] or [])


def test_types_do_not_depend_on_the_values() -> None:
    """Files of several runs can be read as one table."""
    empty = pyarrow.parquet.read_schema(
        io.BytesIO(inspection.PARQUET_REPORTER.render(inspected(), View()))
    )
    full = pyarrow.parquet.read_schema(
        io.BytesIO(inspection.PARQUET_REPORTER.render(inspected(*MODELS), View()))
    )
    assert empty.equals(full)
    types = {field.name: str(field.type) for field in full}
    assert (types["path"], types["bytes"], types["opaque"]) == ("string", "int64", "bool")
    assert (types["loss_scale.value"], types["also_at"]) == ("double", "list<element: string>")


def test_same_rows_give_the_same_bytes() -> None:
    """A report can be compared with an earlier one."""
    first, second = (
        inspection.PARQUET_REPORTER.render(inspected(*MODELS), View()) for _ in range(2)
    )
    assert first == second


@pytest.mark.parametrize(
    ("index", "value", "expected"),
    [
        (0, "=1+1", "=1+1"),
        (0, "a\ud800b", "a\\ud800b"),
        (0, "\x1b[31m\n", "\x1b[31m\n"),
        (1, ["\udfff", "a b"], ["\\udfff", "a b"]),
        (2, "float16 float32", ["float16", "float32"]),
        (2, "", []),
        (3, 2**63 - 1, 2**63 - 1),
        (3, 2**63, None),
        (3, -(2**70), None),
        (4, "-Infinity", float("-inf")),
        (4, 1, 1.0),
        (5, False, False),
    ],
)
def test_odd_values_are_written_to_parquet(index: int, value: object, expected: object) -> None:
    """Values from a file never cause a failure of the report."""
    row = [None] * index + [value] + [None] * (len(COLUMNS) - index - 1)
    (read,) = _read(b"".join(parquet_pieces(COLUMNS, [row])))
    assert [*read.values()][index] == expected
    assert [one for place, one in enumerate(read.values()) if place != index] == [None] * 5


@given(st.integers(0, 9))
def test_every_row_is_in_a_group(count: int) -> None:
    """However many rows a group has."""
    rows = [[str(number), [], "", number, 0.5, True] for number in range(count)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("policytool.reports.rows._PARQUET_GROUP", 3)
        data = b"".join(parquet_pieces(COLUMNS, rows))
    assert [row["integer"] for row in _read(data)] == list(range(count))
    assert pyarrow.parquet.ParquetFile(io.BytesIO(data)).num_row_groups == -(-count // 3)


def test_missing_pyarrow_error_suggests_the_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is an optional dependency."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(MissingPackageError, match=r"run `pip install 'policytool\[fleet\]'`"):
        inspection.PARQUET_REPORTER.check()


def test_formulas_have_an_apostrophe_in_every_csv_report() -> None:
    """Whichever column they are in; lists are JSON and begin with a bracket."""
    reporter = csv_reporter(COLUMNS[:2], lambda rows, _view: rows)
    text = reporter.render([["=1", ["=1"]], ["@a", []], ["\uff0b1", None]], View())
    assert text == 'text,texts\r\n\'=1,"[""=1""]"\r\n\'@a,\r\n\'\uff0b1,\r\n'
