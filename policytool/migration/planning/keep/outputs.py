"""
Outputs in float32: the layers that compute a model's outputs, those that follow them, and a softmax
on the way there.

TensorFlow's guide "Mixed precision" asks for float32 outputs and a float32 softmax at the end; a
softmax in the middle may be 16-bit. float32 in the last layer alone is not enough where it is a
Reshape or an activation: the layer before it has rounded the values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.migration.planning import operations
from policytool.migration.planning.keep._base import KeepRule
from policytool.migration.planning.keep._output_origins import output_origins
from policytool.model.tree import MODEL_CLASSES
from policytool.releases import keras_objects
from policytool.releases.layer_classes import layer_facts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.model.layer_graph import Graph
    from policytool.model.loaded_model import LoadedModel
    from policytool.releases.policy import Policy

OUTPUT: Final = "it computes the output of the model, which is kept in float32"
SHAPED: Final = "it shapes or activates the output of the model, which is kept in float32"
SOFTMAX: Final = (
    "it is a softmax before the output, and its small probabilities would be lost in 16 bits"
)
BETWEEN: Final = "it is between a softmax and the output"


def find(loaded: LoadedModel, _policy: Policy) -> Iterator[tuple[int, str]]:
    """Yield what computes the outermost model's outputs, and what is on the way there."""
    origins = output_origins(loaded)
    yield from ((index, OUTPUT) for index in origins.computing)
    yield from ((index, SHAPED) for index in origins.shaping)
    yield from on_the_way_out(loaded)


def on_the_way_out(loaded: LoadedModel) -> Iterator[tuple[int, str]]:
    """
    Yield the layers that make the outermost model's outputs, and a softmax before them with what
    follows it; each with what it is.
    """
    if 0 in loaded.graphs:
        yield from _of_model(loaded, loaded.graphs[0])


def makers(loaded: LoadedModel, graph: Graph, names: tuple[str, ...]) -> Iterator[str]:
    """
    Yield the layers that make the tensors of these nodes: the nodes themselves, or what feeds them
    where they are operations that cast nothing.
    """
    pending, seen = list(reversed(names)), set[str]()
    while pending:
        name = pending.pop()
        if name in seen or name not in graph.nodes:
            continue
        seen.add(name)
        node = graph.nodes[name]
        if node.site is None or layer_facts(loaded.sites[node.site].class_name).is_op_layer:
            pending += () if operations.casts(node) else reversed(node.parents)
        else:
            yield name


def _of_model(loaded: LoadedModel, graph: Graph) -> Iterator[tuple[int, str]]:
    for name in makers(loaded, graph, graph.outputs):
        yield from _unit(loaded, graph, name, OUTPUT)
    for name, reason in _softmaxes(loaded, graph):
        yield from _unit(loaded, graph, name, reason)


def _unit(loaded: LoadedModel, graph: Graph, name: str, reason: str) -> Iterator[tuple[int, str]]:
    """Yield a layer and what is in it: a nested model's own outputs, all of any other."""
    index = graph.nodes[name].site
    if index is None or loaded.is_input(index):
        return
    if loaded.sites[index].class_name in MODEL_CLASSES:
        if index in loaded.graphs:
            yield from _of_model(loaded, loaded.graphs[index])
        return
    for found in loaded.below(index):
        if (
            loaded.sites[found].class_name in MODEL_CLASSES and found in loaded.graphs
        ):  # a model in a TimeDistributed
            yield from _of_model(loaded, loaded.graphs[found])
            return
        yield found, reason


def _softmaxes(loaded: LoadedModel, graph: Graph) -> Iterator[tuple[str, str]]:
    """
    Yield each softmax between the last weighted layers and the outputs, and what stands behind it.
    """
    pending: list[tuple[str, str | None]] = [(name, None) for name in graph.outputs]
    behind: dict[str, str | None] = {}
    told = set[str]()
    while pending:
        name, next_one = pending.pop()
        node = graph.nodes.get(name)
        if node is None or name in behind:
            continue
        behind[name] = next_one
        index = node.site
        if index is not None and is_softmax(loaded, index):
            yield name, SOFTMAX
            while (
                next_one is not None and next_one not in told
            ):  # each once: there may be as many softmaxes as layers
                told.add(next_one)
                yield next_one, BETWEEN
                next_one = behind[next_one]
        if index is None or not _has_weights_below(loaded, index):
            pending += [(parent, name) for parent in node.parents]


def _has_weights_below(loaded: LoadedModel, index: int) -> bool:
    return any(loaded.has_weights(found) for found in loaded.below(index))


def is_softmax(loaded: LoadedModel, index: int) -> bool:
    """Return whether the layer is a softmax, or ends in one."""
    activation = layer_facts(loaded.sites[index].class_name).activation or keras_objects.name_of(
        loaded.config(index).get("activation")
    )
    return activation is not None and activation.lower() in {"softmax", "log_softmax"}


RULE: Final = KeepRule(name="outputs", find=find)
