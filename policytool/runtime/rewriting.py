"""
TensorFlow's own automatic mixed precision: the pass of grappler that rewrites a graph to 16 bits, run by itself.

Which pass there is depends on the release, on how it was built, on oneDNN and on the processor. Whether one does anything here is not looked up but tried, on
a graph of one matrix product. Measured with TF 2.2 to 2.21 (CPU):

======== ====== =============================================================================================================================
policy   device pass
======== ====== =============================================================================================================================
bfloat16 CPU    ``auto_mixed_precision_onednn_bfloat16`` from TF 2.10 on, ``auto_mixed_precision_mkl`` in TF 2.5 to 2.9; both need oneDNN, which is on
                from TF 2.9 on and with TF_ENABLE_ONEDNN_OPTS=1 from TF 2.5 on
float16  GPU    ``auto_mixed_precision``
float16  CPU    ``auto_mixed_precision_cpu`` from TF 2.9 on: ops stay float32, what they take and give is rounded to float16. Where there is none, the
                pass for GPUs on a GPU that is only described, whose result the CPU's float16 kernels run (TF 2.2 to 2.4, and builds for CUDA)
bfloat16 GPU    none
======== ====== =============================================================================================================================
"""

from __future__ import annotations

import importlib
import itertools
import os
from typing import TYPE_CHECKING

import numpy as np

from .library import Refused, sentence

if TYPE_CHECKING:
    from typing import Any, Sequence

ONEDNN = ("auto_mixed_precision_onednn_bfloat16", "auto_mixed_precision_mkl")
CUDA = "auto_mixed_precision"
EMULATED = "auto_mixed_precision_cpu"
"""Rounds what ops take and give, and leaves their dtype as it is."""

SUFFIX = "AutoMixedPrecision"
"""What the names of the casts end with that the pass adds."""

FLOAT16 = "mixed_float16"
BFLOAT16 = "mixed_bfloat16"

_MEDDLING = ("TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_", "TF_ENABLE_AUTO_MIXED_PRECISION")
"""Variables that change the pass's lists, or turn it on for everything that runs, the reference included."""

_LOWERED = "_lower_using_switch_merge"
"""Attribute of loops and branches that grappler writes out."""

_BACK = ("NextIteration", "RefNextIteration")
"""Ops that close the loops of TF 1."""

_NUMBERS = itertools.count()

_ARCHITECTURE = "8.0"
"""Compute capability of the GPU that is only described; the pass asks for 7.0 at least."""

_SAID = {
    CUDA: "TensorFlow's rewrite for GPUs",
    EMULATED: "TensorFlow's emulation of float16 on CPUs: what ops take and give is rounded to float16, and they compute in float32",
}


class Rewrite:
    """A pass that does something here."""

    def __init__(self, option: str, device: str, said: str) -> None:
        self.option = option
        """Its name in RewriterConfig."""

        self.device = device
        """The kind of device it is told that there is: ``CPU`` or ``GPU``."""

        self.said = said

    @property
    def emulates(self) -> bool:
        """Whether ops stay float32 and only what they take and give is rounded."""
        return self.option == EMULATED


def undisturbed() -> list[str]:
    """Take the variables out of the environment by which a user changes the pass, and return their names: what is measured is TensorFlow's own."""
    found = sorted(name for name in os.environ if name.startswith(_MEDDLING))
    for name in found:
        del os.environ[name]
    return found


def chosen(tf: Any, policy: str, device: str) -> Rewrite:
    """
    Return the pass that rewrites to a policy for a device (``cpu``, ``gpu:0``).

    :raises Refused: where there is none, with what would do.
    """
    on_gpu = device.lower().startswith("gpu")
    if policy not in (FLOAT16, BFLOAT16):
        raise Refused("no-rewrite", "a graph can be rewritten to {} or {} alone, not to {}".format(FLOAT16, BFLOAT16, policy))
    if on_gpu and policy == BFLOAT16:
        raise Refused("no-rewrite", "TensorFlow rewrites graphs to bfloat16 for CPUs alone; --device cpu measures it, and --to {} a GPU".format(FLOAT16))
    for rewrite in _candidates(policy, on_gpu=on_gpu):
        if _works(tf, rewrite):
            return rewrite
    raise Refused("no-rewrite", _what_would_do(tf, policy, on_gpu=on_gpu))


def inlined(function: Any, *, loops: bool) -> Any:
    """
    Return the graph of a concrete function with the functions that it calls written out; its variables stay inputs.

    :param loops: whether loops and branches are written out as well, as they are before TensorFlow itself runs the pass. Otherwise they stay one op each.
    """
    graph_def = function.graph.as_graph_def()
    for one in graph_def.library.function:
        if "api_implements" in one.attr:  # another implementation for GPUs, which would be taken instead of what was traced
            del one.attr["api_implements"]
    if not loops:
        for node in nodes(graph_def):
            if _LOWERED in node.attr:
                node.attr[_LOWERED].b = False
    kept = [tensor.name for tensor in [*function.inputs, *function.outputs]]
    return _optimised(graph_def, kept, "function", None)


def converted(tf: Any, graph_def: Any, kept: Sequence[str], rewrite: Rewrite) -> frozenset[str]:
    """
    Return the names of the ops that the emulating pass has in float16.

    Its casts do not tell: an op that stays float32 has them on both sides where its neighbours do not. So each op gets one more user that has to stay as it
    is, and what the pass puts before that one is the op's own.
    """
    probed = type(graph_def)()
    probed.CopyFrom(graph_def)
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(graph_def, name="")
        floats = [op.name for op in graph.get_operations() if op.outputs and op.outputs[0].dtype == tf.float32 and op.name + ":0" not in kept]
    probes = {}
    for name in floats:
        node = probed.node.add(name="policytool_probe/" + name, op="Identity", input=[name])
        node.attr["T"].type = tf.float32.as_datatype_enum
        probes[node.name] = name
    made = rewritten(probed, [*kept, *(name + ":0" for name in probes)], rewrite)
    return frozenset(probes[node.name] for node in made.node if node.name in probes and node.input[0] != probes[node.name])


def nodes(graph_def: Any) -> list[Any]:
    """Return the nodes of a graph and of its functions."""
    return [*graph_def.node, *(node for function in graph_def.library.function for node in function.node_def)]


def rewritten(graph_def: Any, kept: Sequence[str], rewrite: Rewrite) -> Any:
    """
    Return a graph after the pass; ``kept`` are the names of tensors whose ops stay as they are.

    :raises Refused: where the pass itself fails.
    """
    try:
        return _optimised(graph_def, kept, rewrite.option, _cluster(rewrite.device))
    except Exception as error:  # whatever C++ raises through the bindings
        text = "TensorFlow's pass {} fails on this graph ({})"
        if rewrite.emulates and any(node.op in _BACK for node in graph_def.node):
            text += ", as it does on every loop of TensorFlow 1; --to mixed_bfloat16 and --device gpu:0 take another pass"
        raise Refused("rewrite-failed", text.format(rewrite.option, sentence(error))) from error


def rename(graph_def: Any, prefix: str) -> None:
    """Give the functions and loops of a graph names of their own: a process knows one function of a name, and a graph one loop."""
    own = "{}{}_".format(prefix, next(_NUMBERS))
    names = {function.signature.name: own + function.signature.name for function in graph_def.library.function}
    for function in graph_def.library.function:
        function.signature.name = names[function.signature.name]
    for gradient in graph_def.library.gradient:
        gradient.function_name = names.get(gradient.function_name, gradient.function_name)
        gradient.gradient_func = names.get(gradient.gradient_func, gradient.gradient_func)
    for node in nodes(graph_def):
        node.op = names.get(node.op, node.op)
        for key, value in node.attr.items():
            if key == "frame_name":
                value.s = own.encode() + value.s
            for called in _called(value):
                called.name = names.get(called.name, called.name)


def _called(value: Any) -> list[Any]:
    """Return the functions that an attribute names; asking for one that is not there would make it."""
    kind = value.WhichOneof("value")
    return [value.func] if kind == "func" else list(value.list.func) if kind == "list" else []


def _candidates(policy: str, *, on_gpu: bool) -> list[Rewrite]:
    if policy == BFLOAT16:
        return [Rewrite(name, "CPU", "TensorFlow's rewrite for CPUs with oneDNN") for name in ONEDNN]
    if on_gpu:
        return [Rewrite(CUDA, "GPU", _SAID[CUDA])]
    return [Rewrite(EMULATED, "CPU", _SAID[EMULATED]), Rewrite(CUDA, "GPU", _SAID[CUDA] + ", whose result runs on the CPU's float16 kernels")]


def _works(tf: Any, rewrite: Rewrite) -> bool:
    """Return whether the pass changes a graph of one matrix product."""
    if rewrite.option not in _module("tensorflow.core.protobuf.rewriter_config_pb2").RewriterConfig.DESCRIPTOR.fields_by_name:
        return False
    with tf.Graph().as_default() as graph:
        given = tf.compat.v1.placeholder(tf.float32, [4, 4], name="x")
        tf.identity(tf.nn.relu(tf.matmul(given, tf.constant(np.eye(4, dtype="float32")))), name="y")
    try:
        made = _optimised(graph.as_graph_def(), ["x:0", "y:0"], rewrite.option, _cluster(rewrite.device))
    except Exception:  # a pass that this build lacks raises what its bindings make of it; what that means is told by the caller
        return False
    return any(node.name.endswith(SUFFIX) for node in made.node)


def _what_would_do(tf: Any, policy: str, *, on_gpu: bool) -> str:
    release = tf.__version__
    if on_gpu:
        text = "TensorFlow {} does not rewrite graphs for this GPU: that takes a build for CUDA and compute capability 7.0; --device cpu emulates float16"
        return text.format(release)
    if policy == FLOAT16:
        return "TensorFlow {} cannot emulate float16 on a CPU; --python names an interpreter with TensorFlow 2.9 or newer, --device gpu:0 takes a GPU".format(release)
    text = (
        "TensorFlow {} does not rewrite graphs to bfloat16 here: that takes TensorFlow 2.5 or newer for x86 with oneDNN (TF_ENABLE_ONEDNN_OPTS=1, the default "
        "from 2.9 on) and a processor with AVX-512"
    )
    return text.format(release)


def _optimised(graph_def: Any, kept: Sequence[str], option: str, cluster: Any) -> Any:
    """Run one pass and no other: named passes stand alone, and toggles would let others run."""
    meta_graph = _module("tensorflow.core.protobuf.meta_graph_pb2").MetaGraphDef()
    meta_graph.graph_def.CopyFrom(graph_def)
    for body in (meta_graph.graph_def.node, *(function.node_def for function in meta_graph.graph_def.library.function)):
        _sort(body)  # auto_mixed_precision_cpu fails (an IndexError of a map of its own) where a node stands before one of its inputs
    meta_graph.collection_def["train_op"].node_list.value.extend(kept)  # what grappler takes for the fetches
    config = _module("tensorflow.core.protobuf.config_pb2").ConfigProto()
    options = config.graph_options.rewrite_options
    options.min_graph_nodes = -1
    options.meta_optimizer_iterations = 1
    options.optimizers.append(option)
    optimise = _module("tensorflow.python.grappler.tf_optimizer").OptimizeGraph
    return optimise(config, meta_graph, verbose=False, cluster=cluster or _cluster("CPU"))


def _sort(body: Any) -> None:
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
                    pending += [(source.lstrip("^").partition(":")[0], False) for source in reversed(by_name[name].input)]
    copies = []
    for node in placed.values():
        copy = type(node)()
        copy.CopyFrom(node)
        copies.append(copy)
    del body[:]
    body.extend(copies)


def _cluster(kind: str) -> Any:
    """Return a machine of one CPU, and of one GPU where the pass is for it: what is really there must not decide what is rewritten."""
    properties = _module("tensorflow.core.protobuf.device_properties_pb2")
    devices = []
    for one in ("CPU",) if kind == "CPU" else ("CPU", "GPU"):
        device = properties.NamedDevice(name="/job:localhost/replica:0/task:0/device:{}:0".format(one))
        device.properties.type = one
        device.properties.frequency = 1000
        device.properties.num_cores = 1
        if one == "GPU":
            device.properties.vendor = "NVIDIA"
            device.properties.environment.update({"architecture": _ARCHITECTURE, "cuda": "12000", "cudnn": "8900"})
        devices.append(device)
    return _module("tensorflow.python.grappler.cluster").Cluster(devices=devices)


def _module(name: str) -> Any:
    return importlib.import_module(name)
