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
_INTERNAL = "__saved_model_"
"""What the names of ops for initialisation and training begin with, which TF 1 puts among the signatures."""

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
        entries = _entries(loaded)
        names = sorted(entries) if wanted.get("signatures") is None else list(wanted["signatures"])
        missing = [name for name in names if name not in entries]
        if missing:
            raise Refused("no-signature", "the file has no signature {}; it has: {}".format(", ".join(missing), ", ".join(sorted(entries)) or "none"))
        calls = []
        for name in names:
            step("signature {}".format(name))
            calls.append({"signature": name, "option": rewrite.option, **_told(tf, entries[name], rewrite, inputs_for)})
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


def _entries(loaded: Any) -> dict[str, Any]:
    """Return the signatures by name; where there are none, the functions of the root object, each as it was first traced without training."""
    found = {str(name): signature for name, signature in loaded.signatures.items() if not name.startswith(_INTERNAL)}
    if not found:
        for name, value in sorted(vars(loaded).items()):
            traced = [one for one in getattr(value, "concrete_functions", ()) if True not in one.structured_input_signature[0]]
            found.update({name: one for one in traced[:1] if one.inputs[: len(one.inputs) - len(one.captured_inputs)]})
    if not found:
        text = "the file holds no graph that could be run: it was saved without signatures and traces (save_traces=False); only its classes can call it"
        raise Refused("no-signature", text)
    return found


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


def _both(signature: Any, rewrite: Any) -> tuple[Any, Any]:
    """
    Return a signature's graph, plain and rewritten.

    Loops are written out, as they are where TensorFlow runs the pass by itself. Where the pass fails on that, as ``auto_mixed_precision_cpu`` does, they
    stay functions.
    """
    kept = [tensor.name for tensor in [*signature.inputs, *signature.outputs]]
    plain = rewriting.inlined(signature, loops=True)
    try:
        return plain, rewriting.rewritten(plain, kept, rewrite)
    except Refused as first:
        try:
            plain = rewriting.inlined(signature, loops=False)
            return plain, rewriting.rewritten(plain, kept, rewrite)
        except Refused:
            raise first from None


class _Pair:
    """A signature's plain graph and the rewritten one, in one function."""

    def __init__(self, tf: Any, signature: Any, rewrite: Any) -> None:
        self.tf = tf
        self.signature = signature
        self.plain, self.other = _both(signature, rewrite)
        kept = [tensor.name for tensor in [*signature.inputs, *signature.outputs]]
        self.changes = scopes.Changes(self.plain, self.other, rewriting.converted(tf, self.plain, kept, rewrite) if rewrite.emulates else None)
        for graph_def, prefix in ((self.plain, "reference_"), (self.other, "candidate_")):
            rewriting.rename(graph_def, prefix)
        self.named = _inputs(signature)
        self.state = _State(tf, signature, self.plain)
        self.layers: list[dict[str, Any]] = []
        self.results: list[dict[str, Any]] = []

    @property
    def unchanged(self) -> str | None:
        """Why nothing differs, where the rewrite changed nothing."""
        if self.changes.ops:
            return None
        if self.changes.narrow_before:
            text = "the rewrite changes nothing: {} ops of this graph have 16 bits as it is, and of the others none is a matrix product or a convolution in float32"
            return text.format(self.changes.narrow_before)
        return "the rewrite changes nothing: it begins with matrix products, convolutions and RNN kernels in float32, and this graph has none that it can convert"

    def compared(self, batches: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return how far layers and outputs are apart, over all batches."""
        tf = self.tf
        specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for _, tensor in self.named]
        # not tf.function: the order that it gives to what reads variables would lead into loops that are written out
        run = tf.compat.v1.wrap_function(self._run, specs)
        total: Any = None
        for batch in batches:
            made = [one.numpy() for one in run(*[tf.cast(batch[name], tensor.dtype) for name, tensor in self.named])]
            total = made if total is None else [measuring.merged(total[0], made[0]), total[1] + made[1]]
            self.state.reset()
        rows = [measuring.told(vector) for vector in total[0]]
        for layer, row in zip(self.layers, rows):
            layer["outputs"] = [row]
        floats, others = iter(rows[len(self.layers) :]), iter(total[1])
        for result in self.results:
            floating = result.pop("floating")
            result.update(reductions=next(floats) if floating else None, differing=None if floating else int(next(others)))
        return {"layers": self.layers, "outputs": self.results}

    def _run(self, *tensors: Any) -> Any:
        """Return the comparisons of all tensors that are looked at, one a row, and how many values differ of the outputs that are no floats."""
        tf = self.tf
        graph = tf.compat.v1.get_default_graph()
        given = {tensor.name: value for (_, tensor), value in zip(self.named, tensors)}
        handles = {name: graph.capture(one) for name, one in self.state.read.items()}
        ops = self._imported(graph, self.plain, {**given, **handles}, "reference")
        inner = scopes.within(ops)
        drawn = {scopes.own(op.outputs[0].name): op.outputs[0] for op in ops if op.type.startswith(_RANDOM) and op.outputs and not inner[op.name]}
        handles.update({name: graph.capture(one) for name, one in self.state.copied.items()})
        self._imported(graph, self.other, {**given, **handles, **drawn}, "candidate")
        self.layers, self.results = [], []
        vectors, counts = [], []
        for scope, tensor in scopes.watched(ops, tensors, {"reference/" + name for name in self.changes.names}, inner):
            candidate = self._candidate(graph, scopes.own(tensor.name))
            self.layers.append({"path": scope, "op": tensor.op.type, "dtype": candidate.dtype.name})
            vectors.append(self._vector(tensor, candidate))
        for name, tensor in _outputs(self.signature):
            one, other = (given[tensor.name] if tensor.name in given else graph.get_tensor_by_name(place + tensor.name) for place in ("reference/", "candidate/"))
            self.results.append({"name": name, "dtype": other.dtype.name, "floating": one.dtype.is_floating})
            if one.dtype.is_floating:
                vectors.append(self._vector(one, other))
            else:
                counts.append(tf.reduce_sum(tf.cast(tf.not_equal(one, other), tf.int64)))
        return [
            tf.stack(vectors) if vectors else tf.zeros([0, len(measuring.FIELDS)], tf.float64),
            tf.stack(counts) if counts else tf.zeros([0], tf.int64),
        ]

    def _imported(self, graph: Any, graph_def: Any, given: Mapping[str, Any], name: str) -> list[Any]:
        self.tf.graph_util.import_graph_def(graph_def, input_map=given, name=name)
        return [op for op in graph.get_operations() if op.name.startswith(name + "/")]

    def _candidate(self, graph: Any, name: str) -> Any:
        """Return the rewritten graph's tensor of a name; where float16 is emulated, what it is rounded to."""
        cast = self.changes.rounded.get(name)
        return graph.get_tensor_by_name("candidate/" + (cast + ":0" if cast is not None else name))

    def _vector(self, one: Any, other: Any) -> Any:
        wide = one if one.dtype.size >= self.tf.float32.size else self.tf.cast(one, self.tf.float32)
        return measuring.compared(self.tf, wide, other)


class _State:
    """What a signature captures; where it writes variables, the rewritten graph has copies, and every batch finds them as they were."""

    def __init__(self, tf: Any, signature: Any, graph_def: Any) -> None:
        captured = list(signature.captured_inputs)
        placeholders = signature.inputs[len(signature.inputs) - len(captured) :]
        self.read = {placeholder.name: one for placeholder, one in zip(placeholders, captured)}
        """Name of a placeholder to what is captured."""

        written = any(node.op.startswith(_ASSIGNING) for node in rewriting.nodes(graph_def))
        variables = {id(variable.handle): variable for variable in signature.graph.variables} if written else {}
        self._values = {name: (variables[id(one)], tf.Variable(variables[id(one)])) for name, one in self.read.items() if id(one) in variables}
        self._first = {name: variable.numpy() for name, (variable, _) in self._values.items()}
        self.copied = {name: copy.handle for name, (_, copy) in self._values.items()}
        """The same for the rewritten graph, as far as it differs."""

    def reset(self) -> None:
        """Give every variable, and its copy, the value that it began with."""
        for name, pair in self._values.items():
            for variable in pair:
                variable.assign(self._first[name])


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
