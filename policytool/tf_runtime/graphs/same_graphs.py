"""
Signatures that compute the same: Keras 3 exports each model as ``serve`` and ``serving_default``.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from . import entries, mixed_precision

if TYPE_CHECKING:
    from typing import Any, Mapping, Sequence

PREFERRED = "serving_default"
"""The signature that callers use unless they name another."""


def groups(signatures: Mapping[str, Any], names: Sequence[str]) -> list[list[str]]:
    """
    Return the names in groups of signatures with the same graph, inputs, variables and outputs; the
    first of each stands for its group.
    """
    names_by_key: dict[Any, list[str]] = {}
    for name in sorted(names, key=lambda name: (name != PREFERRED, name)):
        key = _key(signatures[name]) if len(names) > 1 else None
        names_by_key.setdefault(name if key is None else key, []).append(name)
    return list(names_by_key.values())


def _key(signature: Any) -> Any:
    """
    Return a key that is equal for signatures that compute the same; None for a graph with loops of
    TF 1, whose ops have no order.
    """
    graph_def = mixed_precision.inlined(signature, loops=False)
    if mixed_precision.has_old_loops(graph_def):
        return None
    mixed_precision.sort(graph_def.node)
    captured = signature.captured_inputs
    placeholders = signature.inputs[len(signature.inputs) - len(captured) :]
    digests = {
        tensor.op.name: _digest("input", name, tensor.dtype.name, str(tensor.shape))
        for name, tensor in entries.inputs(signature)
    }
    digests.update(
        {
            tensor.op.name: _digest("captured", str(id(captured_tensor)))
            for tensor, captured_tensor in zip(placeholders, captured)
        }
    )
    for node in graph_def.node:
        if node.name not in digests:
            digests[node.name] = _digest(
                node.op,
                *(_source(digests, source) for source in node.input),
                *(
                    "{}={}".format(key, value.SerializeToString(deterministic=True).hex())
                    for key, value in sorted(node.attr.items())
                    if not key.startswith("_")
                ),
            )
    output_digests = (
        (name, "{}:{}".format(digests[tensor.op.name], tensor.value_index))
        for name, tensor in entries.outputs(signature)
    )
    return tuple(sorted(output_digests))


def _source(digests: Mapping[str, str], source: str) -> str:
    """Return what stands for an input of a node, with its number."""
    name, _, number = source.lstrip("^").partition(":")
    return "{}{}:{}".format("^" * source.startswith("^"), digests[name], number or 0)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
