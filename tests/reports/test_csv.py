"""The report for spreadsheets and data frames."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import example, given
from msgspec.structs import replace

from policytool.reports import View
from policytool.reports.inspection.fields import REPORT, ROW_COLUMNS, every_row
from policytool.reports.layout import clean
from policytool.reports.reporter import json_reporter
from policytool.reports.rows import csv_reporter
from tests.contracts.reporter_contract import MODELS, inspected
from tests.helpers.drawn_models import models, traced_in, whole
from tests.helpers.marks import THOROUGH

if TYPE_CHECKING:
    from policytool.commands.inspect import SelectedInspection


CSV: Final = csv_reporter(ROW_COLUMNS, every_row)


def rows(selected: SelectedInspection) -> list[dict[str, str]]:
    """Return the report's rows, read as RFC 4180 says, cells by column."""
    return list(csv.DictReader(io.StringIO(CSV.render(selected, View()), newline=""), strict=True))


def value(cell: str) -> str:
    """Return the value of a cell."""
    return cell.removeprefix("'")


def flat(values: dict[str, object]) -> dict[str, str]:
    """Return a layer of the JSON report as CSV columns: the keys of its objects joined by dots."""
    found = {}
    for key, item in values.items():
        if isinstance(item, dict):
            found.update({f"{key}.{name}": text for name, text in flat(item).items()})
        elif key == "traced_dtypes" and isinstance(item, list):
            found[key] = " ".join(item)
        elif isinstance(item, bool):
            found[key] = json.dumps(item)
        elif not isinstance(item, list):
            found[key] = "" if item is None else clean(str(item))
    return found


@THOROUGH
@given(models())
@example(inspected("tf2.3/exp_mf16_fixed128.h5"))
@example(inspected("keras3.15/int8.keras"))
def test_every_csv_value_equals_that_of_the_json_report(selected: SelectedInspection) -> None:
    """Each column has the name of a JSON key, and each cell has its value."""
    layers = json.loads(json_reporter(REPORT).render(selected, View()))["models"][0]["layers"]
    read = rows(selected)
    assert len(read) == len(layers)
    for row, layer in zip(read, layers, strict=True):
        for column, text in flat(layer).items():
            assert value(row.get(column, "")) == text, column
        assert (json.loads(row["also_at"]) if row["also_at"] else []) == layer["also_at"]
        assert int(row["variables"]) == len(layer["variables"])


_FORMULAS = {"=", "+", "-", "@", "\t", "\r", "\uff1d", "\uff0b", "\uff0d", "\uff20"}


@THOROUGH
@given(models())
def test_no_cell_is_a_formula_and_none_has_a_line_break(selected: SelectedInspection) -> None:
    """No cell runs in a spreadsheet or moves the cursor of a terminal, and a row is a line."""
    text = CSV.render(selected, View())
    read = rows(selected)
    assert text.count("\n") == text.count("\r\n") == len(read) + 1
    assert all(character.isprintable() for character in text.replace("\r\n", ""))
    for row in read:
        for column, cell in row.items():
            assert cell[:1] not in _FORMULAS or (column == "loss_scale.value" and float(cell) <= 0)


@pytest.mark.parametrize(
    "name", ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\uff1d1", "'quoted"]
)
def test_formulas_get_an_apostrophe(name: str) -> None:
    """The name of a layer is data, and without the apostrophe it is unchanged."""
    (model,) = inspected(MODELS[0]).inspection.models
    changed = replace(model, layers=(replace(model.layers[0], name=name),))
    (row,) = rows(whole(changed))
    assert row["name"] == f"'{name}"


def test_counts_and_stored_dtypes_cover_the_variables_of_the_layer() -> None:
    """CSV counts the variables that JSON lists."""
    (row,) = [
        row for row in rows(inspected("tf2.3/exp_mf16_fixed128.h5")) if row["name"] == "dense_a"
    ]
    assert (row["variables"], row["parameters"], row["bytes"], row["stored_dtypes"]) == (
        "2",
        "21",
        "84",
        "float32",
    )
    assert (row["loss_scale.kind"], row["loss_scale.value"]) == ("fixed", "128.0")


def test_traced_dtypes_are_words() -> None:
    """Two dtypes are two words in one cell."""
    assert {row["traced_dtypes"] for row in rows(whole(traced_in("float16", "float32")))} == {
        "",
        "float16 float32",
    }


def test_csv_without_a_model_contains_only_the_header() -> None:
    """A report of nothing has its columns."""
    assert CSV.render(whole(), View()) == ",".join(column.name for column in ROW_COLUMNS) + "\r\n"
