"""The smallest models that fail as a random one does."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.random_models.campaign import run_campaign
from tests.random_models.description import Graph, Node, Recipe, to_json
from tests.random_models.outcomes import Outcome
from tests.random_models.pruning import prune, references

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROUNDS: Final = 12
_USUAL: Final = frozenset({"units", "filters", "input_dim", "output_dim", "num_heads", "key_dim"})
"""Arguments that layers need."""


def shrink(failing: Sequence[tuple[Recipe, str]], python: Path) -> list[tuple[Recipe, Outcome]]:
    """
    Return for each recipe of a library and the word of its outcome a smaller one with that word,
    and what came of it.
    """
    smallest = [recipe for recipe, _ in failing]
    reached = [Outcome(seed=recipe.seed, word=word) for recipe, word in failing]
    going = list(range(len(failing)))
    for _ in range(ROUNDS):
        pairs = [(number, one) for number in going for one in candidates(smallest[number])]
        if not pairs:
            break
        with tempfile.TemporaryDirectory(prefix="random-models-") as folder:
            outcomes = run_campaign([one for _, one in pairs], python, Path(folder).resolve())
        better = set()
        for (number, one), outcome in zip(pairs, outcomes, strict=True):
            if outcome.word == failing[number][1] and size(one) < size(smallest[number]):
                smallest[number], reached[number] = one, outcome
                better.add(number)
        going = sorted(better)
    return list(zip(smallest, reached, strict=True))


def size(recipe: Recipe) -> int:
    """Return how much there is to read of a recipe."""
    return len(to_json(recipe))


def candidates(recipe: Recipe) -> Iterator[Recipe]:
    """Yield recipes with less in them."""
    if recipe.training is not None:
        yield replace(recipe, training=None)
    if recipe.policy != "float32":
        yield replace(recipe, policy="float32")
    for graph in _smaller(recipe.graph):
        yield replace(recipe, graph=graph)


def _smaller(graph: Graph) -> Iterator[Graph]:
    if graph.kind == "sequential":
        yield from _with_nodes(graph)
        return
    for ref in graph.outputs if len(graph.outputs) > 1 else ():
        left = tuple(one for one in graph.outputs if one != ref)
        yield prune(replace(graph, outputs=left))
    for node in graph.nodes[:-1]:
        if node.id not in graph.outputs:
            yield prune(replace(graph, outputs=(node.id,)))
    yield from _with_nodes(graph)


def _with_nodes(graph: Graph) -> Iterator[Graph]:
    for number, node in enumerate(graph.nodes):
        if node.inputs and len(graph.nodes) > 1:
            for ref in dict.fromkeys(node.inputs):
                smaller = _bypass(graph, node, ref)
                if smaller.nodes:
                    yield smaller
        for changed in _plainer(node):
            nodes = (*graph.nodes[:number], changed, *graph.nodes[number + 1 :])
            yield replace(graph, nodes=nodes)


def _plainer(node: Node) -> Iterator[Node]:
    if node.graph is not None:
        for inner in _smaller(node.graph):
            yield replace(node, graph=inner)
    for key in node.config:
        if key not in _USUAL:
            config = {name: value for name, value in node.config.items() if name != key}
            yield replace(node, config=config)
    if node.call:
        yield replace(node, call={})


def _bypass(graph: Graph, node: Node, ref: str) -> Graph:
    """Return a graph in which a value stands for what a node makes of it."""

    def other(found: Any) -> Any:
        if isinstance(found, str):
            return ref if found.partition(":")[0] == node.id else found
        if isinstance(found, dict):
            return {key: other(item) for key, item in found.items()}
        return [other(item) for item in found] if isinstance(found, list) else found

    nodes = tuple(
        replace(one, inputs=tuple(other(given) for given in one.inputs), call=other(dict(one.call)))
        for one in graph.nodes
        if node.id not in {one.id, one.reuse}
    )
    dropped = {one.id for one in graph.nodes if one.reuse == node.id}
    if any(dropped & set(references(one)) for one in nodes):
        return replace(graph, nodes=())
    return prune(replace(graph, nodes=nodes, outputs=tuple(other(one) for one in graph.outputs)))
