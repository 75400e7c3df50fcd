"""
Ask TensorFlow what the functions of SavedModels compute in: ``python graphs.py JOBS RESULTS``.

JOBS is a JSON list of paths, RESULTS gets ``{path: {signature: [[scope, op, dtypes, count],
...]}}``. Each function is made a graph of TensorFlow's own, so dtypes are those of real tensors,
and what calls what is followed along its own function attributes.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any, Final

tf: Any = import_module("tensorflow")
saved_model_pb2: Any = import_module("tensorflow.core.protobuf.saved_model_pb2")
function_def_to_graph: Any = import_module("tensorflow.python.framework.function_def_to_graph")

FLOATS: Final = {"float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"}
OUTSIDE: Final = {"Placeholder", "VarHandleOp", "VariableV2", "Variable", "_Arg"}


def dtypes(op: Any) -> tuple[str, ...]:
    """Return the float dtypes of an op's tensors."""
    actual = {tensor.dtype.base_dtype.name for tensor in (*op.inputs, *op.outputs)}
    return tuple(sorted(actual & FLOATS))


def called(op: Any) -> list[str]:
    """Return the functions that an op runs."""
    found = []
    for value in op.node_def.attr.values():
        found += [value.func.name] * bool(value.func.name) + [
            function.name for function in value.list.func
        ]
    return found


class Walk:
    """The functions of one file, and what was met."""

    def __init__(self, graph: Any, library: Any) -> None:
        self.graph = graph
        self.library = {function.signature.name: function for function in library}
        self.bodies: dict[str, list[Any]] = {}
        self.found: Counter[tuple[str, str, tuple[str, ...]]] = Counter()

    def body(self, name: str) -> list[Any]:
        """Return the ops of a function."""
        if name not in self.bodies:
            with self.graph.as_default():
                self.bodies[name] = function_def_to_graph.function_def_to_graph(
                    self.library[name]
                ).get_operations()
        return self.bodies[name]

    def take(self, ops: list[Any], scope: str) -> None:
        """Count ops, those of functions as if they were written out where they are called."""
        for op in ops:
            whole = (
                op.name if not scope or op.name.startswith(scope + "/") else scope + "/" + op.name
            )
            above = whole.rpartition("/")[0]
            functions = [name for name in called(op) if name in self.library]
            for name in functions:
                self.take(self.body(name), above)
            if not functions and op.type not in OUTSIDE and dtypes(op):
                self.found[above, op.type, dtypes(op)] += 1


def needed(graph: Any, outputs: list[str]) -> list[Any]:
    """Return the ops that outputs are computed from."""
    pending = [graph.get_operation_by_name(name.partition(":")[0]) for name in outputs]
    seen: dict[str, Any] = {}
    while pending:
        op = pending.pop()
        if op.name not in seen:
            seen[op.name] = op
            pending += [tensor.op for tensor in op.inputs]
    return list(seen.values())


def signatures(path: str) -> dict[str, list[list[Any]]]:
    """Return what each signature of a SavedModel runs."""
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString(Path(path, "saved_model.pb").read_bytes())
    meta = saved.meta_graphs[0]
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(meta.graph_def, name="")
    answers = {}
    for name, signature in meta.signature_def.items():
        if name != "__saved_model_init_op":
            walk = Walk(graph, meta.graph_def.library.function)
            walk.take(needed(graph, [tensor.name for tensor in signature.outputs.values()]), "")
            answers[name] = [[*key, count] for key, count in sorted(walk.found.items())]
    return answers


if __name__ == "__main__":
    jobs = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    Path(sys.argv[2]).write_text(
        json.dumps({path: signatures(path) for path in jobs}), encoding="utf-8"
    )
