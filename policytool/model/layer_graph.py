"""
The connections between layers: the graphs of functional models, from the calls in their configs,
and the chains of sequential models.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from policytool.formats.document import Address
from policytool.model.calls import call_tensors, layer_entries, model_calls, tensors
from policytool.model.tree import LAYERS, MODEL_CLASSES
from policytool.releases import keras_objects
from policytool.support.grouping import group_pairs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from policytool.model.calls import Call, ModelCalls, Reference
    from policytool.model.tree import Site
    from policytool.model.tree.storage import Placed
    from policytool.support.text.jsontext import Json


_MOST_SOURCES: Final = 64
"""The maximum number of layers before an operation, which keeps the time for a chain linear."""


@dataclass(frozen=True, kw_only=True)
class GraphNode:
    """A layer or an operation in the graph of a model."""

    name: str
    class_name: str
    site: int | None
    """The index of the layer's site; None for an operation of Keras 3."""

    pointer: str
    """The JSON pointer to its entry in the config."""

    config: Mapping[str, Json]
    parents: tuple[str, ...]
    """The nodes whose outputs are inputs of any of its calls."""

    calls: tuple[Call, ...] = ()
    """The calls in the order of the config; empty in a sequential model."""


@dataclass(frozen=True, kw_only=True)
class Graph:
    """The graph of a model."""

    model: int
    nodes: Mapping[str, GraphNode]
    """The nodes by name, in the order of the config."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    source: ModelCalls | None = None
    """The calls in the config of a functional model; None for a sequential model."""

    def children(self) -> dict[str, list[str]]:
        """Return the nodes that use the tensors of each node."""
        return group_pairs(
            (parent, node.name) for node in self.nodes.values() for parent in node.parents
        )


def graphs(placed: Placed, entries: Mapping[Address, int], *, keras3: bool) -> dict[int, Graph]:
    """
    Return the graph of each functional and sequential model, by the model's site.

    :param entries: by the address of an object that serializes a layer: the layer's site
    :param keras3: whether Keras 3 wrote the models
    """
    return {
        index: _functional(index, site, entries, keras3=keras3)
        if site.config is not None and "output_layers" in site.config
        else _sequential(index, _chain(index, placed, entries), placed.sites)
        for index, site in enumerate(placed.sites)
        if site.is_model and site.class_name in MODEL_CLASSES
    }


def connections(graphs: Iterable[Graph]) -> dict[int, tuple[int, ...]]:
    """
    Return, for the site of each layer, the sites of the layers whose outputs it uses, in all models
    that call it. An operation of Keras 3 stands for the layers before it.
    """
    pairs: list[tuple[int, int]] = []
    for graph in graphs:
        sources: dict[str, tuple[int, ...]] = {}
        for node in graph.nodes.values():
            if node.site is not None:
                sources[node.name] = (node.site,)
        for node in graph.nodes.values():
            inputs = dict.fromkeys(
                source for parent in node.parents for source in sources.get(parent, ())
            )
            if node.site is None:
                sources[node.name] = tuple(islice(inputs, _MOST_SOURCES))
            else:
                pairs += ((node.site, source) for source in inputs)
    return {site: tuple(dict.fromkeys(inputs)) for site, inputs in group_pairs(pairs).items()}


def _chain(index: int, placed: Placed, entries: Mapping[Address, int]) -> list[int]:
    """
    Return the layers that the config of a sequential model lists, including shared layers whose
    site is in another model. If the config has no list, as up to Keras 2.2.2, return the sites
    below the model.
    """
    site = placed.sites[index]
    places = (
        Address.below(site.entry, "config", LAYERS, position)
        for position, _ in layer_entries(site.config or {})
        if site.entry is not None
    )
    return [entries[place] for place in places if place in entries] or [
        child for child in placed.children[index] if placed.sites[child].attribute == LAYERS
    ]


def _sequential(model: int, layers: Sequence[int], sites: Sequence[Site]) -> Graph:
    """Return the chain of a sequential model's layers."""
    nodes: dict[str, GraphNode] = {}
    last: tuple[str, ...] = ()
    for index in layers:
        site = sites[index]
        nodes[site.name] = GraphNode(
            name=site.name,
            class_name=site.class_name,
            site=index,
            pointer=site.entry.pointer if site.entry is not None else "",
            config=site.config or {},
            parents=last,
        )
        last = (site.name,)
    first = next(iter(nodes), None)
    return Graph(
        model=model, nodes=nodes, inputs=(first,) if first is not None else (), outputs=last
    )


def _functional(model: int, site: Site, entries: Mapping[Address, int], *, keras3: bool) -> Graph:
    """Return the graph of a functional model's layers and operations."""
    source = model_calls(site.config or {}, keras3=keras3)
    names = frozenset(layer.name for layer in source.layers)
    part, base = (site.entry.part, site.entry.pointer) if site.entry is not None else ("", "")
    nodes = {}
    for layer in source.layers:
        pointer, config = f"{base}/config/{LAYERS}/{layer.position}", layer.entry.get("config")
        nodes[layer.name] = GraphNode(
            name=layer.name,
            class_name=str(keras_objects.class_of(layer.entry)),
            site=entries.get(Address(part=part, pointer=pointer)),
            pointer=pointer,
            config=config if isinstance(config, dict) else {},
            parents=_layers(
                (tensor for call in layer.calls for tensor in call_tensors(call)), names
            ),
            calls=layer.calls,
        )
    return Graph(
        model=model,
        nodes=nodes,
        inputs=_layers(tensors(source.inputs), names),
        outputs=_layers(tensors(source.outputs), names),
        source=source,
    )


def _layers(references: Iterable[Reference], names: frozenset[str]) -> tuple[str, ...]:
    """Return the layers of the model whose tensors the references name, each layer once."""
    return tuple(
        dict.fromkeys(reference.layer for reference in references if reference.layer in names)
    )
