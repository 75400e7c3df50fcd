"""The words of a layer's cells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.model.model import Source
from policytool.releases.dtypes import HALVES
from policytool.reports.page import Tone

if TYPE_CHECKING:
    from policytool.model.model import Layer, Variable

GLOBAL: Final = "(global)"
"""What is not in the file, but set by the program that loads it."""


def policy(layer: Layer) -> str:
    """Return the layer's policy, or who decides if the file has none."""
    return layer.policy or (GLOBAL if layer.source is Source.GLOBAL else "?")


def source(layer: Layer) -> str:
    """
    Return why the dtypes are what the report says; nothing if the file declares them, or if the
    other columns say that it does not.
    """
    return "" if layer.source in {Source.DECLARED, Source.GLOBAL} else layer.source.value


def dtype(layer: Layer, name: str | None) -> str:
    """Return a dtype of a layer, or who decides if the file has none."""
    return name or (GLOBAL if layer.source is Source.GLOBAL else "?")


def style(layer: Layer) -> Tone:
    """Return the tone of a layer's policy: mixed and 16-bit ones stand out."""
    if layer.compute_dtype in {None, "float32"}:
        return Tone.PLAIN
    if layer.compute_dtype != layer.variable_dtype:
        return Tone.MIXED
    return Tone.HALF if layer.compute_dtype in HALVES else Tone.PLAIN


def stored_dtypes(layer: Layer) -> str:
    """Return the dtypes that the layer's variables are stored in."""
    return ", ".join(dict.fromkeys(variable.dtype for variable in layer.variables))


def traced_dtypes(layer: Layer) -> str:
    """Return the dtypes that the layer's ops compute in."""
    return ", ".join(layer.traced_dtypes)


def counts(layer: Layer) -> tuple[str, str]:
    """Return how many variables and parameters the layer has."""
    return str(
        len(layer.variables)
    ), f"{sum(variable.parameters for variable in layer.variables):,}"


def variable(stored: Variable) -> str:
    """Return a variable's name and shape."""
    shape = "?" if stored.shape is None else f"({', '.join(str(size) for size in stored.shape)})"
    return f"{stored.name} {shape}"
