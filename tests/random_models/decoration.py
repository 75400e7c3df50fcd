"""Names and dtype policies of the layers of a graph."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.random_models.description import Graph, Node
    from tests.random_models.drawing import Draw

POLICIES: Final = (
    *("float32",) * 12,
    *("float64", "float64", "mixed_float16", "mixed_float16", "mixed_bfloat16", "mixed_bfloat16"),
    *("float16", "bfloat16"),
)
_NAMES: Final = (
    *("dense_7", "Dense", "embedding_8", "add_9", "lstm_11", "input_9", "layer", "conv2d_07"),
    *("_x", "block.1.conv", "block-2", "a b", "x__y", "Größe", "tf.math.add", "kernel", "1x1"),
    *("out_0", "sequential_9", "model_7", "weights", "vars", "layers", "a.b", "bias_0"),
)
_TF_KERAS_NAMES: Final = ("block/conv", "encoder/layer_0/attention")
_SCOPE: Final = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*")
"""The names that tf_keras takes."""

_OTHER_POLICIES: Final = ("float32", "float64", "mixed_float16", "mixed_bfloat16", "bfloat16")
_WITH_POLICY: Final = frozenset(
    {
        *("Dense", "Conv1D", "Conv2D", "Activation", "Dropout", "LayerNormalization", "ReLU"),
        *("BatchNormalization", "LSTM", "GRU", "SeparableConv2D", "DepthwiseConv2D", "Softmax"),
    }
)


def decorate(draw: Draw, graph: Graph, policy: str) -> Graph:
    """Return a graph some of whose layers have names and policies of their own."""
    graph = _name_layers(draw, graph) if draw.chance(0.4) else graph
    joined = any(node.kind == "op" and len(node.inputs) > 1 for node in graph.walk())
    if draw.chance(0.2) and (draw.keras3 or not joined):
        graph = _with_policies(draw, graph)
    if policy.startswith("mixed") and draw.chance(0.4):
        graph = _with_float_outputs(graph)
    return graph


def _name_layers(draw: Draw, graph: Graph) -> Graph:
    is_subclassed = graph.kind == "subclassed"  # a class of a user has its names in its code
    every = _NAMES if draw.keras3 or is_subclassed else (*_NAMES, *_TF_KERAS_NAMES)
    odd = draw.keras3 and draw.chance(0.1)  # seldom: each one hides what else may be wrong
    names = [name for name in every if odd or _SCOPE.fullmatch(name)]
    draw.random.shuffle(names)
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.kind == "op" or node.reuse or not names or draw.chance(0.6):
            nodes.append(node)
        elif node.graph is not None:
            nodes.append(replace(node, graph=replace(node.graph, name=names.pop())))
        else:
            nodes.append(replace(node, config={**node.config, "name": names.pop()}))
    inputs = tuple(
        replace(spec, name=spec.name or f"{draw.pick(('ids', 'x', 'my-input'))}{number}")
        if draw.chance(0.5)
        else spec
        for number, spec in enumerate(graph.inputs)
    )
    name = draw.pick(("my_model", "Model", None, "model-1"))
    return replace(graph, nodes=tuple(nodes), inputs=inputs, name=name)


def _with_policies(draw: Draw, graph: Graph) -> Graph:
    """
    Return a graph some of whose layers have policies of their own: not one that a class of a user
    calls on masked steps, for Keras 2 loses the mask of what a user's layer casts, and Keras 3
    does not, whatever a conversion does.
    """
    if graph.kind == "subclassed" and any(node.what == "Masking" for node in graph.nodes):
        return graph
    nodes = tuple(
        replace(node, config={**node.config, "dtype": draw.pick(_OTHER_POLICIES)})
        if node.what in _WITH_POLICY - {"LSTM", "GRU"} and not node.reuse and draw.chance(0.3)
        else node
        for node in graph.nodes
    )
    return replace(graph, nodes=nodes)


def _with_float_outputs(graph: Graph) -> Graph:
    nodes = tuple(
        replace(node, config={**node.config, "dtype": "float32"})
        if node.id in graph.outputs and node.what in _WITH_POLICY and not node.reuse
        else node
        for node in graph.nodes
    )
    return replace(graph, nodes=nodes)
