"""The report for people: a header that says what the file is, a row per layer, and a footer with totals and what needs attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool import dtypes
from policytool.opaque import OPAQUE_CLASSES
from policytool.reports._base import Reporter
from policytool.reports._layout import Cell, Column, View, clean, table, wrapped
from policytool.reports._words import FORMATS, attention, bytes_words, generation_words, loader_lines, loss_scale_words
from policytool.tree import MODEL_CLASSES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policytool.model import Layer, Model, Variable
    from policytool.operations.inspection import Selected

_WIDE: Final = 120
"""From this width on, notes are words; below, letters with a legend."""

_NOTES: Final = {
    "D": ("deprecated", "deprecated spelling"),
    "L": ("loss scale", "the policy has a loss scale"),
    "Q": ("quantised", "quantised"),
    "O": ("opaque", "custom code or foreign graph: the policy is declared, not proven"),
    "A": ("no autocast", "inputs are not cast"),
    "S": ("shared", "stands at several places"),
    "!": ("stored", "stored in another dtype than the policy's variable dtype"),
}
"""Letter to the word in the notes column and to the sentence in the legend."""

_LABEL: Final = 12


def render(selected: Selected, view: View) -> str:
    """Return the report as text for a terminal of the view's width."""
    blocks = [_model(model, layers, view) for model, layers in zip(selected.inspection.models, selected.layers, strict=True)]
    return "\n".join("\n".join(block) + "\n" for block in blocks)


def _model(model: Model, layers: tuple[Layer, ...], view: View) -> list[str]:
    lines = [*_header(model, view), ""]
    letters = [_letters(layer) for layer in layers]
    if layers:
        lines += _table(layers, letters, view)
    elif model.layers:
        lines.append("  no layer is selected")
    else:
        lines.append("  no layers in the file")
    lines += ["", *_footer(model, letters, view)]
    return lines


def _header(model: Model, view: View) -> list[str]:
    separator = " · " if view.unicode else " - "
    facts = [FORMATS.get(model.format, model.format), generation_words(model.generation)]
    written = [
        text
        for text in (f"Keras {model.writer.keras}" if model.writer.keras else "", f"TensorFlow {model.writer.tensorflow}" if model.writer.tensorflow else "")
        if text
    ]
    if written:
        facts.append("written by " + ", ".join(clean(text) for text in written))
    if model.writer.backend and model.writer.backend != "tensorflow":
        facts.append(f"backend {clean(model.writer.backend)}")
    lines = [view.paint(clean(model.path), "title"), *wrapped("", separator.join(facts), view)]
    for label, text in _loader_lines(model):
        lines += wrapped(f"{label:{_LABEL}}", text, view, "good" if label == "loads in" else "bad" if label.startswith("refused") else "")
    if model.optimizer:
        scale = loss_scale_words(model.optimizer.loss_scale)
        lines += wrapped(f"{'optimizer':{_LABEL}}", clean(model.optimizer.class_name) + (f", loss scale {scale}" if scale else ", no loss scaling"), view)
    for signature in model.signatures:
        lines += wrapped(f"{'signature':{_LABEL}}", clean(_signature(signature.name, signature.inputs, signature.outputs, view)), view)
    return lines


def _loader_lines(model: Model) -> list[tuple[str, str]]:
    """Return which loaders take the model, and on what condition."""
    lines = loader_lines(model.loaders)
    conditions = []
    if any(layer.class_name == "Lambda" for layer in model.layers):
        conditions.append("a Lambda holds byte code of the Python that wrote it")
    if any(layer.opaque and layer.class_name not in OPAQUE_CLASSES for layer in model.layers):
        conditions.append("with its custom classes")
    if lines and conditions and any(verdict.reason is None for verdict in model.loaders):
        lines[0] = (lines[0][0], f"{lines[0][1]} ({'; '.join(conditions)})")
    return lines


def _signature(name: str, inputs: object, outputs: object, view: View) -> str:
    arrow = "→" if view.unicode else "->"
    sides = [", ".join(f"{key}: {value}" for key, value in side.items()) for side in (inputs, outputs) if hasattr(side, "items")]
    return f"{name}({sides[0]}) {arrow} {sides[1]}"


def _table(layers: Sequence[Layer], letters: Sequence[str], view: View) -> list[str]:
    """Return the table of layers, or of what is stored where the file says no more of them."""
    if all(layer.class_name is None for layer in layers):
        return table(_STORED_COLUMNS, [row for layer in layers for row in _stored_rows(layer, view)], view)
    return table(_columns(view, noted=any(letters)), _rows(layers, letters, view), view)


_STORED_COLUMNS: Final = (
    Column(title="layer or scope", minimum=19, middle=True),
    Column(title="stored", minimum=8),
    Column(title="variables", minimum=9),
    Column(title="parameters", minimum=10),
)


def _stored_rows(layer: Layer, view: View) -> list[list[Cell]]:
    parameters = sum(variable.parameters for variable in layer.variables)
    cells = [Cell(text=clean(layer.path)), Cell(text=_stored(layer)), Cell(text=str(len(layer.variables))), Cell(text=f"{parameters:,}")]
    return [cells, *([_variable_row(variable, 4, 1) for variable in layer.variables] if view.variables else [])]


def _columns(view: View, *, noted: bool) -> list[Column]:
    columns = [
        Column(title="layer", minimum=19, middle=True),
        Column(title="class", minimum=10),
        Column(title="policy", minimum=14, middle=True),
        Column(title="compute", minimum=8),
        Column(title="variable", minimum=8),
    ]
    if view.width >= _WIDE:
        columns.append(Column(title="stored", minimum=8))
    columns.append(Column(title="source", minimum=8))
    if noted:
        columns.append(Column(title="notes", minimum=12 if view.width >= _WIDE else 5))
    return columns


def _rows(layers: Sequence[Layer], letters_of: Sequence[str], view: View) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    noted = any(letters_of)
    for layer, letters in zip(layers, letters_of, strict=True):
        row = _row(layer, letters, view)
        if noted:
            text = _words(layer, letters) if view.width >= _WIDE else letters
            row.append(Cell(text=text, style="bad" if {"D", "!"} & set(letters) else "dim"))
        rows.append(row)
        if view.variables:
            rows += [_variable_row(variable, len(row), 5 if view.width >= _WIDE else 4) for variable in layer.variables]
    return rows


def _row(layer: Layer, letters: str, view: View) -> list[Cell]:
    """Return the cells of a layer, without notes."""
    style = _style(layer)
    row = [
        Cell(text=clean(layer.path)),
        Cell(text=clean(layer.class_name or "")),
        Cell(text=layer.policy or _unknown(layer), style=style if layer.policy else "dim"),
        Cell(text=layer.compute_dtype or "?", style=style if layer.compute_dtype else "dim"),
        Cell(text=layer.variable_dtype or "?", style="" if layer.variable_dtype else "dim"),
    ]
    if view.width >= _WIDE:
        row.append(Cell(text=_stored(layer), style="bad" if "!" in letters else ""))
    row.append(Cell(text=layer.source.value, style="dim"))
    return row


def _variable_row(variable: Variable, columns: int, dtype_column: int) -> list[Cell]:
    shape = "?" if variable.shape is None else f"({', '.join(str(size) for size in variable.shape)})"
    cells = [Cell(text=f"  {clean(variable.name)} {shape}", style="dim")] + [Cell(text="")] * (columns - 1)
    cells[dtype_column] = Cell(text=variable.dtype, style="dim")
    return cells


def _unknown(layer: Layer) -> str:
    return "loader's" if layer.source.value == "loader" else "?"


def _style(layer: Layer) -> str:
    if layer.compute_dtype in {None, "float32"}:
        return ""
    return "mixed" if layer.compute_dtype != layer.variable_dtype else "half" if layer.compute_dtype in {"float16", "bfloat16"} else ""


def _stored(layer: Layer) -> str:
    return ", ".join(dict.fromkeys(variable.dtype for variable in layer.variables))


def _letters(layer: Layer) -> str:
    floats = {variable.dtype for variable in layer.variables if dtypes.is_float(variable.dtype)}
    holds = {
        "D": layer.deprecated,
        "L": layer.loss_scale is not None,
        "Q": layer.quantization is not None,
        "O": layer.opaque,
        "A": layer.autocast is False and layer.class_name not in MODEL_CLASSES,
        "S": bool(layer.also_at),
        "!": dtypes.is_float(layer.variable_dtype) and layer.quantization is None and bool(floats - {layer.variable_dtype}),
    }
    return "".join(letter for letter, held in holds.items() if held)


def _words(layer: Layer, letters: str) -> str:
    words = [_NOTES[letter][0] for letter in letters]
    if "L" in letters:
        words[letters.index("L")] = f"loss scale {loss_scale_words(layer.loss_scale)}{' (default)' if layer.loss_scale_default else ''}"
    if "S" in letters:
        words[letters.index("S")] = "also " + ", ".join(clean(path) for path in layer.also_at)
    return "; ".join(words)


def _footer(model: Model, letters_of: Sequence[str], view: View) -> list[str]:
    summary = model.summary
    counts = ", ".join(f"{count} {name}" for name, count in sorted(summary.policies.items(), key=lambda item: (-item[1], item[0])))
    without = summary.layers - sum(summary.policies.values())
    parts = [
        f"{summary.layers} layer{'s' if summary.layers != 1 else ''}: {counts or 'no policy'}{f', {without} without a policy' if counts and without else ''}"
    ]
    parts.append(f"{summary.parameters:,} parameter{'s' if summary.parameters != 1 else ''}, {bytes_words(summary.bytes)} stored")
    separator = "; " if view.width < _WIDE else " · " if view.unicode else " - "
    lines = wrapped("", separator.join(parts), view)
    letters = dict.fromkeys(letter for held in letters_of for letter in held)
    if letters and view.width < _WIDE:
        lines += wrapped("notes: ", "; ".join(f"{letter} {_NOTES[letter][1]}" for letter in letters), view, "dim")
    for sentence in attention(model):
        lines += wrapped("! ", clean(sentence), view, "half")
    return lines


REPORTER: Final = Reporter(name="table", render=render)
