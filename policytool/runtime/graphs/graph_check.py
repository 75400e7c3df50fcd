"""
A saved graph held against what TensorFlow's automatic mixed precision makes of it, per signature.

For files that no Keras can build anew with other policies: those without Keras metadata, and those
whose classes are not at hand. Both graphs run in one function on the same variables, and tensors of
the same name are compared on the device. Nothing is frozen, so a graph may be of any size.

What of a SavedModel can be called are its signatures or, if it has none, the functions of its root
object. Those that compute the same run once: Keras 3 exports each model as ``serve`` and
``serving_default``.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from .. import op_placement
from ..engine import tensor_errors
from ..engine.layer_hooks import LayerId
from ..engine.measurements import AHEAD, Comparisons, measure_extremes, wait
from ..engine.output_changes import OutputChanges
from ..library import Refused, refusing, sentence
from . import mixed_precision, scopes

if TYPE_CHECKING:
    from typing import Any, Callable, Mapping, Sequence

    from ..feeding.batches import FedInputs

_INTERNAL = "__saved_model_"
"""The prefix of names of ops for initialization and training, which TF 1 lists as signatures."""

_ASSIGNING = ("Assign", "ResourceApply", "ResourceScatter", "ResourceSparseApply")


def load_root(tf: Any, path: str, tags: Any) -> Any:
    """
    Return the root object of a SavedModel, with its tables initialized. The caller must keep it,
    because signatures do not keep their variables alive.

    :raises Refused: if TensorFlow cannot load it; the message is TensorFlow's.
    """
    with refusing("not-loadable", "TensorFlow {} cannot load the graph: {}", tf.__version__):
        return tf.saved_model.load(path, tags=tags)


def named_signatures(tf: Any, root: Any) -> dict[str, Any]:
    """
    Return the signatures by name; if there are none, the functions of the root object, each with
    its first trace that is not for training.

    :raises Refused: if the file contains no graph.
    """
    signatures = {
        str(name): signature
        for name, signature in root.signatures.items()
        if not name.startswith(_INTERNAL)
    }
    for name, value in () if signatures else sorted(vars(root).items()):
        traced = [
            function
            for function in getattr(value, "concrete_functions", ())
            if True not in function.structured_input_signature[0]
        ]
        if traced and named_inputs(traced[0]):
            signatures[name] = _by_keywords(tf, traced[0])
    if not signatures:
        text = (
            "the file contains no graph that can run: it was saved without signatures and "
            "traces (save_traces=False)"
        )
        raise Refused("no-signature", text)
    return signatures


def _by_keywords(tf: Any, function: Any) -> Any:
    """
    Return a function that accepts its tensors by name, as signatures do, for one that accepts them
    nested among other values.
    """
    structure = function.structured_input_signature
    flat = tf.nest.flatten(structure)
    specs = {
        "{}".format(leaf.name or place): leaf
        for place, leaf in enumerate(flat)
        if isinstance(leaf, tf.TensorSpec)
    }

    def call_function(**named_tensors: Any) -> Any:
        tensors = iter(named_tensors[name] for name in specs)
        arguments, keywords = tf.nest.pack_sequence_as(
            structure, [next(tensors) if isinstance(leaf, tf.TensorSpec) else leaf for leaf in flat]
        )
        return function(*arguments, **keywords)

    named_specs = {
        name: tf.TensorSpec(spec.shape, spec.dtype, name=name) for name, spec in specs.items()
    }
    return tf.function(call_function, autograph=False).get_concrete_function(**named_specs)


def named_inputs(signature: Any) -> list[tuple[str, Any]]:
    """
    Return the inputs of a signature: keywords with placeholders, in the order of the graph.
    """
    placeholders = signature.inputs[: len(signature.inputs) - len(signature.captured_inputs)]
    keywords = getattr(signature, "_arg_keywords", None)
    names = (
        list(keywords) if keywords is not None else sorted(signature.structured_input_signature[1])
    )
    if len(names) != len(placeholders):
        names = [tensor.name.partition(":")[0] for tensor in placeholders]
    return list(zip(names, placeholders))


def named_outputs(signature: Any) -> list[tuple[str, Any]]:
    """
    Return the outputs of a signature: each name with its tensor; parts of nested, ragged and sparse
    outputs are numbered.
    """
    tensors = list(signature.outputs)
    names = (
        sorted(signature.structured_outputs)
        if isinstance(signature.structured_outputs, dict)
        else []
    )
    return list(
        zip(
            names
            if len(names) == len(tensors)
            else ["output_{}".format(place) for place in range(len(tensors))],
            tensors,
        )
    )


class State:
    """
    What a signature captures; where it writes variables, the rewritten graph has copies, and every
    batch finds them as they were.
    """

    def __init__(self, tf: Any, signature: Any) -> None:
        captured = list(signature.captured_inputs)
        placeholders = signature.inputs[len(signature.inputs) - len(captured) :]
        self.read = {
            placeholder.name: tensor for placeholder, tensor in zip(placeholders, captured)
        }
        """Captured tensors by the name of their placeholder."""

        written = any(
            node.op.startswith(_ASSIGNING)
            for node in mixed_precision.nodes(signature.graph.as_graph_def())
        )
        variables = (
            {id(variable.handle): variable for variable in signature.graph.variables}
            if written
            else {}
        )
        self._pairs = {
            name: (variables[id(tensor)], tf.Variable(variables[id(tensor)]))
            for name, tensor in self.read.items()
            if id(tensor) in variables
        }
        self._first = {name: variable.numpy() for name, (variable, _) in self._pairs.items()}
        self.copied = {name: copy.handle for name, (_, copy) in self._pairs.items()}
        """Captured tensors of the rewritten graph that differ."""

    def reset(self) -> None:
        """Reset each variable that may have been written, and its copy, to its first value."""
        for name, pair in self._pairs.items():
            for variable in pair:
                variable.assign(self._first[name])


PREFERRED = "serving_default"
"""The default signature."""


def group_signatures(signatures: Mapping[str, Any], names: Sequence[str]) -> list[list[str]]:
    """
    Return groups of names of signatures with the same graph, inputs, variables and outputs. The
    first name represents its group.
    """
    names_by_key: dict[Any, list[str]] = {}
    for name in sorted(names, key=lambda name: (name != PREFERRED, name)):
        key = _key(signatures[name]) if len(names) > 1 else None
        names_by_key.setdefault(name if key is None else key, []).append(name)
    return list(names_by_key.values())


def _key(signature: Any) -> Any:
    """
    Return a key that is equal for signatures that compute the same; None for a graph with loops of
    TF 1, whose ops have no order.
    """
    graph_def = mixed_precision.inline_functions(signature, loops=False)
    if mixed_precision.has_old_loops(graph_def):
        return None
    mixed_precision.sort(graph_def.node)
    captured = signature.captured_inputs
    placeholders = signature.inputs[len(signature.inputs) - len(captured) :]
    digests = {
        **{
            tensor.op.name: _digest("input", name, tensor.dtype.name, str(tensor.shape))
            for name, tensor in named_inputs(signature)
        },
        **{
            tensor.op.name: _digest("captured", str(id(captured_tensor)))
            for tensor, captured_tensor in zip(placeholders, captured)
        },
    }
    for node in graph_def.node:
        if node.name not in digests:
            digests[node.name] = _digest(
                node.op,
                *(_source(digests, source) for source in node.input),
                *(
                    "{}={}".format(key, value.SerializeToString(deterministic=True).hex())
                    for key, value in sorted(node.attr.items())
                    if not key.startswith("_")
                ),
            )
    output_digests = (
        (name, "{}:{}".format(digests[tensor.op.name], tensor.value_index))
        for name, tensor in named_outputs(signature)
    )
    return tuple(sorted(output_digests))


def _source(digests: Mapping[str, str], source: str) -> str:
    """Return the tensor that is an input of a node, as its name and number."""
    name, _, number = source.lstrip("^").partition(":")
    return "{}{}:{}".format("^" * source.startswith("^"), digests[name], number or 0)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


_RANDOM = ("Random", "Multinomial", "ParameterizedTruncatedNormal", "TruncatedNormal")
"""Prefixes of the types of ops with random values, which both graphs must share."""

REFERENCE = "reference"
CANDIDATE = "candidate"


def measure_graph(
    library_or_tf: Any,
    path: str,
    options: Mapping[str, Any],
    inputs_for: Callable[[Any, Any], FedInputs],
    step: Callable[[str], None],
) -> dict[str, Any]:
    """
    Return, for each signature of a SavedModel, the changes by the rewrite and the differences of
    its tensors and outputs from those of the original graph.

    A signature has the keys of a run (:class:`..check.DeviceRun`) except its device, with scopes of
    the graph as calls; and ``rewrite``, ``refused`` if it cannot run, and ``aliases``, the names of
    signatures with the same graph.

    :param options: ``policy``, ``device`` (``cpu``, ``gpu:0``), and optionally ``signatures``
        (names) and ``tags``.
    :param inputs_for: returns the inputs, tensors by keyword, for a signature (a concrete function)
        and the root object, as :func:`..feeding.inputs.feed_signature` does.
    :raises Refused: if nothing can be measured.
    """
    tf = getattr(library_or_tf, "tf", library_or_tf)
    ignored = mixed_precision.clear_environment()
    rewrites = mixed_precision.choose_rewrites(tf, options["policy"], options["device"])
    kind, _, number = options["device"].partition(":")
    with tf.device("/device:{}:{}".format(kind.upper(), number or 0)):
        step("loading the graph")
        root = load_root(tf, path, options.get("tags"))
        signatures = named_signatures(tf, root)
        names = (
            sorted(signatures) if options.get("signatures") is None else list(options["signatures"])
        )
        missing = [name for name in names if name not in signatures]
        if missing:
            raise Refused(
                "no-signature",
                "the file has no signature {}; available signatures: {}".format(
                    ", ".join(missing), ", ".join(sorted(signatures))
                ),
            )
        runs = []
        for name, *aliases in group_signatures(signatures, names):
            step("signature {}".format(name))
            state = State(tf, signatures[name])
            runs.append(
                {
                    "signature": name,
                    "aliases": aliases,
                    **_measure_signature(
                        tf,
                        signatures[name],
                        state,
                        (rewrites, kind),
                        lambda signature: inputs_for(signature, root),
                    ),
                }
            )
    return {"ignored": ignored, "signatures": runs}


def _measure_signature(
    tf: Any,
    signature: Any,
    state: Any,
    rewrites_and_device: tuple[Sequence[Any], str],
    inputs_for: Callable[[Any], FedInputs],
) -> dict[str, Any]:
    """Measure one signature; if it cannot run, ``refused`` has the reason."""
    rewrites, kind = rewrites_and_device
    try:
        fed = inputs_for(signature)
        state.reset()  # ``inputs_for`` may have called the signature
        pair = _Pair(tf, signature, rewrites, state)
        missing = pair.missing(kind)
        missing_everywhere = [op for op in missing if not op["elsewhere"]]
        comparison = pair.compare(fed) if not missing_everywhere else {"calls": [], "outputs": []}
    except Refused as error:
        return {"refused": {"code": error.code, "message": str(error)}}
    except tf.errors.ResourceExhaustedError:
        raise
    except (ValueError, TypeError, tf.errors.OpError) as error:
        return {
            "refused": {
                "code": "not-runnable",
                "message": "its graph cannot run on this device: {}".format(sentence(error)),
            }
        }
    rewrite = {
        "option": pair.rewrite.option,
        "said": pair.rewrite.said,
        **pair.changes.to_json(),
        "kept": pair.kept,
    }
    report: dict[str, Any] = {
        "missing": missing_everywhere,
        "fallbacks": [op for op in missing if op["elsewhere"]],
        "unmatched": [],
        "gradients": None,
        "timings": {},
        "notes": [],
    }
    return {"refused": None, "rewrite": rewrite, "inputs": fed.report, **report, **comparison}


def _first_rewrite(signature: Any, rewrites: Sequence[Any]) -> tuple[Any, Any, Any]:
    """
    Return a signature's graph, plain and rewritten, and the first rewrite that does not fail.

    Loops are lowered, as they are when TensorFlow runs the pass itself. If the pass fails on that,
    as ``auto_mixed_precision_cpu`` does, they stay functions, which the pass rewrites too.
    """
    failed = []
    for rewrite in rewrites:
        for loops in (True, False):
            plain_graph = mixed_precision.inline_functions(signature, loops=loops)
            try:
                return (
                    plain_graph,
                    mixed_precision.apply_rewrite(
                        plain_graph, mixed_precision.names(signature), rewrite
                    ),
                    rewrite,
                )
            except Refused as error:
                failed.append(error)
    raise failed[0]


def _merged(rows: Sequence[Any], vectors: Any) -> list[Any]:
    return [tensor_errors.merge(*pair) for pair in zip(rows, vectors)] if rows else list(vectors)


class _Pair:
    """A signature's plain graph and the rewritten one, in one function."""

    def __init__(self, tf: Any, signature: Any, rewrites: Sequence[Any], state: Any) -> None:
        self.tf = tf
        self.signature = signature
        self.plain, self.other, self.rewrite = _first_rewrite(signature, rewrites)
        emulated = (
            mixed_precision.float16_ops(
                tf, self.plain, mixed_precision.names(signature), self.rewrite
            )
            if self.rewrite.emulates
            else None
        )
        self.changes = scopes.Changes(self.plain, self.other, emulated)
        self.kept = scopes.kept_scopes(
            self.plain,
            [tensor.op.name for _, tensor in named_inputs(signature)],
            self.changes.names,
        )
        """The scopes with ops that stay in float32."""

        mixed_precision.rename(self.plain, REFERENCE)
        mixed_precision.rename(self.other, CANDIDATE)
        self.inputs = named_inputs(signature)
        self.state = state
        self.calls: list[dict[str, Any]] = []
        self.outputs: list[dict[str, Any]] = []
        specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for _, tensor in self.inputs]
        # not tf.function: the order that it gives to what reads variables would lead into loops
        # that are written out
        self.run = tf.compat.v1.wrap_function(self._trace_comparisons, specs)

    def missing(self, kind: str) -> list[dict[str, Any]]:
        """Return the ops for which devices of a kind have no kernel."""
        operations = [
            op for op in self.run.graph.get_operations() if op.name.startswith(CANDIDATE + "/")
        ]
        return op_placement.missing_kernels(
            self.tf, operations, kind, lambda name: scopes.path(scopes.imported_name(name)) or None
        )

    def compare(self, fed: FedInputs) -> dict[str, Any]:
        """
        Return the differences of layers and outputs over all batches. The changes of outputs do not
        include extra batches.
        """

        def run(batch: Mapping[str, Any]) -> tuple[Any, Any]:
            vectors, *outputs = self.run(
                *[self.tf.cast(batch[name], tensor.dtype) for name, tensor in self.inputs]
            )
            self.state.reset()
            return vectors.numpy(), [tensor.numpy() for tensor in outputs]

        rows: list[Any] = []
        changes = [OutputChanges() for _ in self.outputs]
        for batch in fed.batches:
            vectors, outputs = run(batch)
            rows = _merged(rows, vectors)
            for number, change in enumerate(changes):
                change.update(*outputs[2 * number : 2 * number + 2])
        for vectors, _ in measure_extremes(fed, list(rows), run, lambda result: result[0]):
            rows = _merged(rows, vectors)
        for tensor, row in zip(
            [*(output for call in self.calls for output in call["outputs"]), *self.outputs], rows
        ):
            tensor["accumulated"] = tensor_errors.to_json(row)
        for output, change in zip(self.outputs, changes):
            output["changes"] = change.to_json()
        return {"calls": self.calls, "outputs": self.outputs}

    def _trace_comparisons(self, *tensors: Any) -> Any:
        """
        Return the comparisons of all watched tensors, one per row, and both values of each output.
        """
        tf = self.tf
        graph = tf.compat.v1.get_default_graph()
        input_values = {tensor.name: value for (_, tensor), value in zip(self.inputs, tensors)}
        captured = {name: graph.capture(tensor) for name, tensor in self.state.read.items()}
        ops = self._import_graph(graph, self.plain, {**input_values, **captured}, REFERENCE)
        inner = scopes.within(ops)
        shared = {
            scopes.imported_name(op.outputs[0].name): op.outputs[0]
            for op in ops
            if op.type.startswith(_RANDOM) and op.outputs and not inner[op.name]
        }
        copied = {name: graph.capture(tensor) for name, tensor in self.state.copied.items()}
        self._import_graph(
            graph, self.other, {**input_values, **captured, **copied, **shared}, CANDIDATE
        )
        watched = scopes.watched_tensors(
            ops, tensors, {REFERENCE + "/" + name for name in self.changes.names}, inner
        )
        vectors, values, sources = [], [], []
        widen = Comparisons(tf).widened
        self.calls, self.outputs = [], []
        for (scope, reference), depth in zip(watched, scopes.depth_of(ops, watched)):
            name = scopes.imported_name(reference.name)
            candidate = graph.get_tensor_by_name(
                CANDIDATE + "/" + self.changes.rounded.get(name, name)
            )
            sources.append((reference.op, graph.get_tensor_by_name(CANDIDATE + "/" + name).op))
            self.calls.append(_call(scope, reference, candidate, sources[-1][1], depth))
            vectors.append(tensor_errors.compare_tensors(tf, widen(reference), candidate))
        for name, tensor in named_outputs(self.signature):
            reference, candidate = (
                input_values[tensor.name]
                if tensor.name in input_values
                else graph.get_tensor_by_name(side + "/" + tensor.name)
                for side in (REFERENCE, CANDIDATE)
            )
            self.outputs.append({"name": name, "activation": None, **_tensor(reference, candidate)})
            vectors.append(tensor_errors.compare_tensors(tf, widen(reference), candidate))
            values += [widen(reference), widen(candidate)]
        _keep_in_step(sources, [vector.op for vector in vectors])
        return [tf.stack(vectors), *values]

    def _import_graph(
        self, graph: Any, graph_def: Any, input_map: Mapping[str, Any], name: str
    ) -> list[Any]:
        self.tf.graph_util.import_graph_def(graph_def, input_map=input_map, name=name)
        return [op for op in graph.get_operations() if op.name.startswith(name + "/")]


def _keep_in_step(sources: Sequence[tuple[Any, Any]], comparisons: Sequence[Any]) -> None:
    """
    Let compared tensors wait for those some places before them, so that few activations are in
    memory.
    """
    for pair, comparison in zip(sources[AHEAD:], comparisons):
        wait(pair, [comparison])


def _call(scope: str, reference: Any, candidate: Any, op: Any, depth: int) -> dict[str, Any]:
    """
    Return the facts of a scope, with the keys of a layer's call; ``op`` is the op in the rewritten
    graph.
    """
    rounded = candidate.op is not op
    inputs = {
        candidate.dtype.name if rounded and tensor.dtype.name == "float32" else tensor.dtype.name
        for tensor in op.inputs
        if tensor.dtype.is_floating
    }
    return {
        **LayerId(scope, reference.op.type).fields(),
        "number": 0,
        "compute_reference": reference.dtype.name,
        "compute_candidate": candidate.dtype.name,
        "inputs": sorted(inputs),
        "depth": depth,
        "children": 0,
        "is_model": False,
        "outputs": [_tensor(reference, candidate)],
    }


def _tensor(reference: Any, candidate: Any) -> dict[str, Any]:
    """Return the facts of a tensor before it is compared."""
    shape = reference.shape.as_list() if reference.shape.rank is not None else []
    dtypes = {"dtype_reference": reference.dtype.name, "dtype_candidate": candidate.dtype.name}
    return {"shape": shape, **dtypes, "accumulated": None, "isolated": None, "tf32": None}
