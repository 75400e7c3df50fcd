"""Graphs of random layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.random_models import (
    layers_attention,
    layers_conv,
    layers_dense,
    layers_preprocessing,
    layers_recurrent,
    layers_shape,
    op_steps,
)
from tests.random_models.description import Graph, InputSpec, Node
from tests.random_models.entries import ENTRIES, Entry
from tests.random_models.joins import join
from tests.random_models.pruning import prune
from tests.random_models.steps import Step, Value, static, step_result

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.random_models.description import Shape
    from tests.random_models.drawing import Draw
    from tests.random_models.steps import Maker

FAMILIES: Final[Mapping[str, Mapping[str, Maker]]] = {
    "dense": layers_dense.MAKERS,
    "conv": layers_conv.MAKERS,
    "shape": layers_shape.MAKERS,
    "recurrent": layers_recurrent.MAKERS,
    "attention": layers_attention.MAKERS,
    "preprocessing": layers_preprocessing.MAKERS,
    "op": op_steps.MAKERS,
    "rare": {**layers_preprocessing.RARE, **layers_attention.RARE, **layers_dense.RARE},
}
_WEIGHTS: Final = {
    1: "dense " * 10 + "shape preprocessing op op",
    2: "dense " * 5 + "recurrent " * 4 + "attention attention conv conv shape shape op op "
    "preprocessing",
    3: "dense dense dense " + "conv " * 4 + "shape " * 4 + "recurrent op preprocessing",
}
"""How often each family is drawn for a rank; of higher ones as for three."""

_RARE: Final = 0.008
_TRIES: Final = 40


class GraphDrawer:
    """A graph while it is drawn."""

    def __init__(self, draw: Draw, *, depth: int = 0) -> None:
        self.draw = draw
        self.depth = depth
        self.specs: list[InputSpec] = []
        self.nodes: list[Node] = []
        self.values: list[Value] = []
        """Any of these can be used again."""

        self.leaves: list[Value] = []
        """Branches that go on."""

        self.taken: dict[str, Shape] = {}
        """The shapes that layers with one input take, for calls of shared ones."""

    def enter(self, entry: Entry) -> None:
        """Begin a branch."""
        self.specs.append(entry.spec)
        self.nodes += entry.nodes
        self.values.append(entry.value)
        self.leaves.append(entry.value)

    def grow(self) -> None:
        """Let one branch go on by a node."""
        draw = self.draw
        number = draw.whole(0, len(self.leaves) - 1)
        value, chance = self.leaves[number], draw.random.random()
        if chance < 0.2:
            others = [item for item in self.values if item.ref != value.ref]
            result = join(draw, value, draw.pick(others)) if others else None
            if result is None:
                result = self._residual(value)
            self._add(number, *result)
        elif chance < 0.26 and self._share(number, value):
            return
        elif chance < 0.33 and self.depth < 2:
            self._nest(number, value)
        else:
            self._follow(number, value)

    def _add(self, number: int, node: Node, result: Value) -> None:
        self.nodes.append(node)
        self.values.append(result)
        self.leaves[number] = result

    def _follow(self, number: int, value: Value) -> None:
        step = draw_step(self.draw, value)
        node = node_from_step(self.draw, step, value)
        if node.kind == "layer" and len(node.inputs) == 1:
            self.taken[node.id] = value.shape
        self._add(number, node, step_result(step, value, node.id))
        for extra in range(1, step.several):
            if step.what in {"LSTM", "GRU", "SimpleRNN"} and self.draw.chance(0.4):
                shape = (step.shape[-1],)
                self.leaves.append(Value(ref=f"{node.id}:{extra}", shape=shape))

    def _residual(self, value: Value) -> tuple[Node, Value]:
        """Join a value with what an activation makes of it."""
        node = Node(
            id=self.draw.fresh(),
            what="Activation",
            inputs=(value.ref,),
            config={"activation": "tanh"},
        )
        self.nodes.append(node)
        result = join(self.draw, value, Value(ref=node.id, shape=value.shape, origin=value.origin))
        return (
            result
            if result is not None
            else (
                node,
                Value(ref=node.id, shape=value.shape, origin=value.origin),
            )
        )

    def _share(self, number: int, value: Value) -> bool:
        """Call a layer again on another value of the same shape; false if there is none."""
        by_id = {node.id: node for node in self.nodes}
        fitting = [
            by_id[name]
            for name, shape in self.taken.items()
            if shape == value.shape and by_id[name].inputs != (value.ref,)
        ]
        if not fitting:
            return False
        shared = self.draw.pick(fitting)
        result = next((item for item in self.values if item.ref == shared.id), None)
        if result is None:
            return False
        node = Node(
            id=self.draw.fresh(),
            what=shared.what,
            kind=shared.kind,
            inputs=(value.ref,),
            reuse=shared.id,
        )
        self._add(number, node, Value(ref=node.id, shape=result.shape, origin=node.id))
        return True

    def _nest(self, number: int, value: Value) -> None:
        """Call a model on a value."""
        draw = self.draw
        inner = GraphDrawer(draw, depth=self.depth + 1)
        spec = InputSpec(id=draw.fresh(), shape=value.shape, sample=value.shape)
        inner.enter(Entry(spec=spec, nodes=(), value=Value(ref=spec.id, shape=value.shape)))
        for _ in range(draw.whole(1, 3)):
            inner.grow()
        graph = inner.graph(inner.leaves[:1])
        if not graph.nodes:
            return self._follow(number, value)
        node = Node(
            id=draw.fresh(), what=graph.kind, kind="model", inputs=(value.ref,), graph=graph
        )
        self.taken[node.id] = value.shape
        return self._add(
            number, node, Value(ref=node.id, shape=inner.leaves[0].shape, origin=node.id)
        )

    def graph(self, outputs: list[Value]) -> Graph:
        """Return the graph, without nodes that lead to no output."""
        graph = prune(
            Graph(
                inputs=tuple(self.specs),
                nodes=tuple(self.nodes),
                outputs=tuple(output.ref for output in outputs),
            )
        )
        return as_sequential(graph) if self.draw.chance(0.5) else graph


def as_sequential(graph: Graph) -> Graph:
    """Return the same graph as a Sequential model, if it is a row of layers."""
    before = graph.inputs[0].id
    for node in graph.nodes:
        plain = node.kind != "op" and not node.reuse and not node.call
        if not plain or node.inputs != (before,) or node.config.get("return_state"):
            return graph
        before = node.id
    if len(graph.inputs) > 1 or graph.outputs != (before,):
        return graph
    return Graph(kind="sequential", inputs=graph.inputs, nodes=graph.nodes, outputs=graph.outputs)


def draw_step(draw: Draw, value: Value) -> Step:
    """Return a step that the value's shape allows."""
    weights = _WEIGHTS.get(value.rank, _WEIGHTS[3]).split()
    for _ in range(_TRIES):
        makers = FAMILIES["rare" if draw.chance(_RARE) else draw.pick(weights)]
        step = makers[draw.pick(sorted(makers))](draw, value)
        if step is not None:
            return step
    return Step(what="Activation", config={"activation": "relu"}, shape=value.shape)


def node_from_step(draw: Draw, step: Step, value: Value) -> Node:
    """Return the node of a step."""
    return Node(
        id=draw.fresh(),
        what=step.what,
        kind=step.kind,
        inputs=(value.ref,) * step.copies,
        config=step.config,
        call=step.call,
        spread=step.spread,
    )


def random_graph(draw: Draw) -> Graph:
    """Return a graph with one to three inputs."""
    drawer = GraphDrawer(draw)
    kinds = [kind for kind, weight in ENTRIES.items() for _ in range(weight)]
    for _ in range(draw.pick((1, 1, 1, 2, 2, 3))):
        drawer.enter(draw.pick(kinds)(draw))
    for _ in range(draw.whole(2, 9)):
        drawer.grow()
    if len(drawer.leaves) > 1 and draw.chance(0.65):
        _gather(drawer)
    graph = drawer.graph(drawer.leaves)
    return graph if graph.nodes else random_graph(draw)


def _gather(drawer: GraphDrawer) -> None:
    """Flatten all branches and join them."""
    refs, size = [], 0
    for value in drawer.leaves:
        node = _flat_node(drawer.draw, value)
        drawer.nodes += [node] if node is not None else []
        refs.append(node.id if node is not None else value.ref)
        total = 1
        for item in static(value.shape) or (value.channels or 1,):
            total *= item
        size += value.channels or 1 if node and node.what.startswith("Global") else total
    draw = drawer.draw
    joined = Node(id=draw.fresh(), what="Concatenate", inputs=tuple(refs))
    last = Node(id=draw.fresh(), what="Dense", inputs=(joined.id,), config={"units": draw.units()})
    drawer.nodes += [joined, last]
    drawer.leaves = [Value(ref=last.id, shape=(last.config["units"],))]


def _flat_node(draw: Draw, value: Value) -> Node | None:
    if value.rank == 1:
        return None
    pools = value.rank in {2, 3, 4} and (static(value.shape) is None or draw.chance(0.5))
    what = f"GlobalAveragePooling{value.rank - 1}D" if pools else "Flatten"
    return Node(id=draw.fresh(), what=what, inputs=(value.ref,))
