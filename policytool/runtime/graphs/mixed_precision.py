"""
TensorFlow's automatic mixed precision: passes of grappler, the graph optimizer of TensorFlow, that
rewrite a graph to 16 bits.

policytool runs one pass at a time, by its name. With the toggles of TensorFlow, other passes would
run too, because some cannot be turned off. It describes the devices to the pass, so that the
devices of this machine do not change the result.

The available passes depend on the release, its build, oneDNN and the processor. policytool tries
each pass on a graph of two matrix products to see whether it rewrites anything here. Measured with
TF 2.2 to 2.21 on a CPU:

- bfloat16 on a CPU: ``auto_mixed_precision_onednn_bfloat16``, whose name before TF 2.10 is
  ``auto_mixed_precision_mkl``. Both need oneDNN, which is enabled by default since TF 2.9, and with
  ``TF_ENABLE_ONEDNN_OPTS=1`` since TF 2.5.
- float16 on a GPU: ``auto_mixed_precision``.
- float16 on a CPU: ``auto_mixed_precision_cpu``, since TF 2.9. Ops compute in float32, and their
  inputs and outputs are rounded to float16. If this pass fails, policytool uses the pass for GPUs
  with a described GPU, if TensorFlow is built for CUDA. The rewritten graph then runs with the
  float16 kernels of the CPU.
- bfloat16 on a GPU: no pass.

The emulation and the pass for GPUs choose the same ops on every measured graph (TF 2.21 built for
CUDA), except ops without float outputs.
"""

from __future__ import annotations

import importlib
import itertools
import os
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..library import Refused, sentence

if TYPE_CHECKING:
    from typing import Any, Sequence


CPU = "CPU"
GPU = "GPU"

_INLINING = "function"
"""The pass that inlines functions."""

_LOWERED = "_lower_using_switch_merge"
"""The attribute of loops and branches that the pass inlines too."""

_BACK = ("NextIteration", "RefNextIteration")
"""The ops that close loops of TF 1."""

_CAPABILITY = "8.0"
"""The compute capability of the described GPU; mixed precision needs at least 7.0."""

_NUMBERS = itertools.count()


def run_pass(graph_def: Any, kept: Sequence[str], option: str, device: str = CPU) -> Any:
    """
    Return a graph after one pass.

    :param kept: the names of tensors whose ops do not change
    :param option: the pass, by its field of RewriterConfig or its name as a custom optimizer
    :param device: the kind of device on which everything is placed
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


def has_pass(option: str) -> bool:
    """Return whether this release of TensorFlow knows a pass, although its build may lack it."""
    return (
        option
        in _module("core.protobuf.rewriter_config_pb2").RewriterConfig.DESCRIPTOR.fields_by_name
    )


def inline_functions(function: Any, *, loops: bool) -> Any:
    """
    Return the graph of a concrete function in which the functions that it calls are inlined. Its
    variables stay inputs.

    :param loops: whether to lower loops and branches as well, as TensorFlow does before mixed
        precision; otherwise, each stays one op
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
    return run_pass(graph_def, names(function), _INLINING)


def names(function: Any) -> list[str]:
    """Return the names of the inputs and of the outputs of a concrete function."""
    return [tensor.name for tensor in [*function.inputs, *function.outputs]]


def nodes(graph_def: Any) -> list[Any]:
    """Return the nodes of a graph and of its functions."""
    return [
        *graph_def.node,
        *(node for function in graph_def.library.function for node in function.node_def),
    ]


def has_old_loops(graph_def: Any) -> bool:
    """Return whether a graph has loops of TF 1, to which grappler also converts those of TF 2."""
    return any(node.op in _BACK for node in graph_def.node)


def rename(graph_def: Any, prefix: str) -> None:
    """
    Give the functions and loops of a graph unique names, because a process has one function and a
    graph one loop of a name.
    """
    prefix_of_graph = "{}_{}_".format(prefix, next(_NUMBERS))
    new = {
        function.signature.name: prefix_of_graph + function.signature.name
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
                value.s = prefix_of_graph.encode() + value.s
            for called in _called_functions(value):
                called.name = new.get(called.name, called.name)


def _called_functions(value: Any) -> list[Any]:
    """
    Return the functions that an attribute names, without reading missing ones, which would create
    them.
    """
    kind = value.WhichOneof("value")
    if kind == "func":
        return [value.func]
    return list(value.list.func) if kind == "list" else []


def sort(body: Any) -> None:
    """Put each node after its inputs, except for the inputs that close a loop of TF 1."""
    by_name = {node.name: node for node in body}
    placed: dict[str, Any] = {}
    for first in list(by_name):
        pending = [(first, False)]
        while pending:
            name, is_ready = pending.pop()
            if is_ready:
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


ONEDNN = ("auto_mixed_precision_onednn_bfloat16", "auto_mixed_precision_mkl")
CUDA = "auto_mixed_precision"
EMULATED = "auto_mixed_precision_cpu"
"""The pass that rounds inputs and outputs of ops without changing their dtype."""

SUFFIX = "AutoMixedPrecision"
"""The suffix of the names of casts that a pass adds."""

FLOAT16 = "mixed_float16"
BFLOAT16 = "mixed_bfloat16"

_FIRST = (2, 4)
"""
The first TensorFlow in which functions do not read placeholders that an imported graph replaced.
"""

_MEDDLING = ("TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_", "TF_ENABLE_AUTO_MIXED_PRECISION")
"""
Environment variables that change the lists of a pass, or apply it to all graphs, including that of
the reference.
"""

_SAID = {
    CUDA: "TensorFlow's rewrite for GPUs",
    EMULATED: (
        "TensorFlow's emulation of float16 on CPUs: inputs and outputs of ops are "
        "rounded to float16, but ops compute in float32"
    ),
}


class Rewrite(NamedTuple):
    """A pass that works in this TensorFlow."""

    option: str
    """The name of the pass in RewriterConfig."""

    device: str
    """The type of the device for which the pass runs."""

    said: str

    @property
    def emulates(self) -> bool:
        """Whether ops stay in float32, and only their inputs and outputs are rounded."""
        return self.option == EMULATED


def clear_environment() -> list[str]:
    """
    Remove the environment variables by which a user changes a pass, and return their names:
    TensorFlow's default behavior is measured.
    """
    names = sorted(name for name in os.environ if name.startswith(_MEDDLING))
    for name in names:
        del os.environ[name]
    return names


def choose_rewrites(tf: Any, policy: str, device: str) -> list[Rewrite]:
    """
    Return the passes that rewrite to a policy for a device (``cpu``, ``gpu:0``), the best first.

    :raises Refused: if there is none; the message suggests what would work.
    """
    on_gpu = device.lower().startswith("gpu")
    if policy not in (FLOAT16, BFLOAT16):
        raise Refused(
            "no-rewrite",
            "a graph can be rewritten only to {} or {}, not to {}".format(
                FLOAT16, BFLOAT16, policy
            ),
        )
    if on_gpu and policy == BFLOAT16:
        raise Refused(
            "no-rewrite",
            "TensorFlow rewrites graphs to bfloat16 only for CPUs; use --device cpu, or "
            "--to mixed_float16 for a GPU",
        )
    if tuple(int(part) for part in tf.__version__.split(".")[:2]) < _FIRST:
        text = (
            "TensorFlow {} cannot run the original graph and the rewritten graph together; "
            "use --python to specify an interpreter with TensorFlow 2.9 or later"
        )
        raise Refused("no-rewrite", text.format(tf.__version__))
    rewrites = [
        rewrite for rewrite in _rewrites_to_try(policy, on_gpu=on_gpu) if _works(tf, rewrite)
    ]
    if not rewrites:
        raise Refused("no-rewrite", _missing_pass_message(tf, policy, on_gpu=on_gpu))
    return rewrites


def apply_rewrite(graph_def: Any, kept: Sequence[str], rewrite: Rewrite) -> Any:
    """
    Return a graph after the pass; ``kept`` are the names of tensors whose ops do not change.

    :raises Refused: if the pass fails.
    """
    try:
        return run_pass(graph_def, kept, rewrite.option, rewrite.device)
    except Exception as error:  # whatever C++ raises through the bindings
        text = "the TensorFlow pass {} fails on this graph ({})"
        if rewrite.emulates and has_old_loops(graph_def):
            text += (
                ", which contains TensorFlow 1 loops; use another pass with --to "
                "mixed_bfloat16, --device gpu:0 or a TensorFlow built for CUDA"
            )
        raise Refused("rewrite-failed", text.format(rewrite.option, sentence(error))) from error


def float16_ops(tf: Any, graph_def: Any, kept: Sequence[str], rewrite: Rewrite) -> frozenset[str]:
    """
    Return the names of the ops with float outputs that the emulating pass runs in float16.

    The casts of the pass do not show this: an op that stays in float32 has casts on both sides if
    its neighbors are in float16. Therefore, each op gets an additional user that has to stay
    unchanged; an op in float16 then has a cast before this user.
    """
    probed = type(graph_def)()
    probed.CopyFrom(graph_def)
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(graph_def, name="")
        floats = [
            op.name
            for op in graph.get_operations()
            if op.outputs and op.outputs[0].dtype == tf.float32 and op.name + ":0" not in kept
        ]
    probes = {}
    for name in floats:
        node = probed.node.add(name="policytool_probe/" + name, op="Identity", input=[name])
        node.attr["T"].type = tf.float32.as_datatype_enum
        probes[node.name] = name
    rewritten_graph = apply_rewrite(probed, [*kept, *(name + ":0" for name in probes)], rewrite)
    return frozenset(
        probes[node.name]
        for node in rewritten_graph.node
        if node.name in probes and node.input[0] != probes[node.name]
    )


def _rewrites_to_try(policy: str, *, on_gpu: bool) -> list[Rewrite]:
    """
    Return the passes that may rewrite graphs to a policy on this kind of device, the preferred
    one first; whether each works is not yet known.
    """
    if policy == BFLOAT16:
        # the second is another name of the first
        passes = [name for name in ONEDNN if has_pass(name)]
        return [
            Rewrite(name, CPU, "TensorFlow's rewrite for CPUs with oneDNN") for name in passes[:1]
        ]
    if on_gpu:
        return [Rewrite(CUDA, GPU, _SAID[CUDA])]
    return [
        Rewrite(EMULATED, CPU, _SAID[EMULATED]),
        Rewrite(CUDA, GPU, _SAID[CUDA] + ", run with float16 kernels on the CPU"),
    ]


def _works(tf: Any, rewrite: Rewrite) -> bool:
    """
    Return whether the pass rewrites a small graph to 16 bits, including ops other than matrix
    products. Without kernels for its device, it rewrites only matrix products.
    """
    if not has_pass(rewrite.option):
        return False
    with tf.Graph().as_default() as graph:
        placeholder = tf.compat.v1.placeholder(tf.float32, [4, 4], name="x")
        weights = tf.constant(np.eye(4, dtype="float32"))
        activation = tf.nn.relu(tf.matmul(placeholder, weights))
        tf.identity(tf.matmul(activation, weights), name="y")
    try:
        rewritten_graph = run_pass(
            graph.as_graph_def(), ["x:0", "y:0"], rewrite.option, rewrite.device
        )
    except Exception:
        # the error of a pass that this build lacks depends on its bindings; the caller reports it
        return False
    casts = any(node.name.endswith(SUFFIX) for node in rewritten_graph.node)
    relu = next(node for node in rewritten_graph.node if node.op == "Relu")
    return casts and (rewrite.emulates or relu.attr["T"].type != tf.float32.as_datatype_enum)


def _missing_pass_message(tf: Any, policy: str, *, on_gpu: bool) -> str:
    """
    Return the error message for a policy to which no pass of this TensorFlow rewrites graphs,
    with what the user can do about it.
    """
    if on_gpu:
        text = (
            "TensorFlow {} is not built for CUDA and cannot rewrite graphs for a GPU; "
            "use --device cpu to emulate float16 (requires TensorFlow 2.9 or later)"
        )
    elif policy == FLOAT16:
        text = (
            "TensorFlow {} cannot emulate float16 on a CPU; use --python to specify an "
            "interpreter with TensorFlow 2.9 or later, or use a GPU with --device gpu:0"
        )
    else:
        text = (
            "TensorFlow {} cannot rewrite graphs to bfloat16 on this machine: this requires "
            "TensorFlow 2.9 or later (or 2.5 with TF_ENABLE_ONEDNN_OPTS=1), oneDNN, and a "
            "processor on which oneDNN supports bfloat16 (AVX-512)"
        )
    return text.format(tf.__version__)
