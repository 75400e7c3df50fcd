"""
What of a SavedModel can be called, as a graph: its signatures or, where it has none, the functions
of its root object; and which of them compute the same: Keras 3 exports each model as ``serve`` and
``serving_default``.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from ..library import Refused, refusing
from . import mixed_precision

if TYPE_CHECKING:
    from typing import Any, Mapping, Sequence


_INTERNAL = "__saved_model_"
"""
What the names of ops for initialisation and training begin with, which TF 1 puts among the
signatures.
"""

_ASSIGNING = ("Assign", "ResourceApply", "ResourceScatter", "ResourceSparseApply")


def load_root(tf: Any, path: str, tags: Any) -> Any:
    """
    Return the root object of a SavedModel, with its tables initialised; it has to be held, because
    signatures do not keep their variables alive.

    :raises Refused: with what TensorFlow says, where it cannot be loaded.
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
        if traced and inputs(traced[0]):
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

    def called(**named_tensors: Any) -> Any:
        tensors = iter(named_tensors[name] for name in specs)
        arguments, keywords = tf.nest.pack_sequence_as(
            structure, [next(tensors) if isinstance(leaf, tf.TensorSpec) else leaf for leaf in flat]
        )
        return function(*arguments, **keywords)

    named_specs = {
        name: tf.TensorSpec(spec.shape, spec.dtype, name=name) for name, spec in specs.items()
    }
    return tf.function(called, autograph=False).get_concrete_function(**named_specs)


def inputs(signature: Any) -> list[tuple[str, Any]]:
    """
    Return what a signature takes: each keyword with its placeholder, in the order of the graph's.
    """
    placeholders = signature.inputs[: len(signature.inputs) - len(signature.captured_inputs)]
    keywords = getattr(signature, "_arg_keywords", None)
    names = (
        list(keywords) if keywords is not None else sorted(signature.structured_input_signature[1])
    )
    if len(names) != len(placeholders):
        names = [tensor.name.partition(":")[0] for tensor in placeholders]
    return list(zip(names, placeholders))


def outputs(signature: Any) -> list[tuple[str, Any]]:
    """
    Return what a signature gives: each name with its tensor; parts of what is nested, ragged or
    sparse by their place.
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
        """Name of a placeholder to what is captured."""

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
        """The same for the rewritten graph, as far as it differs."""

    def reset(self) -> None:
        """
        Give every variable that may have been written, and its copy, the value that it began with.
        """
        for name, pair in self._pairs.items():
            for variable in pair:
                variable.assign(self._first[name])


PREFERRED = "serving_default"
"""The signature that callers use unless they name another."""


def group_signatures(signatures: Mapping[str, Any], names: Sequence[str]) -> list[list[str]]:
    """
    Return the names in groups of signatures with the same graph, inputs, variables and outputs; the
    first of each represents its group.
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
            for name, tensor in inputs(signature)
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
        for name, tensor in outputs(signature)
    )
    return tuple(sorted(output_digests))


def _source(digests: Mapping[str, str], source: str) -> str:
    """Return what stands for an input of a node, with its number."""
    name, _, number = source.lstrip("^").partition(":")
    return "{}{}:{}".format("^" * source.startswith("^"), digests[name], number or 0)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
