"""
Ids that pass through floats on their way to a lookup.

float16 tells integers apart up to 2048, bfloat16 up to 256: a layer that casts its inputs would
make different ids the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from policytool.migration.planning.keep._base import float_inputs
from policytool.model.tree import LAYERS, MODEL_CLASSES
from policytool.releases.layer_classes import layer_facts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.model.layer_graph import Graph, GraphNode
    from policytool.model.loaded_model import LoadedModel
    from policytool.releases.policy import Policy


def identifier_reasons(loaded: LoadedModel, _policy: Policy) -> Iterator[tuple[int, str]]:
    """
    Yield the weightless layers between a float input and a lookup, through nested models and the
    wrappers around them.
    """
    for index, lookup in identifier_layers(loaded):
        yield (
            index,
            (
                f"it passes IDs to {loaded.layers[lookup].path}, and 16-bit floats cannot "
                "represent large IDs exactly"
            ),
        )


def identifier_layers(loaded: LoadedModel, *, inputs: bool = False) -> Iterator[tuple[int, int]]:
    """
    Yield each such layer with the lookup that its floats lead to; with ``inputs`` the float inputs
    too, behind them.
    """
    search = _LookupSearch(loaded)
    for graph in loaded.graphs.values():
        for node in graph.nodes.values():
            lookup = search.lookup_in(node)
            if lookup is not None:
                between, from_floats, sources = _carriers(loaded, graph, node.name)
                wrappers = search.wrappers(node)
                for index in (
                    (*between, *wrappers, *(sources if inputs else ())) if from_floats else ()
                ):
                    yield index, lookup


@dataclass
class _LookupSearch:
    """The search for lookups in nested models, each model looked into once."""

    loaded: LoadedModel
    found: dict[int, int | None] = field(default_factory=dict)
    """By the model's site, the lookup that its inputs lead to."""

    def lookup_in(self, node: GraphNode) -> int | None:
        """
        Return the lookup that a node is, or that its inputs lead to inside it; None where there is
        none.
        """
        if node.site is None:
            return None
        if layer_facts(node.class_name).takes_ids:
            return node.site
        model = self._model_in(node.site)
        if model is None:
            return None
        if model not in self.found:
            self.found[model] = None  # a model that holds itself has no end
            self.found[model] = self._behind_inputs(self.loaded.graphs[model])
        return self.found[model]

    def wrappers(self, node: GraphNode) -> list[int]:
        """Return the layers that wrap a nested model; they cast the inputs that they pass to it."""
        index = node.site
        layers = []
        while (
            index is not None
            and self.loaded.sites[index].class_name not in MODEL_CLASSES
            and not layer_facts(node.class_name).takes_ids
        ):
            layers.append(index)
            index = next(
                (
                    child
                    for child in self.loaded.children[index]
                    if self.loaded.sites[child].attribute == "layer"
                ),
                None,
            )
        return layers

    def _model_in(self, site: int) -> int | None:
        """Return the model that a layer is or wraps."""
        index: int | None = site
        while index is not None and index not in self.loaded.graphs:
            index = next(
                (
                    child
                    for child in self.loaded.children[index]
                    if self.loaded.sites[child].attribute not in {LAYERS, "cell", "cells"}
                ),
                None,
            )
        return index

    def _behind_inputs(self, graph: Graph) -> int | None:
        for node in graph.nodes.values():
            lookup = self.lookup_in(node)
            if lookup is not None and _carriers(self.loaded, graph, node.name)[1]:
                return lookup
        return None


def _carriers(loaded: LoadedModel, graph: Graph, name: str) -> tuple[list[int], bool, list[int]]:
    """
    Return the weightless layers that lead from inputs to a node, whether one of those inputs may
    have floats, and those that do.
    """
    pending, seen = list(graph.nodes[name].parents), set[str]()
    between: list[int] = []
    sources: list[int] = []
    from_floats = not pending  # the first layer of a Sequential takes what comes
    while pending:
        parent = pending.pop()
        if parent in seen or parent not in graph.nodes:
            continue
        seen.add(parent)
        index = graph.nodes[parent].site
        if index is not None and loaded.is_input(index):
            sources += [index] if float_inputs(loaded, index) else []
        elif index is None or not (loaded.has_weights(index) or loaded.children[index]):
            between += [index] if index is not None else []
            pending += graph.nodes[parent].parents
            from_floats |= not graph.nodes[parent].parents
    return between, from_floats or bool(sources), sources
