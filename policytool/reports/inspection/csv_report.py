"""
The report for spreadsheets and data frames: RFC 4180, a row per layer, the same columns whatever
the models hold.

A column has the name that its value has in the JSON report, keys of nested objects joined by a dot.
What a spreadsheet would take for a formula gets an apostrophe before it (CWE-1236), and so does
what begins with an apostrophe: whoever takes one away from a cell has the value again.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, Final

from policytool.reports.inspection import json_report
from policytool.reports.layout import clean
from policytool.reports.reporter import Reporter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from policytool.commands.inspect import Selected
    from policytool.model.model import Layer, Model
    from policytool.reports.layout import View

_OF_MODEL: Final = ("model.path", "model.format", "model.written_by")
_OF_LAYER: Final = (
    *("path", "also_at", "name", "class_name", "registered_name"),
    *("policy", "compute_dtype", "variable_dtype", "source"),
    *(
        "loss_scale.kind",
        "loss_scale.value",
        "loss_scale.initial",
        "loss_scale.growth_steps",
        "loss_scale.multiplier",
        "loss_scale.default",
    ),
    *("quantization.mode", "quantization.source", "quantization.amax_history_length"),
    *("deprecated", "autocast", "opaque", "traced_dtypes"),
)
_COUNTED: Final = ("variables", "parameters", "bytes", "stored_dtypes")
"""Of a layer's variables, which have no row of their own."""

COLUMNS: Final = (*_OF_MODEL, *_OF_LAYER, *_COUNTED, "address.part", "address.pointer")
"""The header; later releases add columns at the end."""

_FORMULAS: Final = frozenset("=+-@\uff1d\uff0b\uff0d\uff20'")
"""What begins a formula, in full width too; and the apostrophe itself."""


def render(selected: Selected, _view: View) -> str:
    """Return the report as CSV; without a layer it is the header alone."""
    text = io.StringIO(newline="")
    import csv  # 3 ms at start

    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for model, layers in zip(selected.inspection.models, selected.layers, strict=True):
        writer.writerows([_cell(value) for value in row] for row in rows(model, layers))
    return text.getvalue()


def rows(model: Model, layers: Iterable[Layer]) -> Iterator[list[Any]]:
    """Yield the values of each layer, in the order of ``COLUMNS``."""
    of_model = (model.path, model.format, model.generation)
    yield from ([*of_model, *_values(layer)] for layer in layers)


def _values(layer: Layer) -> list[Any]:
    values = json_report.layer_values(layer)
    variables = layer.variables
    counted = [
        len(variables),
        sum(variable.parameters for variable in variables),
        sum(variable.bytes for variable in variables),
    ]
    stored = " ".join(dict.fromkeys(variable.dtype for variable in variables))
    address = [_at(values, "address.part"), _at(values, "address.pointer")]
    return [*(_at(values, column) for column in _OF_LAYER), *counted, stored, *address]


def _at(values: Mapping[str, Any], column: str) -> Any:  # JSON  # noqa: ANN401  # JSON
    """
    Return the value that a column's name leads to; None where an object on the way is missing.
    """
    found: Any = values
    for key in column.split("."):
        found = None if found is None else found.get(key)
    return " ".join(found) if column == "traced_dtypes" else found


def _cell(value: object) -> str:
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


REPORTER: Final = Reporter(name="csv", render=render)
