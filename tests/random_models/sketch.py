"""Graphs of well-known shapes, written down layer by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.random_models.description import Graph, InputSpec, Node

if TYPE_CHECKING:
    from tests.random_models.description import Shape
    from tests.random_models.drawing import Draw


class Sketch:
    """A graph while it is written; each method returns the identifier of a value."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.specs: list[InputSpec] = []
        self.nodes: list[Node] = []

    def floats(self, *shape: int | None, values: str = "normal", batch: int | None = None) -> str:
        """Add an input of floats; None is an unknown size."""
        sample: Shape = tuple(size or self.draw.open_length for size in shape)
        return self._input(shape=shape, sample=sample, values=values, batch=batch)

    def ids(self, length: int | None, bound: int, values: str = "ids") -> str:
        """Add an input of whole numbers below a bound."""
        size = length or self.draw.open_length
        return self._input(
            shape=(length,), sample=(size,), dtype="int32", values=values, bound=bound
        )

    def characters(self, words: int, length: int, bound: int) -> str:
        """Add an input of words that are whole numbers below a bound."""
        shape = (words, length)
        return self._input(shape=shape, sample=shape, dtype="int32", values="ints", bound=bound)

    def _input(self, **options: Any) -> str:
        spec = InputSpec(id=self.draw.fresh(), **options)
        self.specs.append(spec)
        return spec.id

    def layer(self, what: str, *refs: str, **config: Any) -> str:
        """Add a layer that takes one value, or a list of them."""
        return self._add(what=what, inputs=refs, config=config)

    def spread(self, what: str, *refs: str, call: dict[str, Any], **config: Any) -> str:
        """Add a layer that takes its inputs one by one."""
        return self._add(what=what, inputs=refs, config=config, call=call, spread=True)

    def op(self, what: str, *refs: str, **config: Any) -> str:
        """Add an op."""
        return self._add(what=what, kind="op", inputs=refs, config=config)

    def again(self, layer: str, *refs: str) -> str:
        """Call a layer or a model once more."""
        first = next(node for node in self.nodes if node.id == layer)
        return self._add(what=first.what, kind=first.kind, inputs=refs, reuse=layer)

    def model(self, graph: Graph, *refs: str) -> str:
        """Call a model in the model."""
        return self._add(what=graph.kind, kind="model", inputs=refs, graph=graph)

    def state(self, layer: str, number: int) -> dict[str, str]:
        """Return a further output of a layer as an argument of a call."""
        return {"ref": f"{layer}:{number}"}

    def _add(self, **options: Any) -> str:
        node = Node(id=self.draw.fresh(), **options)
        self.nodes.append(node)
        return node.id

    def graph(self, *outputs: str, kind: str = "functional") -> Graph:
        """Return the graph with these outputs."""
        return Graph(kind=kind, inputs=tuple(self.specs), nodes=tuple(self.nodes), outputs=outputs)
