"""
What stands above and below the layers in the reports for terminals: what the file is, totals, and
what needs attention.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats import TITLES
from policytool.reports import _notes
from policytool.reports._traced import computes_words, contradiction, declared_dtypes, ops_words
from policytool.reports._words import (
    attention,
    bytes_words,
    generation_words,
    loader_lines,
    loss_scale_words,
)
from policytool.reports.layout import clean, wrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policytool.model.model import Layer, Model, Signature
    from policytool.reports._traced import Declared
    from policytool.reports.layout import View

WIDE: Final = 120
"""From this width on, notes are words; below, letters with a legend."""

_LABEL: Final = 12


def is_stored_alone(layers: Sequence[Layer]) -> bool:
    """
    Return whether the file says no more of its layers than their variables and ops: weights, and
    graphs without Keras' metadata.
    """
    return all(layer.class_name is None for layer in layers)


def header(model: Model, view: View) -> list[str]:
    """
    Return the lines that say what the file is, who wrote it, who reads it, and what its signatures
    compute in.
    """
    separator = " · " if view.unicode else " - "
    lines = [
        view.paint(clean(model.path), "title"),
        *wrap("", separator.join(clean(text) for text in origin(model)), view),
    ]
    for label, text in loader_lines(model.loaders):
        lines += wrap(
            f"{label:{_LABEL}}",
            clean(text),
            view,
            "good" if label == "loads in" else "bad" if label.startswith("refused") else "",
        )
    if model.optimizer:
        lines += wrap(f"{'optimizer':{_LABEL}}", clean(optimizer_words(model) or ""), view)
    by, alone = declared_dtypes(model), is_stored_alone(model.layers)
    for signature in model.signatures:
        lines += _signature(signature, by, view, ops=alone)
    return lines


def footer(model: Model, noted: Sequence[str], view: View) -> list[str]:
    """
    Return the lines with totals, the legend of the notes where they are letters, and what needs
    attention.
    """
    separator = "; " if view.width < WIDE else " · " if view.unicode else " - "
    lines = wrap("", separator.join(totals(model)), view)
    if view.width < WIDE:
        lines += _notes.legend(noted, view)
    for sentence in attention(model):
        lines += wrap("! ", clean(sentence), view, "half")
    return lines


def origin(model: Model) -> list[str]:
    """Return the format, the generation and the writer in words."""
    written = [
        f"{name} {version}"
        for name, version in (
            ("Keras", model.writer.keras),
            ("TensorFlow", model.writer.tensorflow),
        )
        if version
    ]
    facts = [TITLES.get(model.format, model.format), generation_words(model.generation)]
    if written:
        facts.append("written by " + ", ".join(written))
    if model.writer.backend and model.writer.backend != "tensorflow":
        facts.append(f"backend {model.writer.backend}")
    return facts


def optimizer_words(model: Model) -> str | None:
    """Return the optimizer and its loss scale in words; None where the file has none."""
    if model.optimizer is None:
        return None
    scale = loss_scale_words(model.optimizer.loss_scale)
    return model.optimizer.class_name + (f", loss scale {scale}" if scale else ", no loss scaling")


def signature_words(signature: Signature, arrow: str) -> str:
    """Return a signature with its arguments, results and their dtypes."""
    sides = [
        ", ".join(f"{key}: {value}" for key, value in side.items())
        for side in (signature.inputs, signature.outputs)
    ]
    return f"{signature.name}({sides[0]}) {arrow} {sides[1]}"


def totals(model: Model) -> tuple[str, str]:
    """
    Return how many layers have which policy, and how many parameters are stored in how many bytes.
    """
    summary = model.summary
    counts = ", ".join(
        f"{count} {name}"
        for name, count in sorted(summary.policies.items(), key=lambda item: (-item[1], item[0]))
    )
    without = summary.layers - sum(summary.policies.values())
    unknown = not summary.parameters and any(
        observation.code == "pickled-weights" for observation in model.observations
    )
    stored = (
        f"{summary.parameters:,} parameter{'s' if summary.parameters != 1 else ''}, "
        f"{bytes_words(summary.bytes)} stored"
    )
    rest = f", {without} without a policy" if counts and without else ""
    return (
        (
            f"{summary.layers} layer{'s' if summary.layers != 1 else ''}: "
            f"{counts or 'no policy'}{rest}"
        ),
        "number of parameters unknown" if unknown else stored,
    )


def _signature(signature: Signature, by: Declared, view: View, *, ops: bool) -> list[str]:
    lines = wrap(
        f"{'signature':{_LABEL}}",
        clean(signature_words(signature, "→" if view.unicode else "->")),
        view,
    )
    if computes := computes_words(by, signature):
        mark, style = ("! ", "bad") if contradiction(by, signature) else ("", "dim")
        lines += wrap(" " * _LABEL + mark, computes, view, style)
    if signature.ops and ops:
        lines += wrap(" " * _LABEL, clean(ops_words(signature.ops)), view, "dim")
    return lines
