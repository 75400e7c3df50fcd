"""The activation that each output of a model ends with, as far as its graph tells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts import category, kinds, passes_values
from ..feeding.reached_layers import node_inputs

if TYPE_CHECKING:
    from typing import Any

_DEEPEST = 100
"""Layers that are looked through, at most."""

_ACTIVATIONS = ("softmax", "sigmoid", "hard_sigmoid", "relu", "tanh", "exponential", "softplus")


def last_activations(model: Any, count: int) -> list[str | None]:
    """
    Return the name of the activation of each output, ``linear`` for a layer without; None for
    what no layer of a graph makes.
    """
    outputs = getattr(model, "outputs", None) or []
    if len(outputs) != count:
        return [None] * count
    return [_activation(tensor) for tensor in outputs]


def _activation(tensor: Any) -> str | None:
    for _ in range(_DEEPEST):
        layer, inputs, position = _maker(tensor)
        if layer is None:
            return None
        inner = getattr(layer, "outputs", None)
        if inner and getattr(layer, "layers", None):
            tensor = inner[position if position < len(inner) else 0]
            continue
        activation = _own(layer)
        if activation not in (None, "linear") or not _is_passing(layer) or len(inputs) != 1:
            return activation
        tensor = inputs[0]
    return None


def _is_passing(layer: Any) -> bool:
    return passes_values(layer) or "Activation" in kinds(layer)


def _own(layer: Any) -> str | None:
    """Return the activation of a layer itself."""
    layer = getattr(layer, "layer", layer)  # of a wrapper
    if category(layer) in {"foreign", "op_layer"}:
        return None
    activation = getattr(layer, "activation", None)
    if activation is not None:
        return str(getattr(activation, "__name__", type(activation).__name__)).lower()
    name = type(layer).__name__.lower()
    named = [candidate for candidate in _ACTIVATIONS if name == candidate.replace("_", "")]
    return named[0] if named else "linear"


def _maker(tensor: Any) -> tuple[Any, list[Any], int]:
    """Return the layer that made a tensor, what it took, and the place of the output."""
    history = getattr(tensor, "_keras_history", None)
    if history is None:
        return None, [], 0
    layer = getattr(history, "operation", None) or getattr(history, "layer", None)
    nodes = getattr(layer, "_inbound_nodes", None) or []
    if layer is None or history.node_index >= len(nodes):
        return None, [], 0
    taken = node_inputs(nodes[history.node_index])
    taken = taken if isinstance(taken, (list, tuple)) else [taken]
    return layer, list(taken), history.tensor_index
