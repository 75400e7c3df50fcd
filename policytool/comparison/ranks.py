"""
How many dimensions a layer's input has, as far as the layers before it prove it; an axis counted
from the end is known only then.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from policytool.comparison import normalization
from policytool.model.calls import Reference
from policytool.model.flow import follow, merged_graph
from policytool.model.model_cache import once_per_model
from policytool.releases.layer_classes import layer_facts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policytool.comparison.sides import ComparedLayer, ComparedModel
    from policytool.model.calls import Call
    from policytool.model.flow import Node, TensorValues
    from policytool.model.layer_graph import Graph
    from policytool.model.loaded_model import LoadedModel
    from policytool.support.text.jsontext import Json


def is_same_axis(
    axis_a: Json,
    axis_b: Json,
    sides: tuple[tuple[ComparedModel, ComparedLayer], tuple[ComparedModel, ComparedLayer]],
) -> bool:
    """Return whether two values of ``axis`` are proven to be the same."""
    first, second = (
        _resolve_axes(value, subject, layer)
        for value, (subject, layer) in zip((axis_a, axis_b), sides, strict=True)
    )
    return first is not None and first == second


def input_rank(subject: ComparedModel, layer: ComparedLayer) -> int | None:
    """Return the number of dimensions of a layer's input; None if it cannot be proven."""
    if subject.loaded is None:
        return None
    return _input_ranks(subject.loaded).get(layer.index)


@once_per_model
def _input_ranks(loaded: LoadedModel) -> Mapping[int, int | None]:
    """Return the ranks of what layers get, by their sites; of a shared layer at all its places."""
    inputs: dict[int, set[int | None]] = defaultdict(set)
    outputs: dict[int, int | None] = {}
    for model, graph in reversed(
        list(loaded.graphs.items())
    ):  # nested models before those around them
        ranks = _Ranks(loaded, graph, outputs)
        calls = merged_graph({node.name: node.parents for node in graph.nodes.values()})
        known = follow(calls, ranks.output, walk="ranks")
        for node in graph.nodes.values():
            if node.site is not None:
                inputs[node.site].add(ranks.input(node.name, known))
        ends = {known.of(Reference(layer=name)) for name in graph.outputs}
        outputs[model] = ends.pop() if len(ends) == 1 else None
    return {site: ranks.pop() if len(ranks) == 1 else None for site, ranks in inputs.items()}


@dataclass(frozen=True, slots=True)
class _Ranks:
    """The transfer function of one model's graph."""

    loaded: LoadedModel
    graph: Graph
    nested: Mapping[int, int | None]
    """By a model's site, the rank of all that it gives."""

    def input(self, name: str, known: TensorValues[int | None]) -> int | None:
        """Return the rank of what a layer gets; a chain's first layer says it itself."""
        node = self.graph.nodes[name]
        if len(node.parents) == 1:
            return known.of(Reference(layer=node.parents[0]))
        return _shape_rank(node.config) if not node.parents else None

    def output(
        self, node: Node, _call: Call | None, known: TensorValues[int | None]
    ) -> Sequence[int | None]:
        """Return the rank of what a layer gives."""
        layer = self.graph.nodes[node[0]]
        if layer.site is None or self.loaded.layers[layer.site].opaque:
            return (None,)
        if layer.site in self.nested:
            return (self.nested[layer.site],)
        rank = layer_facts(self.loaded.layers[layer.site].class_name).rank
        return (self.input(layer.name, known) if rank == "input" else rank,)


def _shape_rank(config: Mapping[str, Json]) -> int | None:
    shape = normalization.normal_entries(config).get("batch_shape", ("", None, None))[2]
    return len(shape) if isinstance(shape, list) else None


def _resolve_axes(
    value: Json, subject: ComparedModel, layer: ComparedLayer
) -> tuple[int, ...] | None:
    """Return axes counted from the start; None if the rank is unknown."""
    axes = normalization.normal(value)
    numbers = [
        axis
        for axis in (axes if isinstance(axes, list) else [axes])
        if isinstance(axis, int) and not isinstance(axis, bool)
    ]
    if not numbers or (isinstance(axes, list) and len(numbers) != len(axes)):
        return None
    if min(numbers) >= 0:
        return tuple(numbers)
    rank = input_rank(subject, layer)
    return (
        tuple(axis % rank for axis in numbers)
        if rank is not None and all(-rank <= axis < rank for axis in numbers)
        else None
    )
