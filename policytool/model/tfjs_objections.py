"""The reasons why TensorFlow.js fails to load a layers model, or has other predictions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from policytool.model.calls import Reference
from policytool.model.model import Cause, Obstacle
from policytool.model.tree import INPUT_CLASS, path_of
from policytool.releases import keras_objects, known_arguments, tfjs_layers
from policytool.releases.layer_classes import layer_facts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.model.calls import Argument, Call, ModelCalls
    from policytool.model.layer_graph import Graph, GraphNode
    from policytool.model.loaded_model import LoadedModel
    from policytool.model.tree import Site

_INPUT_SHAPE: Final = "batch_input_shape"
_NORMALIZATION: Final = "BatchNormalization"
_NAME: Final = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._/]*")
"""The layer names that TensorFlow.js accepts at the start of the name of a variable."""


def objections(loaded: LoadedModel) -> Iterator[Cause]:
    """Yield each reason why TensorFlow.js 4.22 fails to load a model, or predicts other values."""
    if loaded.is_keras3:
        yield Cause(
            kind=Obstacle.MODEL,
            reason="the config has the format of Keras 3, such as batch_shape of input layers",
        )
        return
    for group in loaded.stored.objects:
        if group.kind != known_arguments.LAYERS and not tfjs_layers.is_known(group.class_name):
            yield Cause(
                kind=Obstacle.CLASS,
                reason=f"TensorFlow.js has no {group.class_name}",
                layers=tuple(group.layers),
                class_name=group.class_name,
            )
    masked = any(map(_makes_masks, loaded.sites))
    of_layers = [cause for site in loaded.sites for cause in _layer_objections(site, masked=masked)]
    yield from of_layers
    for graph in loaded.graphs.values():
        yield from _axis_objections(loaded, graph)
    refused = {path for cause in of_layers for path in cause.layers}
    for model, graph in loaded.graphs.items():
        if graph.source is not None:
            for cause in _call_objections(path_of(loaded.sites[model].names), graph.source):
                if refused.isdisjoint(cause.layers):
                    yield cause


def _axis_objections(loaded: LoadedModel, graph: Graph) -> Iterator[Cause]:
    """
    Yield the layers whose axis is not the last: TensorFlow.js always normalizes along the last axis
    (fixtures/tfjs_layers.py, ``BatchNormalization[axis=1]``).
    """
    for node in graph.nodes.values():
        axes = node.config.get("axis")
        axis = axes[0] if isinstance(axes, list) and len(axes) == 1 else axes
        if node.class_name != _NORMALIZATION or node.site is None or not isinstance(axis, int):
            continue
        rank = _input_rank(graph, node)
        if rank is not None and axis not in {-1, rank - 1}:
            yield Cause(
                kind=Obstacle.KEY,
                reason=f"TensorFlow.js normalizes along the last axis, not along axis {axis}",
                layers=(path_of(loaded.sites[node.site].names),),
                class_name=_NORMALIZATION,
                keys=("axis",),
            )


def _input_rank(graph: Graph, node: GraphNode) -> int | None:
    """Return the number of dimensions of a layer's input; None if it is unknown."""
    while True:
        shape = node.config.get(_INPUT_SHAPE)
        if isinstance(shape, list):
            return len(shape)
        if len(node.parents) != 1:
            return None
        node = graph.nodes[node.parents[0]]
        rank = layer_facts(node.class_name).rank
        if isinstance(rank, int):
            return rank
        if rank != "input" and node.class_name != INPUT_CLASS:
            return None


def _call_objections(path: str, calls: ModelCalls) -> Iterator[Cause]:
    """Yield the parts of a functional model's calls that TensorFlow.js does not support."""
    for layer in calls.layers:
        if not all(map(_has_only_tensors, layer.calls)):
            yield Cause(
                kind=Obstacle.MODEL,
                reason="TensorFlow.js calls layers only with a tensor or a list of tensors",
                layers=(f"{path}/{layer.name}",),
            )
    if not (_are_tensors(calls.inputs) and _are_tensors(calls.outputs)):
        yield Cause(
            kind=Obstacle.MODEL,
            reason="TensorFlow.js supports only lists of inputs and outputs",
            layers=(path,),
        )


def _has_only_tensors(call: Call) -> bool:
    """Return whether all inputs of a call are positional tensors, and no keyword has an effect."""
    return all(map(_are_tensors, call.args)) and not any(
        value not in (None, False) for value in call.kwargs.values()
    )


def _are_tensors(argument: Argument) -> bool:
    """Return whether an argument is a tensor or a list of tensors."""
    tensors = argument if isinstance(argument, list | tuple) else [argument]
    return all(isinstance(tensor, Reference) for tensor in tensors)


def _makes_masks(site: Site) -> bool:
    config = site.config or {}
    return site.class_name == "Masking" or config.get("mask_zero") is True


def _layer_objections(site: Site, *, masked: bool) -> Iterator[Cause]:
    """Yield the reasons why TensorFlow.js fails on one layer."""
    path, config = path_of(site.names), site.config
    if config is None:
        return
    if not layer_facts(site.class_name).is_model and not tfjs_layers.is_known(site.class_name):
        yield Cause(
            kind=Obstacle.CLASS,
            reason=f"TensorFlow.js has no layer {site.class_name}",
            layers=(path,),
            class_name=site.class_name,
        )
        return
    reason = tfjs_layers.objection(site.class_name, config, masked=masked)
    if reason is None and not _NAME.fullmatch(site.names[-1]):
        reason = f"TensorFlow.js does not accept the layer name {site.names[-1]}"
    if reason is None and config.get("backward_layer") is not None:
        reason = "TensorFlow.js does not read the backward_layer of a Bidirectional"
    if reason is None and site.class_name == "Sequential" and not _has_input(config):
        reason = "TensorFlow.js requires batch_input_shape in the first layer of a Sequential model"
    if reason is not None:
        yield Cause(
            kind=Obstacle.KEY,
            reason=reason,
            layers=(path,),
            class_name=site.class_name,
        )


def _has_input(config: object) -> bool:
    """Return whether the first layer of a Sequential, or of a model in it, declares a shape."""
    layers = keras_objects.layer_list(config)
    first = layers[0] if layers else None
    inner = first.get("config") if isinstance(first, dict) else None
    return isinstance(inner, dict | list) and (
        _INPUT_SHAPE in keras_objects.arguments_of(first)
        or keras_objects.class_of(first) == INPUT_CLASS
        or _has_input(inner)
    )
