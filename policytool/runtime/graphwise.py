"""
A saved graph held against what TensorFlow's automatic mixed precision makes of it, per signature.

For files that no Keras can build anew with other policies: those without Keras metadata, and those whose classes are not at hand. Both graphs run in one
function on the same variables, and tensors of the same name are compared on the device. Nothing is frozen, so a graph may be of any size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from . import measuring, rewriting, scopes, seeded
from .library import Refused, sentence

if TYPE_CHECKING:
    from typing import Any, Callable, Mapping, Sequence

SEEDS = (1, 2)
_ASSIGNING = ("Assign", "ResourceApply", "ResourceScatter", "ResourceSparseApply")
_RANDOM = ("Random", "Multinomial", "ParameterizedTruncatedNormal", "TruncatedNormal")


def measured(library_or_tf: Any, path: str, wanted: Mapping[str, Any], inputs_for: Callable[[Any], Sequence[Mapping[str, Any]]], step: Any) -> dict[str, Any]:
    """
    Return, for each signature of a SavedModel, what the rewrite changed and how far its tensors and outputs then are from the plain graph's.

    :param wanted: ``policy``, ``device``, and as far as they are chosen ``signatures`` (names) and ``tags``.
    :param inputs_for: signature to its batches, tensors by keyword.
    :raises Refused: where nothing can be measured at all; what one signature cannot do stands with it.
    """
    tf = getattr(library_or_tf, "tf", library_or_tf)
    ignored = rewriting.undisturbed()
    rewrite = rewriting.chosen(tf, wanted["policy"], wanted["device"])
    with tf.device("/device:{}".format(wanted["device"].upper() if ":" in wanted["device"] else wanted["device"].upper() + ":0")):
        step("loading the graph")
        loaded = _loaded(tf, path, wanted.get("tags"))  # held: signatures do not keep their variables alive
        signatures = {str(name): signature for name, signature in loaded.signatures.items()}
        names = sorted(signatures) if wanted.get("signatures") is None else list(wanted["signatures"])
        missing = [name for name in names if name not in signatures]
        if missing or not names:
            text = "the file has no signature {}; it has: {}"
            raise Refused("no-signature", text.format(", ".join(missing) or "to run", ", ".join(sorted(signatures)) or "none"))
        calls = []
        for name in names:
            step("signature {}".format(name))
            calls.append({"signature": name, "option": rewrite.option, **_told(tf, signatures[name], rewrite, inputs_for)})
    return {"option": rewrite.option, "said": rewrite.said, "ignored": ignored, "signatures": calls}


def drawn(library: Any) -> Callable[[Any], list[dict[str, Any]]]:
    """Return what gives a signature seeded inputs of the first size that it can be called with."""

    def batches(signature: Any) -> list[dict[str, Any]]:
        named = _inputs(signature)
        specs = seeded.specs_of([library.tf.TensorSpec(tensor.shape, tensor.dtype, name=name) for name, tensor in named])
        failed: BaseException | None = None
        for size in seeded.sizes(specs):
            made = [dict(zip([name for name, _ in named], seeded.drawn(library, None, specs, seed, size))) for seed in SEEDS]
            try:
                signature(**made[0])
            except (ValueError, library.tf.errors.OpError) as error:
                failed = error
                continue
            return made
        text = "the signature cannot be called with inputs of its own shapes: {}"
        raise Refused("not-callable", text.format(sentence(failed) if failed is not None else "")) from failed

    return batches


def _loaded(tf: Any, path: str, tags: Any) -> Any:
    try:
        return tf.saved_model.load(path, tags=tags)
    except Exception as error:  # whatever the library raises is its refusal
        raise Refused("not-loadable", "TensorFlow {} cannot load the graph: {}".format(tf.__version__, sentence(error))) from error


def _told(tf: Any, signature: Any, rewrite: Any, inputs_for: Any) -> dict[str, Any]:
    """Return what there is to say of one signature; what it cannot do is ``refused``."""
    try:
        batches = inputs_for(signature)
        pair = _Pair(tf, signature, rewrite)
        found = pair.compared(batches)
    except Refused as error:
        return {"refused": {"code": error.code, "message": str(error)}}
    except (ValueError, TypeError, tf.errors.OpError) as error:
        return {"refused": {"code": "not-runnable", "message": "its graph cannot run here: {}".format(sentence(error))}}
    specs = [{"name": name, "shape": list(np.shape(batches[0][name])), "dtype": tensor.dtype.name} for name, tensor in _inputs(signature)]
    return {"refused": None, "changed": pair.changes.told(), "unchanged": pair.unchanged, **found, "inputs": {"batches": len(batches), "specs": specs}}


class _Pair:
    """A signature's plain graph and the rewritten one, in one function."""

    def __init__(self, tf: Any, signature: Any, rewrite: Any) -> None:
        self.tf = tf
        self.signature = signature
        self.plain = rewriting.inlined(signature)
        kept = [tensor.name for tensor in [*signature.inputs, *signature.outputs]]
        self.other = rewriting.rewritten(self.plain, kept, rewrite)
        self.changes = scopes.Changes(self.plain, self.other, emulated=rewrite.emulates)
        self.named = _inputs(signature)
        self.layers: list[dict[str, Any]] = []
        self.results: list[dict[str, Any]] = []

    @property
    def unchanged(self) -> str | None:
        """Why nothing differs, where the rewrite changed nothing."""
        if self.changes.names:
            return None
        if self.changes.narrow_before:
            text = "the rewrite changes nothing: {} ops of this graph have 16 bits as it is, and of the others none is a matrix product or a convolution in float32"
            return text.format(self.changes.narrow_before)
        return "the rewrite changes nothing: it begins with matrix products, convolutions and RNN kernels in float32, and this graph has none that it can convert"

    def compared(self, batches: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return how far layers and outputs are apart, over all batches."""
        tf = self.tf
        order = [name for name, _ in self.named]
        specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for _, tensor in self.named]
        run = tf.function(lambda *tensors: self._both(tensors), input_signature=specs, autograph=False)
        total: Any = None
        for batch in batches:
            made = [np.asarray(one) for one in run(*[tf.cast(batch[name], tensor.dtype) for name, tensor in self.named])] if order else [np.asarray(one) for one in run()]
            total = made if total is None else [measuring.merged(made[0], total[0]), made[1] + total[1]]
        vectors, counts = total
        rows = [measuring.told(vector) for vector in vectors]
        for layer, row in zip(self.layers, rows):
            layer["outputs"] = [row]
        floats = iter(rows[len(self.layers) :])
        others = iter(counts)
        for result in self.results:
            if result.pop("floating"):
                result.update(reductions=next(floats), differing=None)
            else:
                result.update(reductions=None, differing=int(next(others)))
        return {"layers": self.layers, "outputs": self.results}

    def _both(self, tensors: Sequence[Any]) -> Any:
        """Return the comparisons of all tensors that are looked at, one a row, and how many values differ of the outputs that are no floats."""
        tf = self.tf
        graph = tf.compat.v1.get_default_graph()
        given = {tensor.name: value for (_, tensor), value in zip(self.named, tensors)}
        captured = list(self.signature.captured_inputs)
        given.update({placeholder.name: graph.capture(one) for placeholder, one in zip(self.signature.inputs[len(self.named) :], captured)})
        state = self._state(given)
        ops = self._imported(graph, self.plain, given, "reference")
        self._restore(state)
        drawn = {op.outputs[0].name.partition("/")[2]: op.outputs[0] for op in ops if op.type.startswith(_RANDOM) and op.outputs}
        self._imported(graph, self.other, {**given, **drawn}, "candidate")
        self._restore(state)
        self.layers, self.results = [], []
        vectors, counts = [], []
        for scope, op in scopes.watched(ops, tensors, {"reference/" + name for name in self.changes.names}):
            candidate = self._candidate(graph, op.outputs[0].name.partition("/")[2], given)
            self.layers.append({"path": scope, "op": op.type, "dtype": candidate.dtype.name})
            vectors.append(self._vector(op.outputs[0], candidate))
        for name, tensor in _outputs(self.signature):
            one, other = (given[tensor.name] if tensor.name in given else graph.get_tensor_by_name(place + tensor.name) for place in ("reference/", "candidate/"))
            self.results.append({"name": name, "dtype": other.dtype.name, "floating": one.dtype.is_floating})
            if one.dtype.is_floating:
                vectors.append(self._vector(one, other))
            else:
                counts.append(tf.reduce_sum(tf.cast(tf.not_equal(one, other), tf.int64)))
        return tf.stack(vectors) if vectors else tf.zeros([0, len(measuring.FIELDS)], tf.float64), tf.stack(counts) if counts else tf.zeros([0], tf.int64)

    def _state(self, given: Mapping[str, Any]) -> list[tuple[Any, Any]]:
        """Return the variables of a signature that writes some, each with its value, which both graphs and all batches are to begin with."""
        nodes = [*self.plain.node, *(node for function in self.plain.library.function for node in function.node_def)]
        if not any(node.op.startswith(_ASSIGNING) for node in nodes):
            return []
        variables = {id(variable.handle): variable for variable in self.signature.graph.variables}
        read = self.tf.raw_ops.ReadVariableOp
        found = []
        for placeholder, one in zip(self.signature.inputs[len(self.named) :], self.signature.captured_inputs):
            if id(one) in variables:
                found.append((given[placeholder.name], read(resource=given[placeholder.name], dtype=variables[id(one)].dtype)))
        return found

    def _restore(self, state: Sequence[tuple[Any, Any]]) -> None:
        """Give variables their values again; in the order of the trace, so after what wrote them."""
        for handle, value in state:
            self.tf.raw_ops.AssignVariableOp(resource=handle, value=value)

    def _imported(self, graph: Any, graph_def: Any, given: Mapping[str, Any], name: str) -> list[Any]:
        self.tf.graph_util.import_graph_def(graph_def, input_map=given, name=name)
        return [op for op in graph.get_operations() if op.name.startswith(name + "/")]

    def _candidate(self, graph: Any, name: str, given: Mapping[str, Any]) -> Any:
        """Return the rewritten graph's tensor of a name; where float16 is emulated, what it is rounded to."""
        cast = self.changes.rounded.get(name)
        return graph.get_tensor_by_name("candidate/" + (cast + ":0" if cast is not None else name))

    def _vector(self, one: Any, other: Any) -> Any:
        wide = one if one.dtype.size >= self.tf.float32.size else self.tf.cast(one, self.tf.float32)
        return measuring.compared(self.tf, wide, other)


def _inputs(signature: Any) -> list[tuple[str, Any]]:
    """Return what a signature takes: each keyword with its placeholder, in the order of the graph's."""
    placeholders = signature.inputs[: len(signature.inputs) - len(signature.captured_inputs)]
    keywords = getattr(signature, "_arg_keywords", None)
    names = list(keywords) if keywords is not None else sorted(signature.structured_input_signature[1])
    return list(zip(names, placeholders))


def _outputs(signature: Any) -> list[tuple[str, Any]]:
    """Return what a signature gives: each name with its tensor; parts of ragged and sparse ones by the names of their tensors."""
    names = sorted(signature.structured_outputs) if isinstance(signature.structured_outputs, dict) else []
    tensors = list(signature.outputs)
    return list(zip(names if len(names) == len(tensors) else [tensor.name for tensor in tensors], tensors))
