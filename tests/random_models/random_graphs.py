"""Graphs of random layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.random_models import layers_conv, layers_dense
from tests.random_models.description import Graph, InputSpec, Node
from tests.random_models.steps import Step, Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.random_models.drawing import Draw
    from tests.random_models.steps import Maker

MAKERS: Final[Mapping[str, Maker]] = {**layers_dense.MAKERS, **layers_conv.MAKERS}
_TRIES: Final = 30


def random_graph(draw: Draw) -> Graph:
    """Return a graph that begins with one input."""
    spec = _input(draw)
    nodes: list[Node] = []
    value = Value(ref=spec.id, shape=spec.shape)
    for _ in range(draw.whole(2, 7)):
        step = _step(draw, value)
        nodes.append(_node(draw, step, value))
        value = Value(ref=nodes[-1].id, shape=step.shape)
    return Graph(inputs=(spec,), nodes=tuple(nodes), outputs=(value.ref,))


def _input(draw: Draw) -> InputSpec:
    rank = draw.pick((1, 1, 2, 2, 3, 3, 4))
    sample = (*(draw.whole(4, 8) for _ in range(rank - 1)), draw.units())
    return InputSpec(id=draw.fresh(), shape=sample, sample=sample)


def _step(draw: Draw, value: Value) -> Step:
    names = sorted(MAKERS)
    for _ in range(_TRIES):
        step = MAKERS[draw.pick(names)](draw, value)
        if step is not None:
            return step
    return Step(what="Activation", config={"activation": "relu"}, shape=value.shape)


def _node(draw: Draw, step: Step, value: Value) -> Node:
    return Node(
        id=draw.fresh(),
        what=step.what,
        kind=step.kind,
        inputs=(value.ref,) * step.copies,
        config=step.config,
        call=step.call,
        spread=step.spread,
    )
