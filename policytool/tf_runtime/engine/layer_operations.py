"""
What the operations of a layer say about it: how many products or terms it adds up, which is its
reduction depth, and whether it draws random numbers although nothing is trained, such as a Dropout
that is always on. Each of two models then has numbers of its own.

Rounding errors of a sum grow with the number of its terms, as the square root where they are
random; so this is what a tolerance has to know of a layer, whatever its class.
"""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING

from ..facts import op_facts

if TYPE_CHECKING:
    from typing import Any, Callable, Iterable

    from .call_pairs import Pair
    from .layer_hooks import Call


_BODIES = ("body", "then_branch", "else_branch", "f")
_LIST = "TensorListFromTensor"


def depth(graph: Any, call: Call) -> int:
    """
    Return the sum of the depths of all reductions in a call, one after the other; 0 without
    reductions.
    """
    return total(graph.get_operations()[call.start : call.stop])


def total(operations: Iterable[Any]) -> int:
    """Return the sum of the depths of operations, one after the other."""
    return sum(_depth(operation) for operation in operations)


def _depth(operation: Any) -> int:
    """
    Return the depth of an operation, and of the functions that it calls; of a loop's body as often
    as the loop turns.
    """
    return _own(operation) + _turns(operation) * sum(
        _depth(inner)
        for function in _called_graphs(operation)
        for inner in function.get_operations()
    )


def _called_graphs(operation: Any) -> list[Any]:
    """Return the graphs of the functions that an operation calls for its result."""
    values = operation.node_def.attr
    names = [
        values[attribute].func.name
        for attribute in _BODIES
        if attribute in values and values[attribute].HasField("func")
    ]
    functions = [operation.graph._get_function(name) for name in names]  # noqa: SLF001  # a name is all that an attribute has
    return [
        function.graph for function in functions if getattr(function, "graph", None) is not None
    ]


def _turns(operation: Any) -> int:
    """
    Return the number of iterations of a loop: one for each element of the longest list that it
    iterates over, such as an RNN's sequence.
    """
    lists = [tensor.op for tensor in operation.inputs if tensor.op.type == _LIST]
    return max(
        [_dims(list_op.inputs[0])[0] for list_op in lists if _dims(list_op.inputs[0])], default=1
    )


def _own(operation: Any) -> int:
    """Return the depth of an operation by itself; first of products."""
    kind = operation.type
    shapes = [_dims(tensor) for tensor in operation.inputs]
    if kind == "MatMul":
        return _shared(shapes, operation.get_attr("transpose_a"), operation.get_attr("transpose_b"))
    if kind.startswith("BatchMatMul"):
        return _shared(shapes, operation.get_attr("adj_x"), operation.get_attr("adj_y"))
    if kind == "Einsum":
        return _contracted(operation.get_attr("equation").decode(), shapes)
    if kind.startswith("DepthwiseConv"):
        return _product(shapes[1][:2])
    if kind.startswith("Conv") and len(shapes) > 1:
        return (
            _product(shapes[1][:-1])
            if "Backprop" not in kind
            else _product(shapes[1][:-2] + shapes[1][-1:])
        )
    if kind.startswith(
        "CudnnRNN"
    ):  # the whole of an RNN on a GPU: each step multiplies its input and the state
        return shapes[0][0] * (shapes[0][-1] + shapes[1][-1])
    return _reduced(operation, shapes)


def _reduced(operation: Any, shapes: list[list[int]]) -> int:
    """Return the depth of what adds up a tensor's own elements; 0 for all other operations."""
    sums = op_facts(operation.type).get("sums")
    if sums == "reduced":
        return max(_product(shapes[0]) // max(_product(_dims(operation.outputs[0])), 1), 1)
    if sums == "running":
        return _along(operation)
    if sums == "last_axis":
        return shapes[0][-1] if shapes[0] else 0
    if sums == "window":
        return _product(operation.get_attr("ksize"))
    return 0


def _shared(shapes: list[list[int]], first: bool, second: bool) -> int:  # noqa: FBT001  # as TensorFlow names which operand is transposed
    """
    Return the size of the dimension that a product adds up, by whichever operand has a known one:
    in a loop of TF 1 one has no shape.
    """
    places = (-2 if first else -1, -1 if second else -2)
    return max([shape[place] for shape, place in zip(shapes, places) if shape], default=1)


def _along(operation: Any) -> int:
    """
    Return the size of the axis along which sums are kept; that of the largest where the axis is no
    constant.
    """
    from tensorflow.python.framework import tensor_util

    shape, axis = _dims(operation.inputs[0]), tensor_util.constant_value(operation.inputs[1])
    return max(shape, default=1) if axis is None or not shape else shape[int(axis)]


def _contracted(equation: str, shapes: list[list[int]]) -> int:
    """Return the number of terms of each element of an einsum."""
    operands, _, result = equation.replace(" ", "").partition("->")
    sizes: dict[str, int] = {}
    for labels, shape in zip(operands.split(","), shapes):
        before, dots, after = labels.partition("...")
        sizes.update(zip(before, shape))
        sizes.update(zip(reversed(after if dots else ""), reversed(shape)))
    return _product([size for label, size in sizes.items() if label not in result])


def _dims(tensor: Any) -> list[int]:
    """Return a tensor's shape, with 1 for unknown dimensions."""
    return [size or 1 for size in tensor.shape.as_list()] if tensor.shape.rank is not None else []


def _product(sizes: Any) -> int:
    return functools.reduce(operator.mul, (int(size) for size in sizes), 1)


_DRAWING = ("Multinomial", "Random", "TruncatedNormal")
"""Parts of the types of ops that draw numbers."""


def draws(kind: str) -> bool:
    """Return whether ops of a type draw numbers."""
    return any(word in kind for word in _DRAWING)


def layers(pair: Pair) -> list[str]:
    """
    Return the paths of the layers that draw random numbers on which the compared outputs depend; a
    GRU of Keras 3 also draws masks that it does not use.
    """
    outputs = [tensor.op for tensor in pair.graph.outputs]
    needed = set(reachable(outputs, lambda op: [tensor.op for tensor in op.inputs]))
    drawing = (
        operation.name
        for operation in pair.operations()
        if operation in needed and draws(operation.type)
    )
    return sorted({path for path in map(pair.layer_of, drawing) if path is not None})


def reachable(starts: Iterable[Any], sources: Callable[[Any], Iterable[Any]]) -> Iterable[Any]:
    """Return operations of a graph, and all operations that they depend on, each once."""
    operations: dict[int, Any] = {}
    pending = list(starts)
    while pending:
        operation = pending.pop()
        if id(operation) not in operations:
            operations[id(operation)] = operation
            pending += sources(operation)
    return operations.values()
