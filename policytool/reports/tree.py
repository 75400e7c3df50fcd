"""
The report that shows how layers lie in each other: names below the names that hold them, with
policy and dtypes beside.

rich's Tree lines nothing up beside the names, and takes three times as long for EfficientNetV2-L's
1,031 layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policytool.reports import _cells, _notes
from policytool.reports._base import Reporter
from policytool.reports._frame import WIDE, footer, header, is_stored_alone
from policytool.reports.layout import Cell, Column, View, clean, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from policytool.commands.inspect import Selected
    from policytool.model.model import Layer, Model

_GUIDES: Final = {True: ("├─ ", "└─ ", "│  ", "   "), False: ("|- ", "`- ", "|  ", "   ")}
"""
Before a name that has siblings after it, before the last one, and below each of them; with box
characters and without.
"""

_BOTH: Final = "compute/variable"


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
        columns = _columns(layers, noted, view)
        lines += table(columns, list(_rows(layers, noted, columns, view)), view)
    else:
        lines.append("  no layer is selected" if model.layers else "  no layers in the file")
    return [*lines, "", *footer(model, noted, view)]


def _columns(layers: Sequence[Layer], noted: Sequence[str], view: View) -> list[Column]:
    """Return the columns that say something of these layers."""
    tree = Column(title="layer", minimum=12, middle=True)
    traced = [Column(title="traced", minimum=8)] * any(layer.traced_dtypes for layer in layers)
    if is_stored_alone(layers):
        return [
            tree,
            Column(title="stored", minimum=8),
            Column(title="variables", minimum=9),
            Column(title="parameters", minimum=10),
            *traced,
        ]
    both = [Column(title=_BOTH, minimum=1)] * any(_both(layer) for layer in layers)
    notes = [Column(title="notes", minimum=12 if view.width >= WIDE else 5)] * any(noted)
    return [
        tree,
        Column(title="class", minimum=6),
        Column(title="policy", minimum=14, middle=True),
        *both,
        *traced,
        *notes,
    ]


def _rows(
    layers: Sequence[Layer], noted: Sequence[str], columns: Sequence[Column], view: View
) -> Iterator[list[Cell]]:
    for layer, letters, branch in zip(
        layers, noted, branches([layer.path for layer in layers], view), strict=True
    ):
        style = _cells.style(layer)
        variables, parameters = _cells.counts(layer)
        cells = {
            "layer": Cell(text=branch.name, before=branch.before),
            "class": Cell(text=clean(layer.class_name or ""), style="dim"),
            "policy": Cell(text=_cells.policy(layer), style=style if layer.policy else "dim"),
            _BOTH: Cell(text=_both(layer), style=style),
            "stored": Cell(text=_cells.stored_dtypes(layer)),
            "variables": Cell(text=variables),
            "parameters": Cell(text=parameters),
            "traced": Cell(text=_cells.traced_dtypes(layer), style="bad" if "T" in letters else ""),
            "notes": Cell(
                text=_notes.words(layer, letters) if view.width >= WIDE else letters,
                style=_notes.style(letters),
            ),
        }
        yield [cells[column.title] for column in columns]
        if view.variables:
            for variable in layer.variables:
                text = f"{_cells.variable(variable)} {variable.dtype}"
                yield [
                    Cell(text=text, style="dim", before=branch.below),
                    *(Cell(text="") for _ in columns[1:]),
                ]


def _both(layer: Layer) -> str:
    """
    Return compute and variable dtype where they differ; elsewhere the policy's name says both.
    """
    return (
        f"{layer.compute_dtype or '?'}/{layer.variable_dtype or '?'}"
        if layer.compute_dtype != layer.variable_dtype
        else ""
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Branch:
    """
    Where a layer hangs: its name, the guides before it, and those before lines of its own below it.
    """

    before: str
    name: str
    below: str


def branches(paths: Sequence[str], view: View) -> list[Branch]:
    """
    Return where each path hangs: below the last one that it continues; where a selection left that
    out, its name is longer.
    """
    names, depths = _nest(paths)
    tee, corner, bar, gap = _GUIDES[view.unicode]
    has_next: list[bool] = []
    following = set[int]()
    for depth in reversed(depths):
        has_next.append(depth in following)
        following = {level for level in following if level <= depth} | {depth}
    found = []
    guides: list[str] = []
    for position, (name, depth, more) in enumerate(
        zip(names, depths, reversed(has_next), strict=True)
    ):
        del guides[max(0, depth - 1) :]
        before = "".join(guides)
        if depth:
            guides.append(bar if more else gap)
        within = bar if position + 1 < len(depths) and depths[position + 1] > depth else gap
        found.append(
            Branch(
                before=before + (tee if more else corner) * bool(depth),
                name=name,
                below="".join(guides) + within,
            )
        )
    return found


def _nest(paths: Sequence[str]) -> tuple[list[str], list[int]]:
    """Return each path's name below the path that holds it, and how many do."""
    names, depths = [], []
    open_paths: list[str] = []
    for path in paths:
        while open_paths and not path.startswith(f"{open_paths[-1]}/"):
            open_paths.pop()
        names.append(clean(path[len(open_paths[-1]) + 1 :] if open_paths else path))
        depths.append(len(open_paths))
        open_paths.append(path)
    return names, depths


REPORTER: Final = Reporter(name="tree", render=render)
