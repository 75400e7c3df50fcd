"""
A model of no library: what layers it has, how they are connected, and how it is trained and saved.

Descriptions are pure data that JSON can hold. ``live.py`` builds them, in either library.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


Shape = tuple[int | None, ...]
"""Without the batch; None where any size fits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class InputSpec:
    """An input of a model, and the values that it is called with."""

    id: str
    shape: Shape
    sample: Shape
    """The shape of the values: that of the input, with a size for each None."""

    dtype: str = "float32"
    values: str = "normal"
    """
    ``normal``, ``image``, ``ints``, ``words``; with padding ``ids``, ``padded`` steps, ``mask``.
    """

    bound: int = 0
    """Above each value, if these are whole numbers."""

    name: str | None = None
    batch: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """One call of a layer, of an op, or of a model in a model."""

    id: str
    what: str
    """The class of a layer, the name of an op, or the kind of a model."""

    inputs: tuple[str, ...] = ()
    """Identifiers of values; ``n3:1`` is the second output of ``n3``."""

    kind: str = "layer"
    """``layer``, ``op`` or ``model``."""

    config: Mapping[str, Any] = field(default_factory=dict)
    """
    Arguments of the constructor or of the op; ``{"class": ..., "config": ...}`` is a layer.
    """

    call: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of the call; ``{"ref": ...}`` is a value."""

    spread: bool = False
    """Whether the layer takes its inputs one by one, and not as a list."""

    reuse: str | None = None
    """The node whose layer this one calls again."""

    graph: Graph | None = None
    """The model in the model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Graph:
    """Layers and how they are connected."""

    kind: str = "functional"
    """``functional``, ``sequential`` or ``subclassed``."""

    inputs: tuple[InputSpec, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    structure: str = "plain"
    """How several inputs and outputs are given: ``plain`` (a list) or ``dict``."""

    name: str | None = None

    def walk(self) -> Iterator[Node]:
        """Yield the nodes, those of models in it too."""
        for node in self.nodes:
            yield node
            if node.graph is not None:
                yield from node.graph.walk()


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """What a model is compiled with, and what is done then."""

    optimizer: Mapping[str, Any]
    loss: Any
    metrics: Any = None
    loss_weights: Any = None
    weighted_metrics: Any = None
    jit_compile: bool | None = None
    step: str = "apply"
    """``apply`` random gradients, ``train`` on a batch, or ``none``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """A model that is built, trained and saved."""

    seed: int
    library: str
    """``keras`` or ``tf_keras``."""

    family: str
    """``random``, or the name of a well-known shape."""

    graph: Graph
    policy: str = "float32"
    floatx: bool = False
    """Whether the policy is the library's float type, too."""

    container: str = "keras"
    """``keras``, ``h5`` or ``tf``."""

    training: Training | None = None


def to_json(recipe: Recipe) -> str:
    """Return a description as a line of JSON."""
    return json.dumps(asdict(recipe))


def from_json(text: str) -> Recipe:
    """Return the description that a line of JSON holds."""
    result = json.loads(text)
    training = Training(**result["training"]) if result.get("training") else None
    return Recipe(**{**result, "graph": graph_from_json(result["graph"]), "training": training})


def as_json(graph: Graph) -> Any:
    """Return a graph as JSON values, for an argument of a layer."""
    return json.loads(json.dumps(asdict(graph)))


def graph_from_json(found: Any) -> Graph:
    """Return the graph that JSON values say."""
    inputs = tuple(
        InputSpec(
            **{
                **input_value,
                "shape": tuple(input_value["shape"]),
                "sample": tuple(input_value["sample"]),
            }
        )
        for input_value in found["inputs"]
    )
    nodes = tuple(
        Node(
            **{
                **node,
                "inputs": tuple(node.get("inputs", ())),
                "graph": graph_from_json(node["graph"]) if node.get("graph") else None,
            }
        )
        for node in found["nodes"]
    )
    return Graph(**{**found, "inputs": inputs, "nodes": nodes, "outputs": tuple(found["outputs"])})


def without_policies(graph: Graph) -> Graph:
    """Return a graph whose layers have the global policy."""
    nodes = tuple(
        replace(
            node,
            config={
                key: value
                for key, value in node.config.items()
                if key != "dtype" or node.kind == "op"
            },
            graph=without_policies(node.graph) if node.graph is not None else None,
        )
        for node in graph.nodes
    )
    return replace(graph, nodes=nodes)


def short_form(recipe: Recipe) -> Any:
    """Return a description for people, as JSON: without what is as usual."""
    return _without_defaults(json.loads(to_json(recipe)))


def _without_defaults(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_defaults(item) for item in value]
    if not isinstance(value, dict) or not {"id", "graph", "nodes"} & set(value):
        return value  # arguments
    return {
        key: _without_defaults(item)
        for key, item in value.items()
        if item not in (None, [], {}) and item is not False and (key, item) not in _USUAL
    }


_USUAL: Final = (("kind", "layer"), ("kind", "functional"), ("structure", "plain"))
