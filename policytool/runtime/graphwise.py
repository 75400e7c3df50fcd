"""
A saved graph held against what TensorFlow's automatic mixed precision makes of it, per signature.

For files that no Keras can build anew with other policies: those without Keras metadata, and those whose classes are not at hand. Both graphs run in one
function on the same variables, and tensors of the same name are compared on the device. Nothing is frozen, so a graph may be of any size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from . import entries, grappler, measuring, rewriting, scopes
from .library import Refused, sentence

if TYPE_CHECKING:
    from typing import Any, Callable, Mapping, Sequence

_RANDOM = ("Random", "Multinomial", "ParameterizedTruncatedNormal", "TruncatedNormal")
"""What the types of ops begin with that give other values at every run: both graphs have to share them."""

REFERENCE = "reference"
CANDIDATE = "candidate"


def measured(library_or_tf: Any, path: str, wanted: Mapping[str, Any], inputs_for: Callable[[Any], Sequence[Mapping[str, Any]]], step: Any) -> dict[str, Any]:
    """
    Return, for each signature of a SavedModel, what the rewrite changed and how far its tensors and outputs then are from the plain graph's.

    :param wanted: ``policy``, ``device`` (``cpu``, ``gpu:0``), and as far as they are chosen ``signatures`` (names) and ``tags``.
    :param inputs_for: signature (a concrete function) to its batches, tensors by keyword; :func:`entries.drawn` makes one.
    :raises Refused: where nothing can be measured at all; what one signature cannot do stands with it.
    """
    tf = getattr(library_or_tf, "tf", library_or_tf)
    ignored = rewriting.undisturbed()
    rewrites = rewriting.chosen(tf, wanted["policy"], wanted["device"])
    kind, _, number = wanted["device"].upper().partition(":")
    with tf.device("/device:{}:{}".format(kind, number or 0)):
        step("loading the graph")
        root = entries.loaded(tf, path, wanted.get("tags"))
        found = entries.named(root)
        names = sorted(found) if wanted.get("signatures") is None else list(wanted["signatures"])
        missing = [name for name in names if name not in found]
        if missing:
            raise Refused("no-signature", "the file has no signature {}; it has: {}".format(", ".join(missing), ", ".join(sorted(found))))
        calls = []
        for name in names:
            step("signature {}".format(name))
            calls.append({"signature": name, **_told(tf, found[name], rewrites, inputs_for)})
    return {"ignored": ignored, "signatures": calls}


def _told(tf: Any, signature: Any, rewrites: Sequence[Any], inputs_for: Any) -> dict[str, Any]:
    """Return what there is to say of one signature; what it cannot do is ``refused``."""
    state = entries.State(tf, signature)
    try:
        batches = inputs_for(signature)
        state.reset()  # a signature may have been tried with them
        pair = _Pair(tf, signature, rewrites, state)
        found = pair.compared(batches)
    except Refused as error:
        return {"refused": {"code": error.code, "message": str(error)}}
    except (ValueError, TypeError, tf.errors.OpError) as error:
        return {"refused": {"code": "not-runnable", "message": "its graph cannot run here: {}".format(sentence(error))}}
    specs = [{"name": name, "shape": list(np.shape(batches[0][name])), "dtype": tensor.dtype.name} for name, tensor in entries.inputs(signature)]
    told = {"option": pair.rewrite.option, "said": pair.rewrite.said, "changed": pair.changes.told(), "unchanged": pair.changes.unchanged}
    return {"refused": None, **told, **found, "inputs": {"batches": len(batches), "specs": specs}}


def _both(signature: Any, rewrites: Sequence[Any]) -> tuple[Any, Any, Any]:
    """
    Return a signature's graph, plain and rewritten, and the rewrite: the first that does not fail.

    Loops are written out, as they are where TensorFlow runs the pass by itself. Where the pass fails on that, as ``auto_mixed_precision_cpu`` does, they
    stay functions, which it rewrites too.
    """
    failed = []
    for rewrite in rewrites:
        for loops in (True, False):
            plain = grappler.inlined(signature, loops=loops)
            try:
                return plain, rewriting.rewritten(plain, grappler.names(signature), rewrite), rewrite
            except Refused as error:
                failed.append(error)
    raise failed[0]


class _Pair:
    """A signature's plain graph and the rewritten one, in one function."""

    def __init__(self, tf: Any, signature: Any, rewrites: Sequence[Any], state: Any) -> None:
        self.tf = tf
        self.signature = signature
        self.plain, self.other, self.rewrite = _both(signature, rewrites)
        emulated = rewriting.converted(tf, self.plain, grappler.names(signature), self.rewrite) if self.rewrite.emulates else None
        self.changes = scopes.Changes(self.plain, self.other, emulated)
        grappler.rename(self.plain, REFERENCE)
        grappler.rename(self.other, CANDIDATE)
        self.inputs = entries.inputs(signature)
        self.state = state
        self.layers: list[dict[str, Any]] = []
        self.results: list[dict[str, Any]] = []

    def compared(self, batches: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return how far layers and outputs are apart, over all batches."""
        tf = self.tf
        specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for _, tensor in self.inputs]
        # not tf.function: the order that it gives to what reads variables would lead into loops that are written out
        run = tf.compat.v1.wrap_function(self._traced, specs)
        rows: list[Any] = []
        counts: list[int] = []
        for batch in batches:
            vectors, differing = run(*[tf.cast(batch[name], tensor.dtype) for name, tensor in self.inputs])
            rows = [measuring.merged(*pair) for pair in zip(rows, vectors.numpy())] if rows else list(vectors.numpy())
            counts = [one + int(other) for one, other in zip(counts or [0] * len(differing), differing.numpy())]
            self.state.reset()
        layers = [{**layer, "outputs": [measuring.told(row)]} for layer, row in zip(self.layers, rows)]
        floats, others = iter(rows[len(layers) :]), iter(counts)
        outputs = []
        for result in self.results:
            floating = result["floating"]
            reductions = measuring.told(next(floats)) if floating else None
            outputs.append({"name": result["name"], "dtype": result["dtype"], "reductions": reductions, "differing": None if floating else next(others)})
        return {"layers": layers, "outputs": outputs}

    def _traced(self, *tensors: Any) -> Any:
        """Return the comparisons of all tensors that are looked at, one a row, and how many values differ of the outputs that are no floats."""
        tf = self.tf
        graph = tf.compat.v1.get_default_graph()
        given = {tensor.name: value for (_, tensor), value in zip(self.inputs, tensors)}
        captured = {name: graph.capture(one) for name, one in self.state.read.items()}
        ops = self._imported(graph, self.plain, {**given, **captured}, REFERENCE)
        inner = scopes.within(ops)
        shared = {scopes.own(op.outputs[0].name): op.outputs[0] for op in ops if op.type.startswith(_RANDOM) and op.outputs and not inner[op.name]}
        copied = {name: graph.capture(one) for name, one in self.state.copied.items()}
        self._imported(graph, self.other, {**given, **captured, **copied, **shared}, CANDIDATE)
        self.layers, self.results = [], []
        vectors, counts = [], []
        for scope, tensor in scopes.watched(ops, tensors, {REFERENCE + "/" + name for name in self.changes.names}, inner):
            name = scopes.own(tensor.name)
            candidate = graph.get_tensor_by_name(CANDIDATE + "/" + self.changes.rounded.get(name, name))
            self.layers.append({"path": scope, "op": tensor.op.type, "dtype": candidate.dtype.name})
            vectors.append(self._vector(tensor, candidate))
        for name, tensor in entries.outputs(self.signature):
            one, other = (given[tensor.name] if tensor.name in given else graph.get_tensor_by_name(side + "/" + tensor.name) for side in (REFERENCE, CANDIDATE))
            self.results.append({"name": name, "dtype": other.dtype.name, "floating": one.dtype.is_floating})
            if one.dtype.is_floating:
                vectors.append(self._vector(one, other))
            else:
                counts.append(tf.reduce_sum(tf.cast(tf.not_equal(one, other), tf.int64)))
        return tf.stack(vectors) if vectors else tf.zeros([0]), tf.stack(counts) if counts else tf.zeros([0], tf.int64)

    def _imported(self, graph: Any, graph_def: Any, given: Mapping[str, Any], name: str) -> list[Any]:
        self.tf.graph_util.import_graph_def(graph_def, input_map=given, name=name)
        return [op for op in graph.get_operations() if op.name.startswith(name + "/")]

    def _vector(self, one: Any, other: Any) -> Any:
        wide = one if one.dtype.size >= self.tf.float32.size else self.tf.cast(one, self.tf.float32)
        return measuring.compared(self.tf, wide, other)
