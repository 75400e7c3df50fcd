"""What a live model computes and is: predictions, dtypes of layers, variables of an optimizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.random_models.weights import to_array

if TYPE_CHECKING:
    from pathlib import Path

import numpy as np


def predict(model: Any, inputs: Any) -> dict[str, Any]:
    """Return the outputs of a model as arrays, by name or number."""
    found = model(inputs, training=False)
    if isinstance(found, dict):
        return {name: to_array(one) for name, one in found.items()}
    several = found if isinstance(found, list | tuple) else [found]
    return {f"out_{number}": to_array(one) for number, one in enumerate(several)}


def layer_dtypes(model: Any) -> dict[str, list[str]]:
    """Return the compute and the variable dtype of each layer of a model by its name."""
    found: dict[str, list[str]] = {}
    for layer in _layers(model, set()):
        if type(layer).__name__ not in {"InputLayer", "Functional", "Sequential"}:
            found[layer.name] = [str(layer.compute_dtype), str(layer.variable_dtype)]
    return found


def _layers(model: Any, seen: set[int]) -> list[Any]:
    found: list[Any] = []
    for layer in model._flatten_layers(include_self=False):  # noqa: SLF001  # public in neither library
        if id(layer) not in seen:
            seen.add(id(layer))
            found.append(layer)
    return found


def optimizer_variables(model: Any) -> list[Any]:
    """Return the values of the variables of a model's optimizer; none if it has none."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        return []
    variables = optimizer.variables
    return [to_array(one) for one in (variables() if callable(variables) else variables)]


def save_arrays(path: Path, arrays: dict[str, Any]) -> None:
    """Write arrays under their names."""
    np.savez(path, allow_pickle=False, **arrays)
