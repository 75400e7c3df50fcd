"""From a seed to the description of a model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tests.random_models import families_sequence, families_text, families_vision
from tests.random_models.decoration import POLICIES, decorate
from tests.random_models.description import Recipe
from tests.random_models.drawing import Draw
from tests.random_models.pruning import prune
from tests.random_models.random_graphs import random_graph
from tests.random_models.subclassed_graphs import subclassed_graph
from tests.random_models.training import draw_training

if TYPE_CHECKING:
    from tests.random_models.description import Graph

WELL_KNOWN: Final = {
    **families_text.FAMILIES,
    **families_sequence.FAMILIES,
    **families_vision.FAMILIES,
}
_GRAPHS: Final = {"random": random_graph, "subclassed": subclassed_graph, **WELL_KNOWN}
_OF_LAYERS: Final = frozenset({"custom:Block", "custom:PatchEncoder"})
LIBRARIES: Final = ("tf_keras", "keras")
_FLOAT64: Final = "float64"


def recipe_from_seed(seed: int, library: str) -> Recipe:
    """Return the model of a seed for ``keras`` or ``tf_keras``, the same in every process."""
    draw = Draw(seed, library)
    policy = draw.pick(POLICIES)
    draw.joins_ops = draw.keras3 or policy in {"float32", _FLOAT64} or draw.chance(0.1)
    family = _family(draw)
    graph = prune(_GRAPHS[family](draw))
    if policy == "bfloat16" and _is_recurrent(graph):
        policy = "mixed_bfloat16"  # initializers of recurrent layers know no bfloat16
    if any(node.what in _OF_LAYERS for node in graph.walk()) or graph.kind == "subclassed":
        policy = "float32"  # their layers have the policy of whoever loads them
    floatx = policy == _FLOAT64 and draw.chance(0.5)
    graph = decorate(draw, graph, policy)
    if policy == _FLOAT64:
        graph = _with_wide_inputs(graph)
    if len(graph.inputs) > 1 and draw.chance(0.2):
        graph = _with_dicts(graph)
    return Recipe(
        seed=seed,
        library=library,
        family=family,
        graph=graph,
        policy=policy,
        floatx=floatx,
        container=_container(draw, graph),
        training=draw_training(draw, len(graph.outputs), policy) if draw.chance(0.5) else None,
    )


def _family(draw: Draw) -> str:
    if draw.chance(0.3):
        return draw.pick(sorted(WELL_KNOWN))
    return "subclassed" if draw.chance(0.06) else "random"


def _is_recurrent(graph: Graph) -> bool:
    words = ("LSTM", "GRU", "RNN", "Bidirectional")
    return any(word in f"{node.what}{node.config}" for node in graph.walk() for word in words)


def _container(draw: Draw, graph: Graph) -> str:
    if graph.kind == "subclassed":
        return "keras"
    if not draw.keras3 and any(node.what == "slice" for node in graph.walk()):
        return "h5"  # tf_keras cannot save an Ellipsis in an archive
    if draw.keras3:
        return draw.pick(("keras", "keras", "h5"))
    return "tf" if draw.chance(0.12) else draw.pick(("h5", "keras"))


def _with_wide_inputs(graph: Graph) -> Graph:
    inputs = tuple(
        replace(spec, dtype=_FLOAT64) if spec.dtype == "float32" and spec.values != "ids" else spec
        for spec in graph.inputs
    )
    return replace(graph, inputs=inputs)


def _with_dicts(graph: Graph) -> Graph:
    inputs = tuple(
        replace(spec, name=spec.name or f"in_{number}") for number, spec in enumerate(graph.inputs)
    )
    return replace(graph, inputs=inputs, structure="dict")
