"""
The ops of a graph for which a device has no kernel, found before the graph runs.

TensorFlow looks for a kernel for each op of a function, and of every function called from there,
when the function first runs: for ops that nothing needs and for branches that are never taken too,
but not for what XLA compiles. (TF 2.2 leaves out ops that nothing needs; 2.9 and 2.21 do not.) An
op without a kernel anywhere ends the run. One that only the CPU has a kernel for runs there,
whichever device its function was called under: soft placement decides about ops that name a device
themselves, and those of a function do not unless its own code says so
(``tensorflow/core/common_runtime/placer.cc``).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Callable, Sequence


EVERY = "DEFAULT"
"""The device of kernels for all devices in the registry (TF 2.5 and later)."""

CONSTRAINED = ("type", "s", "i", "b")
"""
The kinds of attributes that select kernels, which are mostly dtypes, and also layouts and the like.
"""

VALUES = frozenset({"Placeholder", "_Arg", "Const"})
"""
Ops without computations: arguments of a function on any device, and constants, such as texts of
assertions.
"""

COMPILED = "_XlaMustCompile"


def missing_kernels(
    tf: Any,
    operations: Sequence[Any],
    kind: str,
    layer_of: Callable[[str], str | None],
) -> list[dict[str, Any]]:
    """
    Return the ops of one graph for which devices of a kind, ``cpu`` or ``gpu``, have no kernel.

    ``layer_of`` returns the path of the layer that an op of the graph belongs to, by the op's name;
    what is in a function belongs to the op that calls it. ``op`` is the op's name, after that of
    its caller. ``dtype`` is the one that no kernel takes; the op's first float dtype where none
    alone is to blame. ``elsewhere`` tells whether the CPU has a kernel, where another kind is asked
    for; ``in_float32`` whether the kind would have one in float32.

    The kernels of GPUs are listed only by a TensorFlow that was built for them.
    """
    if not operations:
        return []
    definition = operations[0].graph.as_graph_def()
    search = _Search(_Kernels(tf), definition, kind)
    names = {operation.name for operation in operations}
    return [
        {**search.to_json(node), "op": name, "layer": layer_of(caller.name)}
        for caller in definition.node
        if caller.name in names
        for name, node in search.below(caller)
    ]


class _Search:
    """The nodes without a kernel in the functions of one graph."""

    def __init__(self, kernels: _Kernels, definition: Any, kind: str) -> None:
        self._kernels = kernels
        self._kind = kind
        self._functions = {
            function.signature.name: function for function in definition.library.function
        }
        self._nodes_by_function: dict[str, list[tuple[str, Any]]] = {}

    def below(self, node: Any) -> list[tuple[str, Any]]:
        """
        Return the nodes without a kernel, with their names: of the node itself and of the functions
        that it calls.
        """
        inner_nodes = [
            (node.name + "/" + name, inner)
            for function in self._called_functions(node)
            for name, inner in self._nodes_without_kernel(function)
        ]
        if node.op in self._functions or node.op in VALUES or self._kernels.has(node, self._kind):
            return inner_nodes
        return [(node.name, node), *inner_nodes]

    def to_json(self, node: Any) -> dict[str, Any]:
        """Return the description of a node without a kernel."""
        return {
            "type": node.op,
            "dtype": self._kernels.unsupported_dtype(node, self._kind),
            "elsewhere": self._kind != "cpu" and self._kernels.has(node, "cpu"),
            "in_float32": self._kernels.has_in_float32(node, self._kind),
        }

    def _nodes_without_kernel(self, name: str) -> list[tuple[str, Any]]:
        """
        Return the nodes without a kernel in a function of the graph, each function searched once.
        """
        if name not in self._nodes_by_function:
            self._nodes_by_function[name] = []  # a function that calls itself is searched once
            self._nodes_by_function[name] = [
                entry for node in self._functions[name].node_def for entry in self.below(node)
            ]
        return self._nodes_by_function[name]

    def _called_functions(self, node: Any) -> list[str]:
        """Return the functions of the graph that a node calls, without compiled ones."""
        names = [node.op]
        for value in node.attr.values():
            names += [value.func.name, *(function.name for function in value.list.func)]
        return [
            name
            for name in dict.fromkeys(names)
            if name in self._functions
            and not _is_compiled(node)
            and not _is_compiled(self._functions[name])
        ]


class _Kernels:
    """TensorFlow's registry of kernels; results are cached, because graphs have many equal ops."""

    def __init__(self, tf: Any) -> None:
        self._tf = tf
        self._kernels: dict[tuple[str, str, str], Any] = {}
        self._known: dict[Any, bool] = {}

    def has(self, node: Any, kind: str) -> bool:
        """Return whether devices of a kind have a kernel that supports a node's attributes."""
        kernels = self._of(node, kind)
        names = sorted({name for kernel in kernels for name, _, _ in kernel})
        key = (node.op, kind, tuple(node.attr[name].SerializeToString() for name in names))
        if key not in self._known:
            self._known[key] = any(
                all(_takes(node, constraint) for constraint in kernel) for kernel in kernels
            )
        return self._known[key]

    def has_in_float32(self, node: Any, kind: str) -> bool:
        """Return whether the devices have a kernel for the op in float32."""
        other = type(node)()
        other.CopyFrom(node)
        for value in other.attr.values():
            if value.type and self._tf.as_dtype(value.type).is_floating:
                value.type = self._tf.float32.as_datatype_enum
            for place, number in enumerate(value.list.type):
                value.list.type[place] = (
                    self._tf.float32.as_datatype_enum
                    if self._tf.as_dtype(number).is_floating
                    else number
                )
        return self.has(other, kind)

    def unsupported_dtype(self, node: Any, kind: str) -> str | None:
        """
        Return a dtype of the node that no kernel supports for its attribute, preferably a float
        dtype. If some kernel supports each dtype, return any dtype of the node.
        """
        kernels = self._of(node, kind)
        dtypes_of_node = {
            name: _values(value, "type")
            for name, value in sorted(node.attr.items())
            if _values(value, "type")
        }
        allowed = {
            name: {
                number
                for kernel in kernels
                for attribute, _, numbers in kernel
                if attribute == name
                for number in numbers
            }
            for name in dtypes_of_node
        }
        refused = [
            number
            for name, numbers in dtypes_of_node.items()
            for number in numbers
            if allowed[name] and number not in allowed[name]
        ]
        dtypes = [
            self._tf.as_dtype(number)
            for number in refused
            or [number for numbers in dtypes_of_node.values() for number in numbers]
        ]
        return next(
            (dtype.name for dtype in sorted(dtypes, key=lambda dtype: not dtype.is_floating)), None
        )

    def _of(self, node: Any, kind: str) -> Any:
        """
        Return the constraints of each kernel: an attribute's name, its kind, and what is allowed.
        """
        label = node.attr["_kernel"].s.decode() if "_kernel" in node.attr else ""
        key = (node.op, kind, label)
        if key not in self._kernels:
            kernels = [
                kernel
                for kernel in _registered(node.op)
                if kernel.device_type in (kind.upper(), EVERY) and kernel.label == label
            ]
            self._kernels[key] = [
                [_constraint(constraint) for constraint in kernel.constraint] for kernel in kernels
            ]
        return self._kernels[key]


@functools.lru_cache(maxsize=None)
def _registered(op: str) -> Any:
    """Return the kernels of an op, for which TensorFlow searches all of its kernels."""
    from tensorflow.python.framework import kernels

    return kernels.get_registered_kernels_for_op(op).kernel


def _is_compiled(holder: Any) -> bool:
    return COMPILED in holder.attr and bool(holder.attr[COMPILED].b)


def _constraint(constraint: Any) -> tuple[str, str, Any]:
    allowed = constraint.allowed_values.list
    field = next((field for field in CONSTRAINED if getattr(allowed, field)), CONSTRAINED[0])
    return constraint.name, field, frozenset(getattr(allowed, field))


def _takes(node: Any, constraint: tuple[str, str, Any]) -> bool:
    name, field, allowed = constraint
    return name not in node.attr or all(
        value in allowed for value in _values(node.attr[name], field)
    )


def _values(value: Any, field: str) -> list[Any]:
    """Return the values of one kind in an attribute, which may be a list or a single value."""
    kind = value.WhichOneof("value")
    return (
        list(getattr(value.list, field))
        if kind == "list"
        else [getattr(value, field)]
        if kind == field
        else []
    )
