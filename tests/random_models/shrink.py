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
    from collections.abc import Callable, Iterator, Sequence

ROUNDS: Final = 12
_USUAL: Final = frozenset({"units", "filters", "input_dim", "output_dim", "num_heads", "key_dim"})
"""Arguments that layers need."""


def shrink(failing: Sequence[tuple[Recipe, str]], python: Path) -> list[tuple[Recipe, Outcome]]:
    """
    Return for each recipe of a library and the word of its outcome a smaller one with that word,
    and what came of it.
    """
    actual = [(recipe, Outcome(seed=recipe.seed, word=word)) for recipe, word in failing]
    for kind in (cuts, bypasses, simplifications):  # the largest steps first, for they save others
        going = list(range(len(actual)))
        for _ in range(ROUNDS):
            better = _round(actual, going, kind, python)
            if not better:
                break
            going = better
    return actual


def _round(
    found: list[tuple[Recipe, Outcome]],
    going: Sequence[int],
    kind: Callable[[Recipe], Iterator[Recipe]],
    python: Path,
) -> list[int]:
    """Try all smaller models once; return which recipes became smaller."""
    pairs = [(number, item) for number in going for item in kind(found[number][0])]
    if not pairs:
        return []
    with tempfile.TemporaryDirectory(prefix="random-models-") as folder:
        outcomes = run_campaign([one for _, one in pairs], python, Path(folder).resolve())
    better = set()
    for (number, one), outcome in zip(pairs, outcomes, strict=True):
        smallest, reached = found[number]
        if outcome.word == reached.word and size(one) < size(smallest):
            found[number] = (one, outcome)
            better.add(number)
    return sorted(better)


def size(recipe: Recipe) -> int:
    """Return how much there is to read of a recipe."""
    return len(to_json(recipe))


def cuts(recipe: Recipe) -> Iterator[Recipe]:
    """Yield recipes without training and policy, and whose graph ends sooner."""
    if recipe.training is not None:
        yield replace(recipe, training=None)
    if recipe.policy != "float32":
        yield replace(recipe, policy="float32", floatx=False)
    graph = recipe.graph
    if graph.kind == "sequential":
        return
    ends = graph.outputs if len(graph.outputs) > 1 else ()
    for ref in (*ends, *(node.id for node in graph.nodes[:-1] if node.id not in ends)):
        yield replace(recipe, graph=prune(replace(graph, outputs=(ref,))))


def bypasses(recipe: Recipe) -> Iterator[Recipe]:
    """Yield recipes with one node less, in models in the model too."""
    for graph in _shorter(recipe.graph):
        yield replace(recipe, graph=graph)


def simplifications(recipe: Recipe) -> Iterator[Recipe]:
    """Yield recipes in which a layer has an argument less."""
    for graph in _replaced(recipe.graph, _plainer):
        yield replace(recipe, graph=graph)


def _shorter(graph: Graph) -> Iterator[Graph]:
    for node in graph.nodes if len(graph.nodes) > 1 else ():
        for ref in dict.fromkeys(node.inputs):
            smaller = _bypass(graph, node, ref)
            if smaller.nodes:
                yield smaller
    yield from _replaced(
        graph,
        lambda node: (
            replace(node, graph=inner)
            for inner in (_shorter(node.graph) if node.graph is not None else ())
        ),
    )


def _replaced(graph: Graph, others: Callable[[Node], Iterator[Node]]) -> Iterator[Graph]:
    for number, node in enumerate(graph.nodes):
        for other in others(node):
            yield replace(graph, nodes=(*graph.nodes[:number], other, *graph.nodes[number + 1 :]))


def _plainer(node: Node) -> Iterator[Node]:
    if node.graph is not None:
        for inner in _replaced(node.graph, _plainer):
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
        replace(
            item, inputs=tuple(other(given) for given in item.inputs), call=other(dict(item.call))
        )
        for item in graph.nodes
        if node.id not in {item.id, item.reuse}
    )
    dropped = {item.id for item in graph.nodes if item.reuse == node.id}
    if any(dropped & set(references(item)) for item in nodes):
        return replace(graph, nodes=())
    return prune(
        replace(graph, nodes=nodes, outputs=tuple(other(output) for output in graph.outputs))
    )
