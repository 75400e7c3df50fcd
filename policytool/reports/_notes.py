"""
What is noteworthy about a layer: a letter where there is little room, words where there is more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.model.tree import MODEL_CLASSES
from policytool.releases import dtypes
from policytool.reports._traced import is_traced_otherwise
from policytool.reports._words import loss_scale_words
from policytool.reports.layout import clean, wrap

if TYPE_CHECKING:
    from collections.abc import Iterable

    from policytool.model.model import Layer
    from policytool.reports.layout import View

NOTES: Final = {
    "D": ("deprecated", "deprecated spelling"),
    "L": ("loss scale", "the policy has a loss scale"),
    "Q": ("quantised", "quantised"),
    "O": ("opaque", "custom code or foreign graph: the policy is declared, not proven"),
    "A": ("no autocast", "inputs are not cast"),
    "S": ("shared", "stands at several places"),
    "T": ("traced otherwise", "no op of the layer computes in the policy's compute dtype"),
    "!": ("stored", "stored in another dtype than the policy's variable dtype"),
}
"""Letter to the word in the notes column and to the sentence in the legend."""

_BAD: Final = frozenset("DT!")


def letters(layer: Layer) -> str:
    """Return the letters of what is noteworthy about a layer."""
    floats = {variable.dtype for variable in layer.variables if dtypes.is_float(variable.dtype)}
    holds = {
        "D": layer.deprecated,
        "L": layer.loss_scale is not None,
        "Q": layer.quantization is not None,
        "O": layer.opaque,
        "A": layer.autocast is False and layer.class_name not in MODEL_CLASSES,
        "S": bool(layer.also_at),
        "T": is_traced_otherwise(layer),
        "!": dtypes.is_float(layer.variable_dtype)
        and layer.quantization is None
        and bool(floats - {layer.variable_dtype}),
    }
    return "".join(letter for letter, held in holds.items() if held)


def words(layer: Layer, noted: str) -> str:
    """Return the letters of a layer as words."""
    found = [NOTES[letter][0] for letter in noted]
    if "L" in noted:
        default = " (default)" if layer.loss_scale_default else ""
        found[noted.index("L")] = f"loss scale {loss_scale_words(layer.loss_scale)}{default}"
    if "S" in noted:
        found[noted.index("S")] = "also " + ", ".join(clean(path) for path in layer.also_at)
    return "; ".join(found)


def style(noted: str) -> str:
    """Return the style in which the notes of a layer are shown."""
    return "bad" if _BAD & set(noted) else "dim"


def legend(noted: Iterable[str], view: View) -> list[str]:
    """Return the lines that explain the letters; none where no layer has any."""
    found = dict.fromkeys(letter for held in noted for letter in held)
    return (
        wrap("notes: ", "; ".join(f"{letter} {NOTES[letter][1]}" for letter in found), view, "dim")
        if found
        else []
    )
