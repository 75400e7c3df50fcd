"""
Which call of a layer takes what of which other call, in a functional model's config, and what no
loader can build of it.

Loaders make the calls as the config lists them, each layer's in their order, and come back to a
call whose tensors are not there yet. Where calls wait for each other, for themselves, or for one
that the config does not have, Keras 2 comes back for ever (``reconstruct_from_config`` in
keras/engine/functional.py), as Keras 3 does up to 3.14 with nodes that are spelled as Keras 2's;
``fixtures/attacks.json`` has what was measured.

Keras 2 counts the calls of a nested model from 1, because the model was called once when it was
made. Keras 3 counts them from 0 in the HDF5 of Keras 2: what another layer gets from the last call
is a call that it does not have, and of an output it takes one off, if the nested model is
functional (``functional_from_config`` in keras/src/models/functional.py, from 3.3 on). In a
Sequential, a functional model gives a list of one tensor in Keras 3.0 and 3.15.
"""

from __future__ import annotations

from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Final

from policytool.model.calls import CONSTANT, layer_name
from policytool.releases import keras_objects
from policytool.releases.layer_classes import layer_facts
from policytool.support.errors import short

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from policytool.model.flow import Node
    from policytool.support.text.jsontext import Json

SEQUENTIAL: Final = "Sequential"
MODELS: Final = frozenset({"Functional", "Model", SEQUENTIAL})

_REFERENCE: Final = 3
"""The least items of a reference to a tensor: layer, call, output."""

_VALUE: Final = 2
"""Where a reference to a number has the number."""

_KEEPING_DTYPE: Final = frozenset(
    {
        "__operators__.add",
        "math.add",
        "math.divide",
        "math.maximum",
        "math.minimum",
        "math.multiply",
        "math.pow",
        "math.subtract",
        "math.truediv",
        "nn.relu",
        "reshape",
        "transpose",
    }
)
"""Functions whose result has the dtype of their tensors."""

_LISTED: Final = 3
"""Layers that a message names."""


def tensors(value: Json) -> Iterator[Node]:
    """
    Yield the calls whose tensors a value refers to, in its order: ``["layer", call, output, ...]``,
    or ``keras_history`` of Keras 3.
    """
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            history = item.get("keras_history")
            if isinstance(history, list) and history and isinstance(history[0], str):
                yield (
                    history[0],
                    history[1] if len(history) > 1 and isinstance(history[1], int) else 0,
                )
            else:
                pending += reversed(item.values())
        elif isinstance(item, list):
            if (
                len(item) >= _REFERENCE
                and isinstance(item[0], str)
                and isinstance(item[1], int)
                and isinstance(item[2], int)
            ):
                yield item[0], item[1]
                pending += reversed(item[_REFERENCE:])
            else:
                pending += reversed(item)


def takes_tensor_list(entry: Mapping[str, Json]) -> bool:
    """Return whether some call of a layer takes a list of tensors, as configs of Keras 2 say it."""
    nodes = entry.get("inbound_nodes")
    return isinstance(nodes, list) and any(
        isinstance(node, list) and len(node) > 1 and isinstance(node[0], list) for node in nodes
    )


def uncallable_layers(config: Mapping[str, Json], *, from_zero: bool = False) -> tuple[str, ...]:
    """
    Return the layers of a functional model's config that have a call which cannot be made, in the
    order of the config; nothing for a model of any release.

    A nested model's calls count from 0 or from 1, and a layer that a nested model has too counts
    its call there in Keras 3.0 (:mod:`policytool.migration.convert.decoding`): of these, any call
    stands for the first.

    :param from_zero: whether all calls count from 0, as loaders of Keras 3 read the HDF5 of Keras 2
    """
    entries = _entries(config)
    calls = {
        layer: nodes if isinstance(nodes := entry.get("inbound_nodes"), list) else []
        for layer, entry in entries.items()
    }
    loose = set() if from_zero else _layers_with_other_counts(entries)
    if _is_in_call_order(calls, loose):
        return ()
    order: TopologicalSorter[Node] = TopologicalSorter()
    for layer, nodes in calls.items():
        for number, node in enumerate(nodes):
            taken = list(_sources(node, calls, loose))
            order.add((layer, number), *([(layer, number - 1)] if number else []), *taken)
            for other, call in taken:
                if call >= max(len(calls[other]), 1):
                    order.add(
                        (other, call), (other, call)
                    )  # there is no such call, and there will be none
    callable_nodes = set(_callable_nodes(order))
    return tuple(
        layer
        for layer, nodes in calls.items()
        if any((layer, number) not in callable_nodes for number in range(len(nodes)))
    )


def has_later_calls(config: Mapping[str, Json]) -> bool:
    """
    Return whether a call takes the result of a layer that is listed later, as calls of a shared
    layer may. Keras 3 comes back to such a call from 3.12 on at the latest, and fails up to 3.6
    (``convert_revived_tensor`` in keras/src/models/functional.py), except for calls that are
    stored as in Keras 2.
    """
    entries = _entries(config)
    calls: dict[str, list[Json]] = {
        layer: [node for node in nodes if isinstance(node, dict)]
        for layer, entry in entries.items()
        if isinstance(nodes := entry.get("inbound_nodes"), list)
    }
    return not _is_in_call_order(calls, _layers_with_other_counts(entries))


def describe_stuck(layers: Sequence[str]) -> str:
    """
    Return what is wrong with a model that has these stuck layers, as a part of a sentence: the
    first of them, and how many more there are.
    """
    more = f" and {len(layers) - _LISTED} more" if len(layers) > _LISTED else ""
    return (
        "a circular dependency between layers, or missing calls: "
        f"{', '.join(map(short, layers[:_LISTED]))}{more}"
    )


def depth(config: Mapping[str, Json]) -> int:
    """
    Return how many calls deep a loader is when it walks a functional model's graph back from the
    outputs, into the first tensor first.

    Every Keras does so by recursion (``_build_map_helper`` in keras/engine/functional.py,
    keras/src/ops/function.py of Keras 3).
    """
    entries = _entries(config)
    met: set[Node] = set()
    under_way: list[Iterator[Node]] = [tensors(config.get("output_layers"))]
    deepest = 0
    while under_way:
        node = next(under_way[-1], None)
        if node is None:
            under_way.pop()
        elif node not in met and node[0] in entries:
            met.add(node)
            nodes = entries[node[0]].get("inbound_nodes")
            under_way.append(
                tensors(
                    nodes[max(0, min(node[1], len(nodes) - 1))]
                    if isinstance(nodes, list) and nodes
                    else None
                )
            )
            deepest = max(deepest, len(under_way) - 1)
    return deepest


def misses_calls(config: Mapping[str, Json]) -> bool:
    """
    Return whether Keras 3 looks for a call that a functional model's config does not have: one of a
    nested model, or of a Sequential that gives an output.
    """
    return any(
        keras_objects.class_of(entry) == SEQUENTIAL for entry in _entries(config).values()
    ) or bool(uncallable_layers(config, from_zero=True))


def classes_after_models(layers: Sequence[Mapping[str, Json]]) -> Iterator[str]:
    """
    Yield the class of each layer of a Sequential that is the first to need the tensor of a
    functional model in front of it.
    """
    listed = False
    for entry in layers:
        class_name = keras_objects.class_of(entry)
        if class_name in MODELS:
            listed = class_name != SEQUENTIAL
        elif listed and layer_facts(str(class_name)).list_of_one != "kept":
            yield str(class_name)
            listed = False


def mismatched_constants(config: Mapping[str, Json]) -> Iterator[str]:
    """
    Yield the dtype of each tensor that an op layer of Keras 2 combines with a number before it, as
    in ``1.0 - x``, if the number becomes another dtype: float32 or int32. Tensors whose dtype is
    not in the config are skipped.
    """
    entries = _entries(config)
    for entry in entries.values():
        nodes = entry.get("inbound_nodes")
        if not layer_facts(keras_objects.class_of(entry)).is_op_layer or not isinstance(
            nodes, list
        ):
            continue
        for node in nodes:
            if not isinstance(node, list) or len(node) <= _VALUE or node[0] != CONSTANT:
                continue
            value = node[_VALUE]
            if isinstance(value, int | float):
                dtype = _tensor_dtype(next(tensors(node[_REFERENCE:]), None), entries)
                if dtype not in {None, "float32" if isinstance(value, float) else "int32"}:
                    yield str(dtype)


def _tensor_dtype(node: Node | None, entries: Mapping[str, dict[str, Json]]) -> str | None:
    """
    Return the compute dtype of the layer that gives a tensor; op layers give that of their first
    tensor, or the dtype that a ``cast`` names.
    """
    for _ in range(len(entries)):
        entry = entries.get(node[0]) if node is not None else None
        config = entry.get("config") if entry is not None else None
        if entry is None or not isinstance(config, dict) or _is_model(entry):
            return None
        if not layer_facts(keras_objects.class_of(entry)).is_op_layer:
            return _compute_dtype(config.get("dtype"))
        if config.get("function") not in _KEEPING_DTYPE:
            return None
        node = next(tensors(entry.get("inbound_nodes")), None)
    return None


def _compute_dtype(dtype: Json) -> str | None:
    """Return the compute dtype of a policy, which is a name or a dict of Keras 2."""
    inner = dtype.get("config") if isinstance(dtype, dict) else None
    name = inner.get("name") if isinstance(inner, dict) else dtype
    return name.removeprefix("mixed_") if isinstance(name, str) else None


def _entries(config: Mapping[str, Json]) -> dict[str, dict[str, Json]]:
    """Return the entries of a model's layers by their names."""
    listed = config.get("layers")
    return {
        layer_name(entry): entry
        for entry in (listed if isinstance(listed, list) else ())
        if isinstance(entry, dict)
    }


def _layers_with_other_counts(entries: Mapping[str, dict[str, Json]]) -> set[str]:
    """Return the layers of which any call counts as the first."""
    within = {inner for entry in entries.values() for inner in _below(entry)}
    return {layer for layer, entry in entries.items() if layer in within or _is_model(entry)}


def _is_in_call_order(calls: Mapping[str, list[Json]], loose: set[str]) -> bool:
    """
    Return whether each call uses only results of earlier calls, as in most files. This check avoids
    a topological sort, which needs 250 MB for a graph of half a million calls.
    """
    call_counts = {layer: 0 if nodes else 1 for layer, nodes in calls.items()}
    for layer, nodes in calls.items():
        for node in nodes:
            if any(call >= call_counts[other] for other, call in _sources(node, calls, loose)):
                return False
            call_counts[layer] += 1
    return True


def _callable_nodes(order: TopologicalSorter[Node]) -> Iterator[Node]:
    """Yield the calls that can be made."""
    with suppress(CycleError):  # those before the circle can be had all the same
        order.prepare()
    while ready := order.get_ready():
        yield from ready
        order.done(*ready)


def _sources(node: Json, calls: Mapping[str, list[Json]], loose: set[str]) -> Iterator[Node]:
    """Yield the calls that one takes tensors of, as far as the config has their layers."""
    for layer, call in tensors(node):
        if layer in calls:
            yield layer, 0 if layer in loose or call < 0 else call


def _is_model(entry: Mapping[str, Json]) -> bool:
    config = entry.get("config")
    return isinstance(config, list) or (isinstance(config, dict) and "layers" in config)


def _below(entry: Mapping[str, Json]) -> Iterator[str]:
    """Yield the names of the layers of a nested model, and of those nested in it."""
    pending: list[Json] = [entry.get("config")] if _is_model(entry) else []
    while pending:
        config = pending.pop()
        layers = (
            config
            if isinstance(config, list)
            else config.get("layers")
            if isinstance(config, dict)
            else None
        )
        for inner in layers if isinstance(layers, list) else ():
            if isinstance(inner, dict):
                yield layer_name(inner)
                if _is_model(inner):
                    pending.append(inner.get("config"))
