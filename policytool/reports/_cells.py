"""The cells that a layer has in a table, a tree and Markdown alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policytool.reports.layout import clean

if TYPE_CHECKING:
    from policytool.model.model import Layer, Variable


def policy(layer: Layer) -> str:
    """Return the layer's policy, or who decides where the file has none."""
    return layer.policy or ("loader's" if layer.source.value == "loader" else "?")


def style(layer: Layer) -> str:
    """Return the style of a layer's policy: mixed and 16-bit ones stand out."""
    if layer.compute_dtype in {None, "float32"}:
        return ""
    return (
        "mixed"
        if layer.compute_dtype != layer.variable_dtype
        else "half"
        if layer.compute_dtype in {"float16", "bfloat16"}
        else ""
    )


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
    return f"{clean(stored.name)} {shape}"
