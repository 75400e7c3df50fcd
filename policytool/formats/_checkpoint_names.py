"""
Which tensors of a checkpoint are a model's weights, and what their layers call them.

In a checkpoint of TF 2 the object graph says so: what can be reached without passing through an optimizer is a weight, whatever its key (Keras 3's keys of
kernels lead through the optimizer). One of TF 1 has names alone; there the variables that an optimizer keeps are named after those they are kept for.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policytool.checkpoints import OBJECT_GRAPH_KEY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from policytool.checkpoints import Attribute, Entry, ObjectGraph, Trackable

_ROOT: Final = 0
_ATTRIBUTES: Final = ".ATTRIBUTES"
_VALUE: Final = "VARIABLE_VALUE"
_SLOT: Final = ".OPTIMIZER_SLOT"
_CONFIG: Final = "OBJECT_CONFIG_JSON"
"""An attribute of Keras' objects in TF 1.13 to 2.1, which is no variable."""

_NOT_LAYERS: Final = frozenset({"optimizer", "save_counter", "keras_api"})
"""Edges from a model, or a ``tf.train.Checkpoint``, to what is no layer; ``keras_api`` leads to metrics."""

_OPTIMIZERS: Final = ({"iter", "learning_rate"}, {"_iterations", "_learning_rate"}, {"_iterations", "_variables"}, {"base_optimizer"}, {"inner_optimizer"})
"""What optimizers hold: up to TF 2.10, from 2.11 on, Keras 3; then those that scale losses."""

_COUNTERS: Final = frozenset({"global_step", "beta1_power", "beta2_power"})
"""Variables that TF 1's training keeps for itself (``tf.train.get_global_step``, ``AdamOptimizer``)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Named:
    """The tensors of a checkpoint, told apart."""

    weights: Mapping[str, tuple[str, ...]]
    """By key, the names from the layer down, in the order of the model as far as it is known."""

    rest: tuple[str, ...]
    """Keys of what an optimizer, metrics or training keep."""


def named(entries: Mapping[str, Entry], graph: ObjectGraph | None) -> Named:
    """Return what the entries of a checkpoint are; ``graph`` is None for TF 1, and where it cannot be read."""
    if graph is not None and graph.nodes:
        weights = _of_objects(entries, graph)
        told = {attribute.key for node in graph.nodes for attribute in node.attributes}
        weights.update((key, tuple(key.split("/"))) for key in entries if key not in told and key != OBJECT_GRAPH_KEY)
    elif OBJECT_GRAPH_KEY in entries:
        weights = dict(_of_keys(entries))
    else:
        weights = dict(_of_scopes(entries))
    return Named(weights=weights, rest=tuple(key for key in entries if key not in weights and key != OBJECT_GRAPH_KEY and not key.endswith(_CONFIG)))


def _of_objects(entries: Mapping[str, Entry], graph: ObjectGraph) -> dict[str, tuple[str, ...]]:
    """Return the weights that the object graph leads to, by variables' own names where they tell a layer and no other variable has them."""
    found: dict[str, tuple[tuple[str, ...], Attribute]] = {}
    for path, node in _reached(graph):
        found.update((one.key, (path, one)) for one in node.attributes if one.key in entries and one.name != _CONFIG)
    uses = Counter(attribute.full_name for _, attribute in found.values())
    return {key: _own_names(path, attribute, unique=uses[attribute.full_name] == 1) for key, (path, attribute) in found.items()}


def _own_names(path: tuple[str, ...], attribute: Attribute, *, unique: bool) -> tuple[str, ...]:
    if attribute.name != _VALUE:
        return (*path, attribute.name)  # a lookup table's keys and the like
    own = tuple(attribute.full_name.split("/"))
    return own if len(own) > 1 and unique else path or (attribute.name,)


def _reached(graph: ObjectGraph) -> Iterator[tuple[tuple[str, ...], Trackable]]:
    """Yield each object that can be reached from the root without passing through what is no layer, and its shortest path."""
    paths: dict[int, tuple[str, ...]] = {_ROOT: ()}
    pending = deque(paths)
    while pending:
        number = pending.popleft()
        node = graph.nodes[number]
        yield paths[number], node
        for name, child in node.children:
            if child not in paths and name not in _NOT_LAYERS and not _is_optimizer(graph.nodes[child]):
                paths[child] = (*paths[number], name)
                pending.append(child)


def _is_optimizer(node: Trackable) -> bool:
    names = {name for name, _ in node.children}
    return bool(node.slots) or any(names >= held for held in _OPTIMIZERS)


def _of_keys(keys: Iterable[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the weights by their keys, which are paths through objects, where the object graph itself cannot be read."""
    for key in keys:
        *path, _ = parts = key.partition(f"/{_ATTRIBUTES}/")[0].split("/")
        if _SLOT not in parts and not _NOT_LAYERS & {*path[:-1], parts[0]} and key != OBJECT_GRAPH_KEY and not key.endswith(_CONFIG):
            yield key, tuple(parts)


def _of_scopes(entries: Mapping[str, Entry]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the weights of TF 1, whose keys are names; what an optimizer keeps for ``dense/kernel`` is ``dense/kernel/Adam``, of the same shape."""
    for key, entry in entries.items():
        kept_for = entries.get(key.rpartition("/")[0])
        if (kept_for is None or kept_for.shape != entry.shape) and key.rpartition("/")[2] not in _COUNTERS:
            yield key, tuple(key.split("/"))
