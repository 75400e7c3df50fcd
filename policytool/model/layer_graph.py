"""
Which layer feeds which: the graphs of functional models and the chains of sequential ones, as their
configs have them.

A Keras 2 node is ``["layer", node, tensor, {kwargs}]``, with tensors in the kwargs spelled
``["layer", node, tensor]`` (TF 2.4 on); a Keras 3 node is ``{"args", "kwargs"}`` with
``__keras_tensor__`` objects. Both are walked for what names a layer of the same model.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from policytool.model import inbound_nodes
from policytool.model.calls import read_call
from policytool.model.tree import LAYERS, MODEL_CLASSES
from policytool.releases import keras_objects

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from policytool.model.calls import Call
    from policytool.model.tree import Site
    from policytool.support.text.jsontext import Json


@dataclass(frozen=True, kw_only=True)
class GraphNode:
    """One layer or operation of a model's graph."""

    name: str
    class_name: str
    site: int | None
    """The layer's site; None for an operation of Keras 3."""

    pointer: str
    """Where its entry stands in the config."""

    config: Mapping[str, Json]
    parents: tuple[str, ...]
    """The nodes whose tensors it takes, at any of its calls."""

    inbound: Sequence[Json] = ()
    """Its calls as the file has them; nothing in a sequential model."""

    names: frozenset[str] = frozenset()
    """The nodes of its model."""

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """Its calls, in the order of the config."""
        return tuple(read_call(call, self.names, self.class_name) for call in self.inbound)


@dataclass(frozen=True, kw_only=True)
class Graph:
    """One model's graph."""

    model: int
    nodes: Mapping[str, GraphNode]
    """In the order of the config."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def children(self) -> dict[str, list[str]]:
        """Return which nodes take each node's tensors."""
        found: dict[str, list[str]] = defaultdict(list)
        for node in self.nodes.values():
            for parent in node.parents:
                found[parent].append(node.name)
        return found


def graphs(sites: Sequence[Site]) -> dict[int, Graph]:
    """Return the graph of each functional and sequential model, by the model's site."""
    by_names: dict[tuple[str, ...], int] = {}
    for index, site in enumerate(sites):
        for names in ((*site.names[:-1], site.given_name or site.name), site.names, *site.also_at):
            by_names.setdefault(names, index)
    listed: dict[int, list[int]] = defaultdict(list)
    for index, site in enumerate(sites):
        if site.parent is not None and site.attribute == LAYERS:
            listed[site.parent].append(index)
    found = {}
    for index, site in enumerate(sites):
        if site.is_model and site.class_name in MODEL_CLASSES:
            functional = site.config is not None and "output_layers" in site.config
            found[index] = (
                _functional(index, site, by_names)
                if functional
                else _sequential(index, listed.get(index, ()), sites)
            )
    return found


def _sequential(model: int, layers: Sequence[int], sites: Sequence[Site]) -> Graph:
    """Return the chain of a sequential model's layers."""
    nodes: dict[str, GraphNode] = {}
    last: tuple[str, ...] = ()
    for index in layers:
        site = sites[index]
        pointer = site.address.pointer.removesuffix("/config/dtype") if site.address else ""
        nodes[site.name] = GraphNode(
            name=site.name,
            class_name=site.class_name,
            site=index,
            pointer=pointer,
            config=site.config or {},
            parents=last,
        )
        last = (site.name,)
    first = next(iter(nodes), None)
    return Graph(
        model=model, nodes=nodes, inputs=(first,) if first is not None else (), outputs=last
    )


def _functional(model: int, site: Site, by_names: Mapping[tuple[str, ...], int]) -> Graph:
    config = site.config or {}
    base = site.address.pointer.removesuffix("/dtype") if site.address else ""
    listed = config.get(LAYERS)
    entries = [
        (position, entry)
        for position, entry in enumerate(listed if isinstance(listed, list) else ())
        if isinstance(entry, dict)
    ]
    names = frozenset(inbound_nodes.name(entry) for _, entry in entries)
    nodes = {}
    for position, entry in entries:
        name, inner = inbound_nodes.name(entry), entry.get("config")
        inbound = entry.get("inbound_nodes")
        nodes[name] = GraphNode(
            name=name,
            class_name=str(keras_objects.class_of(entry)),
            site=by_names.get((*site.names, name)),
            pointer=f"{base}/{LAYERS}/{position}",
            config=inner if isinstance(inner, dict) else {},
            parents=tuple(
                dict.fromkeys(parent for parent in references(inbound) if parent in names)
            ),
            inbound=inbound if isinstance(inbound, list) else (),
            names=names,
        )
    return Graph(
        model=model,
        nodes=nodes,
        inputs=_ends(config.get("input_layers"), names),
        outputs=_ends(config.get("output_layers"), names),
    )


def _ends(value: Json, names: frozenset[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in references(value) if name in names))


def references(value: Json) -> Iterator[str]:
    """Yield the names of the layers whose tensors a value refers to, in its order."""
    return (layer for layer, _ in inbound_nodes.tensors(value))
