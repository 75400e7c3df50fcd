"""
The traces of a SavedModel's graph: the ops of each entry point, with calls, loops and branches
followed.

An entry point is a signature or, if there is none, a function of the root object. An op is
identified by its scope: its name before the last slash, as if each function were inlined where it
is called. The loop bodies of ``tf.function`` already contain complete names.
The variables that a scope reads are traced through the arguments of functions, because scopes do
not identify layers: in exports of Keras 3, ``dense_1/MatMul`` is a call of the layer ``dense``.

Sources: tensorflow/core/protobuf/{meta_graph,saved_object_graph}.proto,
tensorflow/core/framework/{graph,function,node_def,attr_value}.proto.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from policytool.formats.document import GraphOp, Trace
from policytool.formats.saved_model.graph_bodies import functions_of, inputs_of, text
from policytool.releases import dtypes, graph_ops
from policytool.support import limits, steps
from policytool.support.grouping import EachOnce

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

VARIABLE_OPS: Final = frozenset({"VarHandleOp", "VariableV2", "Variable", "AutoReloadVariable"})
"""Ops that represent a variable in a graph without an object graph (TF 1)."""

_INTERNAL: Final = b"__saved_model_"
"""
The beginning of the names of ops for initialisation and training. They are listed as signatures,
but are never called by name.
"""

_OUTSIDE: Final = VARIABLE_OPS | {"Placeholder"}
"""Ops of the main graph that represent external inputs."""

_WITH_CONDITION: Final = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})
"""Ops whose first input selects the branch and is not an argument of it."""

_FLOATS: Final = {
    number: name for number, name in dtypes.OF_TENSORFLOW_ENUM.items() if dtypes.is_float(name)
}
_FACTORS: Final = _FLOATS | {
    number: name for number, name in dtypes.OF_TENSORFLOW_ENUM.items() if name in ("int8", "uint8")
}
"""The dtypes of matrix products: the layers that Keras 3 quantizes multiply in int8."""
_ENGINE: Final = "TRTEngineOp"
_PRECISION: Final = b"precision_mode"
_ENGINES: Final[dict[bytes, tuple[str, ...]]] = {
    b"FP32": ("float32",),
    b"FP16": ("float16",),
    b"INT8": (),
}
"""
The float dtypes in which a TensorRT engine computes, independent of its inputs and outputs; empty
for INT8 (tensorflow/compiler/tf2tensorrt/ops/trt_engine_op.cc).
"""

_CHARACTERS: Final = 4
"""The number of characters of a name that count as one step: a part of a scope and a slash."""

_REFERENCE: Final = 100
"""The difference between the numbers of a dtype and of a reference to it (types.proto)."""


class GraphLimitError(Exception):
    """A graph that exceeds a limit, which the message names."""


class _Node(Struct, frozen=True):
    """A node of a graph or function, decoded."""

    name: str
    op: str
    inputs: tuple[str, ...]
    """The source of each data input: the name of a node or argument."""

    dtypes: tuple[str, ...]
    calls: tuple[str, ...]
    """The functions that the node calls."""


class _Function(Struct, frozen=True):
    arguments: tuple[str, ...]
    nodes: tuple[_Node, ...]


@dataclass
class _Reader:
    """
    The functions of one graph, decoded at first use, and the trace of one entry point.
    """

    functions: Mapping[str, Any]
    bound: Mapping[str, Sequence[int]]
    """The objects that are the last arguments of each function, by its name."""

    variables: frozenset[int]
    """The objects that are variables."""

    decoded: dict[str, _Function] = field(default_factory=dict)
    steps: int = 0
    most: int = field(default_factory=lambda: limits.TRACE_STEPS.value)

    def trace(
        self, entry: str, nodes: Iterable[_Node], sources: Mapping[str, int], *, signature: bool
    ) -> Trace:
        """
        Return the trace of an entry point.

        :param nodes: the nodes of its graph
        :param sources: the numbers of the variables, by the names of their nodes
        :param signature: whether the entry point is a signature
        """
        counts: Counter[GraphOp] = Counter()
        reads: dict[tuple[str, ...], dict[int, None]] = defaultdict(dict)
        pending: list[tuple[tuple[_Node, ...], Mapping[str, int], str, tuple[str, ...]]] = [
            (tuple(nodes), sources, "", ())
        ]
        deepest = limits.SCOPE_DEPTH.value
        while pending:
            body, bindings, scope, callers = pending.pop()
            if excess := limits.CALL_DEPTH.exceeded_message(len(callers), counting=True):
                raise GraphLimitError(f"nests calls to a depth of {excess}")
            for node in body:
                name = (
                    node.name
                    if not scope or node.name.startswith(f"{scope}/")
                    else f"{scope}/{node.name}"
                )
                self.count(
                    1
                    + len(node.inputs)
                    + len(node.calls) * (1 + len(node.inputs))
                    + len(name) // _CHARACTERS
                )
                if (depth := name.count("/")) > deepest:
                    raise GraphLimitError(
                        f"nests scopes to a depth of {limits.SCOPE_DEPTH.exceeded_message(depth)}"
                    )
                *above, _ = name.split("/")
                variable_numbers = [
                    bindings[source] for source in node.inputs if source in bindings
                ]
                if node.calls:
                    inputs = node.inputs[1:] if node.op in _WITH_CONDITION else node.inputs
                    for called in node.calls:
                        if called in self.functions and called not in callers:
                            function = self.function(called)
                            self.count(len(self.bound.get(called, ())))
                            pending.append(
                                (
                                    function.nodes,
                                    self._bind_arguments(called, inputs, bindings),
                                    "/".join(above),
                                    (*callers, called),
                                )
                            )
                    continue
                if node.dtypes and node.op not in _OUTSIDE:
                    counts[GraphOp(scope=tuple(above), op=node.op, dtypes=node.dtypes)] += 1
                for number in variable_numbers:
                    reads[tuple(above)].setdefault(number)
        return Trace(
            entry=entry,
            signature=signature,
            ops=tuple(counts.items()),
            reads={scope: tuple(numbers) for scope, numbers in reads.items()},
        )

    def count(self, steps: int) -> None:
        """Count steps, because a small file can need a large number of steps."""
        self.steps += steps
        if self.steps > self.most:
            raise GraphLimitError(
                f"needs {limits.TRACE_STEPS.exceeded_message(self.steps, counting=True)}"
            )

    def function(self, name: str) -> _Function:
        """Return a function of the graph's library."""
        if name not in self.decoded:
            message = self.functions[name]
            self.decoded[name] = _Function(
                tuple(text(argument.name) for argument in message.signature.arguments),
                tuple(_node(node) for node in message.nodes),
            )
        return self.decoded[name]

    def captured_variables(self, name: str) -> dict[str, int]:
        """
        Return the arguments of a function that are captured variables, with their numbers
        in the object graph.
        """
        arguments, bound = self.function(name).arguments, self.bound.get(name, ())
        last = arguments[max(0, len(arguments) - len(bound)) :]
        return {
            argument: number
            for argument, number in zip(last, bound[len(bound) - len(last) :], strict=True)
            if number in self.variables
        }

    def _bind_arguments(
        self, name: str, inputs: Sequence[str], variables_of_caller: Mapping[str, int]
    ) -> dict[str, int]:
        """
        Return the arguments of a called function that are variables, passed or captured,
        with their object numbers; ``variables_of_caller`` are the caller's, by name.
        """
        return {
            **{
                argument: variables_of_caller[source]
                for argument, source in zip(self.function(name).arguments, inputs, strict=False)
                if source in variables_of_caller
            },
            **self.captured_variables(name),
        }


def traces(meta_graph: Any, graph_def: Any) -> tuple[Trace, ...]:
    """
    Return the trace of each entry point; empty for a file without traced functions
    (``save_traces=False``).

    :raises GraphLimitError: if the graph exceeds a limit.
    """
    objects = meta_graph.object_graph
    reader = _Reader(
        functions={
            text(function.signature.name): function for function in graph_def.library.functions
        },
        bound={
            text(entry.key): tuple(entry.value.bound_inputs) for entry in objects.concrete_functions
        },
        variables=frozenset(
            index for index, node in enumerate(objects.nodes) if node.HasField("variable")
        ),
    )
    try:
        return tuple(_signature_traces(reader, meta_graph, graph_def))
    finally:
        steps.spend(reader.steps, walk="traced ops")


def _signature_traces(reader: _Reader, meta_graph: Any, graph_def: Any) -> Iterable[Trace]:
    """Return the traces of the signatures; if there are none, of the root object's functions."""
    objects = meta_graph.object_graph
    main = {(node := _node(message)).name: node for message in graph_def.nodes}
    sources = (
        {}
        if objects.nodes
        else {
            node.name: index for index, node in enumerate(main.values()) if node.op in VARIABLE_OPS
        }
    )
    signature_traces = [
        reader.trace(
            text(entry.key),
            _needed_nodes(main, [text(tensor.value.name) for tensor in entry.value.outputs]),
            sources,
            signature=True,
        )
        for entry in sorted(meta_graph.signatures, key=lambda entry: entry.key)
        if not is_internal(entry.key)
    ]
    return [trace for trace in signature_traces if trace.ops] or _root_traces(reader, objects)


def is_internal(key: bytes) -> bool:
    """Return whether an entry among the signatures is an op that TensorFlow added."""
    return key.startswith(_INTERNAL)


def _root_traces(reader: _Reader, objects: Any) -> Iterator[Trace]:
    """Yield the traces of the root object's functions, each with its attribute as the entry."""
    for edge in objects.nodes[0].children if objects.nodes else ():
        node = objects.nodes[edge.node_id] if 0 <= edge.node_id < len(objects.nodes) else None
        if node is None:
            continue
        reader.count(1 + len(node.function.concrete_functions))
        for name in (
            name
            for name in map(
                text, [*node.function.concrete_functions, node.bare_function.concrete_function]
            )
            if name in reader.functions
        ):
            trace = reader.trace(
                text(edge.local_name),
                reader.function(name).nodes,
                reader.captured_variables(name),
                signature=False,
            )
            if trace.ops:
                yield trace
                break  # other functions are the same for other arguments, such as training


def _needed_nodes(main: Mapping[str, _Node], outputs: Iterable[str]) -> Iterator[_Node]:
    """Yield the nodes of the main graph from which the outputs are computed."""
    walk = EachOnce(output.partition(":")[0] for output in outputs)
    for name in walk:
        if (node := main.get(name)) is not None:
            yield node
            walk.add(node.inputs)


def _node(message: Any) -> _Node:
    """Return a node of a graph, with the dtypes in its attributes that count for its op."""
    op = text(message.op)
    counted = _FACTORS if graph_ops.multiplies_bytes(op) else _FLOATS
    attributes: dict[str, tuple[str, ...]] = {}
    engine: tuple[str, ...] | None = None
    for entry in message.attributes:
        value = entry.value
        if entry.key == _PRECISION:
            engine = _ENGINES.get(value.text.upper())
        numbers: Iterable[int] = (value.type,) if value.type else value.list.types
        attributes[text(entry.key)] = tuple(
            counted[number % _REFERENCE] for number in numbers if number % _REFERENCE in counted
        )
    name, inputs = text(message.name), tuple(inputs_of(message))
    if op == _ENGINE and engine is not None:
        # the original segment of the graph runs only if the engine cannot be built
        return _Node(name, op, inputs, engine, ())
    return _Node(name, op, inputs, graph_ops.dtypes(op, attributes), tuple(functions_of(message)))
