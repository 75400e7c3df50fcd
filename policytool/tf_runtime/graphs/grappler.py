"""
Single passes of grappler, TensorFlow's optimiser of graphs, run on a graph by themselves; and what
such graphs need before and after.

Passes are named, so that no other runs: with toggles some that cannot be turned off would. They are
told of devices that are only described, so that what is there decides nothing.
"""

from __future__ import annotations

import importlib
import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Sequence

CPU = "CPU"
GPU = "GPU"

_INLINING = "function"
"""The pass that writes functions out where they are called."""

_LOWERED = "_lower_using_switch_merge"
"""Attribute of loops and branches that the pass writes out as well."""

_BACK = ("NextIteration", "RefNextIteration")
"""Ops that close the loops of TF 1."""

_CAPABILITY = "8.0"
"""Of the GPU that is only described; mixed precision asks for 7.0 at least."""

_NUMBERS = itertools.count()


def optimised(graph_def: Any, kept: Sequence[str], option: str, device: str = CPU) -> Any:
    """
    Return a graph after one pass.

    :param kept: names of tensors whose ops stay as they are.
    :param option: the pass, as a field of RewriterConfig or a custom optimiser is called.
    :param device: the kind of device that everything is placed on.
    """
    meta_graph = _module("core.protobuf.meta_graph_pb2").MetaGraphDef()
    meta_graph.graph_def.CopyFrom(graph_def)
    for body in (
        meta_graph.graph_def.node,
        *(function.node_def for function in meta_graph.graph_def.library.function),
    ):
        # auto_mixed_precision_cpu fails (IndexError of a map of its own) where a node stands before
        # one of its inputs
        sort(body)
    meta_graph.collection_def["train_op"].node_list.value.extend(
        kept
    )  # what grappler takes for the fetches
    config = _module("core.protobuf.config_pb2").ConfigProto()
    options = config.graph_options.rewrite_options
    options.min_graph_nodes = -1
    options.meta_optimizer_iterations = 1
    options.optimizers.append(option)
    return _module("python.grappler.tf_optimizer").OptimizeGraph(
        config, meta_graph, verbose=False, cluster=_cluster(device)
    )


def knows(option: str) -> bool:
    """Return whether this release has heard of a pass; it may be built without it nonetheless."""
    return (
        option
        in _module("core.protobuf.rewriter_config_pb2").RewriterConfig.DESCRIPTOR.fields_by_name
    )


def inlined(function: Any, *, loops: bool) -> Any:
    """
    Return the graph of a concrete function with the functions that it calls inlined; its variables
    stay inputs.

    :param loops: whether loops and branches are lowered as well, as they are before TensorFlow
        itself runs mixed precision; else each stays one op.
    """
    graph_def = function.graph.as_graph_def()
    for library_function in graph_def.library.function:
        if (
            "api_implements" in library_function.attr
        ):  # another implementation for GPUs, which would replace the traced one
            del library_function.attr["api_implements"]
    if not loops:
        for node in nodes(graph_def):
            if _LOWERED in node.attr:
                node.attr[_LOWERED].b = False
    return optimised(graph_def, names(function), _INLINING)


def names(function: Any) -> list[str]:
    """Return the names of what goes into a concrete function, and of what comes out of it."""
    return [tensor.name for tensor in [*function.inputs, *function.outputs]]


def nodes(graph_def: Any) -> list[Any]:
    """Return the nodes of a graph and of its functions."""
    return [
        *graph_def.node,
        *(node for function in graph_def.library.function for node in function.node_def),
    ]


def has_old_loops(graph_def: Any) -> bool:
    """
    Return whether a graph has loops as TF 1 makes them, and as grappler writes out those of TF 2.
    """
    return any(node.op in _BACK for node in graph_def.node)


def rename(graph_def: Any, prefix: str) -> None:
    """
    Give the functions and loops of a graph names of their own: a process knows one function of a
    name, and a graph one loop.
    """
    own = "{}_{}_".format(prefix, next(_NUMBERS))
    new = {
        function.signature.name: own + function.signature.name
        for function in graph_def.library.function
    }
    for function in graph_def.library.function:
        function.signature.name = new[function.signature.name]
    for gradient in graph_def.library.gradient:
        gradient.function_name = new.get(gradient.function_name, gradient.function_name)
        gradient.gradient_func = new.get(gradient.gradient_func, gradient.gradient_func)
    for node in nodes(graph_def):
        node.op = new.get(node.op, node.op)
        for key, value in node.attr.items():
            if key == "frame_name":
                value.s = own.encode() + value.s
            for called in _called(value):
                called.name = new.get(called.name, called.name)


def _called(value: Any) -> list[Any]:
    """
    Return the functions that an attribute names; asking for one that is not there would make it.
    """
    kind = value.WhichOneof("value")
    if kind == "func":
        return [value.func]
    return list(value.list.func) if kind == "list" else []


def sort(body: Any) -> None:
    """Put each node after its inputs; what comes round a loop of TF 1 cannot be."""
    by_name = {node.name: node for node in body}
    placed: dict[str, Any] = {}
    for first in list(by_name):
        pending = [(first, False)]
        while pending:
            name, ready = pending.pop()
            if ready:
                placed.setdefault(name, by_name[name])
            elif name not in placed and name in by_name:
                pending.append((name, True))
                if by_name[name].op not in _BACK:
                    pending += [
                        (source.lstrip("^").partition(":")[0], False)
                        for source in reversed(by_name[name].input)
                    ]
    copies = [type(node).FromString(node.SerializeToString()) for node in placed.values()]
    del body[:]
    body.extend(copies)


def _cluster(kind: str) -> Any:
    """Return a virtual cluster with one CPU, and one GPU if the pass is for GPUs."""
    properties = _module("core.protobuf.device_properties_pb2")
    devices = []
    for device_kind in (CPU,) if kind == CPU else (CPU, GPU):
        device = properties.NamedDevice(
            name="/job:localhost/replica:0/task:0/device:{}:0".format(device_kind)
        )
        device.properties.type = device_kind
        device.properties.frequency = 1000
        device.properties.num_cores = 1
        if device_kind == GPU:
            device.properties.vendor = "NVIDIA"
            device.properties.environment.update(
                {"architecture": _CAPABILITY, "cuda": "12000", "cudnn": "8900"}
            )
        devices.append(device)
    return _module("python.grappler.cluster").Cluster(devices=devices)


def _module(name: str) -> Any:
    return importlib.import_module("tensorflow." + name)
