"""
The report for people: a header that says what the file is, a row per layer, and a footer with
totals and what needs attention.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.reports import _cells, _notes
from policytool.reports._base import Reporter
from policytool.reports._frame import WIDE, footer, header, is_stored_alone
from policytool.reports.layout import Cell, Column, View, clean, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policytool.commands.inspect import Selected
    from policytool.model.model import Layer, Model, Variable


def render(selected: Selected, view: View) -> str:
    """Return the report as text for a terminal of the view's width."""
    blocks = [
        _model(model, layers, view)
        for model, layers in zip(selected.inspection.models, selected.layers, strict=True)
    ]
    return "\n".join("\n".join(block) + "\n" for block in blocks)


def _model(model: Model, layers: tuple[Layer, ...], view: View) -> list[str]:
    lines = [*header(model, view), ""]
    noted = [_notes.letters(layer) for layer in layers]
    if layers:
        lines += _table(layers, noted, view)
    elif model.layers:
        lines.append("  no layer is selected")
    else:
        lines.append("  no layers in the file")
    return [*lines, "", *footer(model, noted, view)]


def _table(layers: Sequence[Layer], noted: Sequence[str], view: View) -> list[str]:
    """
    Return the table of layers, or of what is stored and traced where the file says no more of them.
    """
    traced = any(layer.traced_dtypes for layer in layers)
    if is_stored_alone(layers):
        columns = _STORED_COLUMNS + ((_TRACED,) if traced else ())
        return table(
            columns,
            [row for layer in layers for row in _stored_rows(layer, view, traced=traced)],
            view,
        )
    columns = _columns(view, noted=any(noted), traced=traced)
    return table(columns, _rows(layers, noted, columns, view), view)


_TRACED: Final = Column(title="traced", minimum=8)
_STORED_COLUMNS: Final = (
    Column(title="layer or scope", minimum=19, middle=True),
    Column(title="stored", minimum=8),
    Column(title="variables", minimum=9),
    Column(title="parameters", minimum=10),
)


def _stored_rows(layer: Layer, view: View, *, traced: bool) -> list[list[Cell]]:
    cells = [
        Cell(text=clean(layer.path)),
        Cell(text=_cells.stored_dtypes(layer)),
        *(Cell(text=count) for count in _cells.counts(layer)),
    ]
    if traced:
        cells.append(Cell(text=_cells.traced_dtypes(layer)))
    return [
        cells,
        *(
            [_variable_row(variable, len(cells), 1) for variable in layer.variables]
            if view.variables
            else []
        ),
    ]


def _columns(view: View, *, noted: bool, traced: bool) -> tuple[Column, ...]:
    """
    Return the columns; where there is little room, what is traced takes the place of the source,
    which a file with a graph mostly declares.
    """
    wide = view.width >= WIDE
    columns = [
        Column(title="layer", minimum=19, middle=True),
        Column(title="class", minimum=10),
        Column(title="policy", minimum=14, middle=True),
        Column(title="compute", minimum=8),
        Column(title="variable", minimum=8),
    ]
    if wide:
        columns.append(Column(title="stored", minimum=8))
    if traced:
        columns.append(_TRACED)
    if wide or not traced:
        columns.append(Column(title="source", minimum=8))
    if noted:
        columns.append(Column(title="notes", minimum=12 if wide else 5))
    return tuple(columns)


def _rows(
    layers: Sequence[Layer], noted: Sequence[str], columns: Sequence[Column], view: View
) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    titles = [column.title for column in columns]
    dtype_column = titles.index("stored" if "stored" in titles else "variable")
    for layer, letters in zip(layers, noted, strict=True):
        cells = _row(layer, letters, view)
        rows.append([cells[title] for title in titles])
        if view.variables:
            rows += [
                _variable_row(variable, len(titles), dtype_column) for variable in layer.variables
            ]
    return rows


def _row(layer: Layer, letters: str, view: View) -> dict[str, Cell]:
    """Return the cells of a layer by their column's title."""
    style = _cells.style(layer)
    return {
        "layer": Cell(text=clean(layer.path)),
        "class": Cell(text=clean(layer.class_name or "")),
        "policy": Cell(text=_cells.policy(layer), style=style if layer.policy else "dim"),
        "compute": Cell(
            text=layer.compute_dtype or "?", style=style if layer.compute_dtype else "dim"
        ),
        "variable": Cell(
            text=layer.variable_dtype or "?", style="" if layer.variable_dtype else "dim"
        ),
        "stored": Cell(text=_cells.stored_dtypes(layer), style="bad" if "!" in letters else ""),
        "traced": Cell(text=_cells.traced_dtypes(layer), style="bad" if "T" in letters else ""),
        "source": Cell(text=layer.source.value, style="dim"),
        "notes": Cell(
            text=_notes.words(layer, letters) if view.width >= WIDE else letters,
            style=_notes.style(letters),
        ),
    }


def _variable_row(variable: Variable, columns: int, dtype_column: int) -> list[Cell]:
    cells = [Cell(text=f"  {_cells.variable(variable)}", style="dim")] + [Cell(text="")] * (
        columns - 1
    )
    cells[dtype_column] = Cell(text=variable.dtype, style="dim")
    return cells


REPORTER: Final = Reporter(name="table", render=render)
