"""What a live model computes and is: predictions, dtypes of layers, variables of an optimizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tests.random_models.weights import to_array

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


_WITHOUT_DTYPE: Final = frozenset(
    {
        *("InputLayer", "Functional", "Sequential", "StringLookup", "IntegerLookup", "Hashing"),
        *("TextVectorization", "HashedCrossing", "Discretization", "CategoryEncoding"),
    }
)
"""Layers whose policy says nothing of what they compute in."""


def predict(model: Any, inputs: Any) -> dict[str, Any]:
    """Return the outputs of a model as arrays, by name or number; states are reset before it."""
    for layer in model._flatten_layers(include_self=False):  # noqa: SLF001  # public in neither library
        if getattr(layer, "stateful", False) and hasattr(layer, "cell"):
            (layer.reset_state if hasattr(layer, "reset_state") else layer.reset_states)()
    result = model(inputs, training=False)
    if isinstance(result, dict):
        return {name: to_array(one) for name, one in result.items()}
    several = result if isinstance(result, list | tuple) else [result]
    return {f"out_{number}": to_array(one) for number, one in enumerate(several)}


def given_inputs(structure: str, names: list[str | None], arrays: list[Any]) -> Any:
    """Return arrays as a model takes them."""
    tensors = [_tensor(array) for array in arrays]
    if structure == "dict":
        return dict(zip(names, tensors, strict=True))
    return tensors[0] if len(tensors) == 1 else tensors


def _tensor(array: Any) -> Any:
    import tensorflow as tf

    return tf.constant(array)


def layer_dtypes(model: Any) -> dict[str, list[str]]:
    """Return the compute and the variable dtype of each layer of a model by its path."""
    return {
        path: [str(layer.compute_dtype), str(layer.variable_dtype)]
        for path, layer in _layers(model, "")
        if type(layer).__name__ not in _WITHOUT_DTYPE
    }


def _layers(model: Any, path: str) -> Iterator[tuple[str, Any]]:
    """
    Yield the layers of a model with their paths. Layers that other layers make count by their
    classes: the names that libraries make up for them may be those of others.
    """
    for layer in model.layers:
        below = f"{path}{layer.name}/"
        yield below, layer
        if hasattr(layer, "layers"):
            yield from _layers(layer, below)
            continue
        for number, part in enumerate(layer._flatten_layers(include_self=False)):  # noqa: SLF001  # public in neither library
            yield f"{below}{type(part).__name__}/{number}", part


def optimizer_variables(model: Any) -> list[Any]:
    """Return the values of the variables of a model's optimizer; none if it has none."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        return []
    variables = optimizer.variables
    return [to_array(item) for item in (variables() if callable(variables) else variables)]


def save_arrays(path: Path, arrays: dict[str, Any]) -> None:
    """Write arrays under their names."""
    np.savez(path, allow_pickle=False, **arrays)
