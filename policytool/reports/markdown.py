"""
The report for pull requests and model cards: GitHub-flavoured Markdown with the facts, a table of
the layers, and what needs attention.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.reports import _cells, _notes
from policytool.reports._base import Reporter
from policytool.reports._frame import (
    is_stored_alone,
    optimizer_words,
    origin,
    signature_words,
    totals,
)
from policytool.reports._markdown import code, name, prose, row
from policytool.reports._traced import computes_words, contradiction, declared_dtypes, ops_words
from policytool.reports._words import attention, loader_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from policytool.commands.inspect import Selected
    from policytool.model.model import Layer, Model
    from policytool.reports.layout import View


def render(selected: Selected, view: View) -> str:
    """
    Return the report as Markdown, a section per model; it is laid out by whoever shows it, so the
    view's width counts nothing.
    """
    blocks = [
        "\n".join(_model(model, layers, view)) + "\n"
        for model, layers in zip(selected.inspection.models, selected.layers, strict=True)
    ]
    return "\n".join(blocks)


def _model(model: Model, layers: tuple[Layer, ...], view: View) -> list[str]:
    lines = [f"### {code(model.path)}", "", *(f"- {fact}" for fact in _facts(model)), ""]
    if layers:
        lines += _table(layers, view)
    else:
        lines.append("No layer is selected." if model.layers else "No layers in the file.")
    sentences = attention(model)
    if sentences:
        lines += ["", "**Attention**", "", *(f"- {prose(sentence)}" for sentence in sentences)]
    return lines


def _facts(model: Model) -> Iterator[str]:
    yield prose(" · ".join(origin(model)))
    for label, text in loader_lines(model.loaders):
        yield f"**{label}** {prose(text)}"
    if optimizer := optimizer_words(model):
        yield f"**optimizer** {prose(optimizer)}"
    by, alone = declared_dtypes(model), is_stored_alone(model.layers)
    for signature in model.signatures:
        computes = computes_words(by, signature)
        said = f"**{prose(computes)}**" if contradiction(by, signature) else prose(computes)
        ops = prose(ops_words(signature.ops)) if alone else ""
        yield f"**signature** {code(signature_words(signature, '→'))}" + "".join(
            f"; {text}" for text in (said, ops) if text
        )
    yield from (prose(total) for total in totals(model))


def _table(layers: Sequence[Layer], view: View) -> list[str]:
    """
    Return the lines of the table; a column is there where some layer has something to say in it.
    """
    rows = [cells for layer in layers for cells in _rows(layer, view)]
    every = _STORED if is_stored_alone(layers) else _DECLARED
    titles = [
        title
        for title in every
        if title not in _OPTIONAL or any(cells.get(title) for cells in rows)
    ]
    return [
        row(titles),
        row(["---"] * len(titles)),
        *(row([cells.get(title, "") for title in titles]) for cells in rows),
    ]


_DECLARED: Final = (
    "layer",
    "class",
    "policy",
    "compute",
    "variable",
    "stored",
    "traced",
    "source",
    "notes",
)
_STORED: Final = ("layer", "stored", "variables", "parameters", "traced")
_OPTIONAL: Final = frozenset({"stored", "traced", "notes"})


def _rows(layer: Layer, view: View) -> Iterator[dict[str, str]]:
    """
    Yield the cells of a layer by their column, and where they are wanted those of its variables.
    """
    letters = _notes.letters(layer)
    variables, parameters = _cells.counts(layer)
    yield {
        "layer": code(layer.path),
        "class": name(layer.class_name or ""),
        "policy": code(layer.policy) if layer.policy else prose(_cells.policy(layer)),
        "compute": prose(layer.compute_dtype or "?"),
        "variable": prose(layer.variable_dtype or "?"),
        "stored": prose(_cells.stored_dtypes(layer)),
        "traced": f"**{prose(_cells.traced_dtypes(layer))}**"
        if "T" in letters
        else prose(_cells.traced_dtypes(layer)),
        "source": layer.source.value,
        "variables": variables,
        "parameters": parameters,
        "notes": prose(_notes.words(layer, letters)),
    }
    if view.variables:
        for variable in layer.variables:
            yield {"layer": f"· {code(_cells.variable(variable))}", "stored": prose(variable.dtype)}


REPORTER: Final = Reporter(name="markdown", render=render)
