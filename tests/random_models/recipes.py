"""From a seed to the description of a model."""

from __future__ import annotations

from typing import Final

from tests.random_models.description import Recipe
from tests.random_models.drawing import Draw
from tests.random_models.random_graphs import random_graph

LIBRARIES: Final = ("tf_keras", "keras")


def recipe_from_seed(seed: int, library: str) -> Recipe:
    """Return the model of a seed for ``keras`` or ``tf_keras``, the same in every process."""
    draw = Draw(seed, library)
    graph = random_graph(draw)
    container = draw.pick(("h5", "keras"))
    return Recipe(seed=seed, library=library, family="random", graph=graph, container=container)
