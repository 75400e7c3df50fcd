"""
Layers that draw numbers although nothing is trained, such as a Dropout that is always on: each of
two models has numbers of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from .call_pairs import Pair

_DRAWING = ("Multinomial", "Random", "TruncatedNormal")
"""Parts of the types of ops that draw numbers."""


def draws(kind: str) -> bool:
    """Return whether ops of a type draw numbers."""
    return any(word in kind for word in _DRAWING)


def layers(pair: Pair) -> list[str]:
    """
    Return the paths of the layers that draw random numbers on which the compared outputs depend; a
    GRU of Keras 3 also draws masks that it does not use.
    """
    needed = _needed(pair.graph)
    drawing = (
        operation.name
        for operation in pair.operations()
        if operation in needed and draws(operation.type)
    )
    return sorted({path for path in map(pair.layer_of, drawing) if path is not None})


def _needed(graph: Any) -> set[Any]:
    """Return the operations that a graph's outputs depend on."""
    operations: set[Any] = set()
    pending = [tensor.op for tensor in graph.outputs]
    while pending:
        operation = pending.pop()
        if operation not in operations:
            operations.add(operation)
            pending += [tensor.op for tensor in operation.inputs]
    return operations
