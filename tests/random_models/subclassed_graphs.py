"""Rows of layers for subclassed models."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tests.random_models import layers_dense
from tests.random_models.description import Graph
from tests.random_models.entries import padded, sequence, vector
from tests.random_models.random_graphs import node_from_step
from tests.random_models.steps import Step, step_result

if TYPE_CHECKING:
    from tests.random_models.drawing import Draw

_IN_SUBCLASSES: Final = ("Dense", "LayerNormalization", "BatchNormalization", "ReLU", "Dropout")
"""Layers with the same arguments in both libraries."""

_LEAST_EPSILON: Final = 1.001e-5
"""What Keras 2 makes of a smaller one, in layers that a class makes by itself."""


def subclassed_graph(draw: Draw) -> Graph:
    """Return a graph for a class of a user, which both libraries run."""
    entry = draw.pick((vector, sequence, padded))(draw)
    nodes, value = list(entry.nodes), entry.value
    for _ in range(draw.whole(2, 5)):
        if value.rank == 2 and draw.chance(0.3):
            units = draw.units()
            step = Step(
                what=draw.pick(("LSTM", "GRU")),
                config={"units": units, "return_sequences": True},
                shape=(value.shape[0], units),
            )
        elif draw.chance(0.25):
            units = draw.units()
            step = Step(
                what="custom:Block", config={"units": units}, shape=(*value.shape[:-1], units)
            )
        else:
            result = layers_dense.MAKERS[draw.pick(_IN_SUBCLASSES)](draw, value)
            step = _alike(result or Step(what="custom:Gated", shape=value.shape))
        nodes.append(node_from_step(draw, step, value))
        value = step_result(step, value, nodes[-1].id)
    return Graph(kind="subclassed", inputs=(entry.spec,), nodes=tuple(nodes), outputs=(value.ref,))


def _alike(step: Step) -> Step:
    """Return a layer that computes the same in both libraries: no config says what it is."""
    config = dict(step.config)
    if config.get("activation") == "hard_sigmoid":
        config["activation"] = "sigmoid"
    if "epsilon" in config:
        config["epsilon"] = max(config["epsilon"], _LEAST_EPSILON)
    return replace(step, config=config)
