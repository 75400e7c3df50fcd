"""
The rows of ``inspect`` for spreadsheets and data frames: one for each layer, with the same columns
whatever the models hold.

A column has the name that its value has in the JSON report, keys of nested objects joined by a dot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from policytool.reports.inspection import json_report
from policytool.reports.parquet import parquet_reporter
from policytool.reports.rows import (
    OF_MODEL,
    CellType,
    RowColumn,
    csv_reporter,
    value_at,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from policytool.commands.inspect import Selected
    from policytool.model.model import Layer, Model
    from policytool.reports.layout import View

_OF_LAYER: Final = (
    RowColumn("path"),
    RowColumn("also_at", CellType.TEXTS),
    *map(RowColumn, ("name", "class_name", "registered_name")),
    *map(RowColumn, ("policy", "compute_dtype", "variable_dtype", "source")),
    RowColumn("loss_scale.kind"),
    RowColumn("loss_scale.value", CellType.NUMBER),
    RowColumn("loss_scale.initial", CellType.NUMBER),
    RowColumn("loss_scale.growth_steps", CellType.INTEGER),
    RowColumn("loss_scale.multiplier", CellType.NUMBER),
    RowColumn("loss_scale.default", CellType.FLAG),
    RowColumn("quantization.mode"),
    RowColumn("quantization.source"),
    RowColumn("quantization.amax_history_length", CellType.INTEGER),
    RowColumn("deprecated", CellType.FLAG),
    RowColumn("autocast", CellType.FLAG),
    RowColumn("opaque", CellType.FLAG),
    RowColumn("traced_dtypes", CellType.WORDS),
)
_COUNTED: Final = (
    RowColumn("variables", CellType.INTEGER),
    RowColumn("parameters", CellType.INTEGER),
    RowColumn("bytes", CellType.INTEGER),
    RowColumn("stored_dtypes", CellType.WORDS),
)
"""Of a layer's variables, which have no row of their own."""

_TYPED: Final = (
    *OF_MODEL,
    *_OF_LAYER,
    *_COUNTED,
    RowColumn("address.part"),
    RowColumn("address.pointer"),
)
COLUMNS: Final = tuple(column.name for column in _TYPED)
"""The header; later releases add columns at the end."""


def rows(model: Model, layers: Iterable[Layer]) -> Iterator[list[Any]]:
    """Yield the values of each layer, in the order of ``COLUMNS``."""
    of_model = (model.path, model.format, model.generation)
    yield from ([*of_model, *_values(layer)] for layer in layers)


def _every_row(selected: Selected, _view: View) -> Iterator[list[Any]]:
    for model, layers in selected.shown():
        yield from rows(model, layers)


def _values(layer: Layer) -> list[Any]:
    values = json_report.layer_values(layer)
    variables = layer.variables
    counted = [
        len(variables),
        sum(variable.parameters for variable in variables),
        sum(variable.bytes for variable in variables),
    ]
    stored = " ".join(dict.fromkeys(variable.dtype for variable in variables))
    address = [value_at(values, "address.part"), value_at(values, "address.pointer")]
    values["traced_dtypes"] = " ".join(values["traced_dtypes"])
    return [*(value_at(values, column.name) for column in _OF_LAYER), *counted, stored, *address]


REPORTER: Final = csv_reporter(_TYPED, _every_row)
PARQUET_REPORTER: Final = parquet_reporter(_TYPED, _every_row)
