"""
Records the calls of layers while a model is traced, and reads their operations.

Hooks record all calls, including those of nested and shared layers, with their inputs and outputs.
Both Kerases call a layer through ``Layer.__call__``, and Keras 3 its ops through
``Operation.__call__``; both are wrapped during a trace. Calls inside another graph, such as the
body of a loop, are not recorded, because their tensors do not exist outside of it. They are
measured through the layer around them.

The operations of a layer determine its reduction depth, the number of terms that it adds up: with
random signs, rounding errors grow with its square root. They also show whether a layer draws random
numbers outside of training, such as a Dropout that is always active; two models then draw different
numbers.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..facts import op_facts
from ..library import KERAS2, KERAS3, child_layers, paths, quantization_mode
from ..tensors import to_array
from .eager_reductions import einsum_depth, product, reductions_watched

if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence

    from ..library import Library

    Key = tuple[str, int]

_SYMBOLIC = "KerasTensor"
"""
The class of symbolic tensors while a model is built; up to TF 2.3, these are tensors of another
graph.
"""


class LayerId(NamedTuple):
    """The layer or op in an answer."""

    path: str | None
    class_name: str | None

    def fields(self) -> dict[str, Any]:
        """Return the fields for an answer in JSON."""
        return dict(self._asdict())


class Call:
    """A traced call of a layer."""

    def __init__(self, layer: Any, key: Key, start: int) -> None:
        self.layer = layer
        self.key = key
        """The layer's path, and the number of its earlier calls."""

        self.start = start
        """The number of operations in the graph before the call."""

        self.stop = start
        self.args: Any = ()
        self.kwargs: Any = {}
        self.masks: dict[int, Any] = {}
        """
        The masks of the inputs, by id, because Keras 3's MultiHeadAttention removes them from its
        inputs.
        """

        self.outputs: Any = None
        self.children: list[Call] = []
        self.parent: Call | None = None
        """The call that made this call; None for the call of the model."""

        self.depth = 0
        """The depths of all reductions in the call if ops run without a graph."""

        self.draws = False
        """Whether the layer draws random numbers if ops run without a graph."""

        self.make: Callable[..., Any] | None = None
        """The function that calls the layer without recording."""

    @property
    def path(self) -> str:
        """The layer's path, names from the root down."""
        return self.key[0]

    @property
    def layer_id(self) -> LayerId:
        """The layer that is called."""
        return LayerId(self.path, type(self.layer).__name__)


class Tape:
    """
    The calls of one model in the graph that is being traced, in the order in which they began.

    ``names`` has the path of each layer by its identity. ``around`` gets each call and a function
    that makes it, and returns what the caller is to get.
    """

    def __init__(
        self,
        library: Library,
        model: Any,
        names: Mapping[int, str],
        around: Callable[[Call, Callable[..., Any]], Any] | None = None,
    ) -> None:
        self.library = library
        self.model = model
        self.names = names
        self.graph = library.tf.compat.v1.get_default_graph() if library.traces else None
        """The graph; None for a backend that runs op by op."""

        self._writes = 0
        self.around = around
        self.calls: dict[Key, Call] = {}
        self.stack: list[Call] = []
        self.counts: dict[str, int] = {}
        self.paused = False

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Record all calls in the context."""
        homes = [self.library.keras.layers.Layer]
        if self.library.family == KERAS3:
            homes.append(
                self.library.keras.Operation
            )  # Layer's own __call__ is another, and calls this one
        originals = [home.__call__ for home in homes]
        for home, original in zip(homes, originals):
            home.__call__ = self._wrap_call(original, homes[0], is_layer=home is homes[0])
        traced = inline_calls(self.library, self.model) if self.library.traces else self._ops()
        try:
            with self._converting(), traced:
                yield
        finally:
            for home, original in zip(homes, originals):
                home.__call__ = original

    @property
    def is_outermost(self) -> bool:
        """Whether the current call is that of the model itself."""
        return len(self.stack) == 1

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Do not record calls in the context."""
        before, self.paused = self.paused, True
        try:
            yield
        finally:
            self.paused = before

    def _wrap_call(self, original: Any, layers: type, *, is_layer: bool) -> Any:
        """Return a replacement for the method that calls a layer, which records the call."""

        @functools.wraps(
            original
        )  # AutoGraph goes by the module of what is called, and leaves a Keras' own alone
        def record_call(layer: Any, *args: Any, **kwargs: Any) -> Any:
            if (
                self.paused
                or is_layer != isinstance(layer, layers)
                or self._is_elsewhere((args, kwargs))
                or self._is_symbolic((args, kwargs))
            ):
                return original(layer, *args, **kwargs)
            return self._call_layer(layer, functools.partial(original, layer), args, kwargs)

        return record_call

    def _is_elsewhere(self, arguments: Any) -> bool:
        """Return whether a call is part of a function that another op calls, such as a loop."""
        tf = self.library.tf
        if self.library.traces:
            return bool(tf.compat.v1.get_default_graph() is not self.graph)
        return any(map(tf.is_inner, tf.nest.flatten(arguments)))

    def _is_symbolic(self, arguments: Any) -> bool:
        """
        Return whether a layer is called with symbolic tensors to build a model. This occurs in the
        call of a Sequential without an input shape.
        """
        flat = self.library.tf.nest.flatten(arguments)
        return any(
            any(base.__name__ == _SYMBOLIC for base in type(tensor).__mro__)
            or getattr(tensor, "graph", self.graph) is not self.graph
            for tensor in flat
        )

    def _call_layer(self, layer: Any, make: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Record a call of a layer, make it, and return its outputs."""
        path = self._path(layer)
        number = self.counts.get(path, 0)
        self.counts[path] = number + 1
        call = Call(layer, (path, number), self.size())
        call.args, call.kwargs, call.make = args, kwargs, make
        masks = (
            (id(tensor), self.library.mask_of(tensor))
            for tensor in self.library.tf.nest.flatten((args, kwargs))
        )
        call.masks = {key: mask for key, mask in masks if mask is not None}
        self.calls[call.key] = call
        if self.stack:
            call.parent = self.stack[-1]
            call.parent.children.append(call)
        self.stack.append(call)
        try:
            return (
                self.around(call, make) if self.around is not None else self.make_call(call, make)
            )
        finally:
            self.stack.pop()

    def make_call(self, call: Call, make: Callable[..., Any]) -> Any:
        """
        Make a call, and record its outputs and operations. Calls of an RNN's cell outside of its
        loop, such as for the shape of a step, are not recorded.
        """
        loops = isinstance(call.layer, self.library.keras.layers.RNN)
        with self.pause() if loops else contextlib.nullcontext():
            call.outputs = make(*call.args, **call.kwargs)
        call.stop = self.size()
        return call.outputs

    def size(self) -> int:
        """
        Return the number of operations in the graph so far; without a graph, of changed variables.
        """
        return len(self.graph.get_operations()) if self.graph is not None else self._writes

    @contextlib.contextmanager
    def _ops(self) -> Iterator[None]:
        """
        Note changed variables, random numbers and reductions in the context, for a backend without
        graphs.
        """
        keras = self.library.keras
        with contextlib.ExitStack() as stack:
            for holder, name, note in (
                (keras.Variable, "assign", self._note_write),
                (keras.random.SeedGenerator, "next", self._note_draw),
            ):
                original = getattr(holder, name)
                setattr(holder, name, _noting(original, note))
                stack.callback(setattr, holder, name, original)
            stack.enter_context(reductions_watched(self._add_depth))
            yield

    def _note_write(self) -> None:
        self._writes += 1

    def _note_draw(self) -> None:
        if self.stack:
            self.stack[-1].draws = True

    def _add_depth(self, depth: int) -> None:
        for call in self.stack:
            call.depth += depth

    @property
    def drawing_layers(self) -> list[str]:
        """
        The layers that draw random numbers on which their outputs depend, for a backend without
        graphs: their outputs differ if they are called again.
        """
        return sorted(
            {call.path for call in self.calls.values() if call.draws and _varies(self, call)}
        )

    def _path(self, layer: Any) -> str:
        """
        Return a layer's path in its model. The path of an op, or of a layer that the model does not
        track, is below that of its caller.
        """
        if id(layer) in self.names:
            return self.names[id(layer)]
        name = str(layer.name).replace("/", "~1")
        return self.stack[-1].path + "/" + name if self.stack else name

    def _converting(self) -> Any:
        """
        Return a context in which Keras 2 lets AutoGraph convert the ``call`` of custom layers, as
        it does when it predicts.
        """
        if self.library.family != KERAS2:
            return contextlib.nullcontext()
        from tensorflow.python.autograph.core import ag_ctx

        return ag_ctx.ControlStatusCtx(status=ag_ctx.Status.ENABLED)


def _noting(original: Callable[..., Any], note: Callable[[], None]) -> Callable[..., Any]:
    """Return a method that also calls ``note``."""

    @functools.wraps(original)
    def run(*args: Any, **kwargs: Any) -> Any:
        note()
        return original(*args, **kwargs)

    return run


def _varies(tape: Tape, call: Call) -> bool:
    """Return whether a call returns other values if it is repeated."""
    if call.make is None:
        return True
    outputs = [call.outputs, call.make(*call.args, **call.kwargs)]
    pairs = zip(*(map(to_array, tape.library.tf.nest.flatten(nested)) for nested in outputs))
    return not all(np.array_equal(first, second) for first, second in pairs)


@contextlib.contextmanager
def inline_calls(library: Library, model: Any) -> Iterator[None]:
    """
    Run the ``tf.function`` of layers in the graph of their caller in the context, so that calls in
    them are recorded.
    """
    changed = []
    for _, layer in paths(model):
        written = getattr(getattr(type(layer), "call", None), "python_function", None)
        if written is not None and "call" not in vars(layer):
            original = (
                written if library.family == KERAS2 else library.tf.autograph.to_graph(written)
            )  # Keras 2 converts what it calls by itself
            vars(layer)["call"] = functools.partial(original, layer)
            changed.append(layer)
    try:
        yield
    finally:
        for layer in changed:
            del vars(layer)["call"]


def layer_paths_by_id(model: Any, like: Any = None) -> dict[int, str]:
    """
    Return the path of each layer of a model by the layer's id. With ``like``, a model of the same
    layers, layers that both models have get the paths that they have in ``like``.

    Layers that a class creates itself have numbers in their names that increase with every model of
    the process, and some releases of Keras 3 load the layers of a model in varying order. The model
    gets the name of ``like``, and a layer that ``like`` lacks keeps its own name.
    """
    own_paths = paths(model)
    if like is None:
        return {id(layer): path for path, layer in own_paths}
    other = {id(layer): path for path, layer in paths(like)}
    root, own_root = other[id(like)], own_paths[0][0]
    paths_by_id: dict[int, str] = {}
    pending = [(model, like)]
    while pending:
        layer, twin = pending.pop()
        if id(layer) not in paths_by_id:
            paths_by_id[id(layer)] = other[id(twin)]
            pending += _twins(child_layers(layer), child_layers(twin))
    return {
        id(layer): paths_by_id.get(id(layer), root + path[len(own_root) :])
        for path, layer in own_paths
    }


def _twins(layers: list[Any], others: list[Any]) -> list[tuple[Any, Any]]:
    """
    Return the pairs of corresponding child layers of two layers: by position if the classes are the
    same and the names are not; else by name and class, and the rest by class.
    """
    first, second = (
        {(str(layer.name), type(layer).__name__): layer for layer in side}
        for side in (layers, others)
    )
    if first.keys() != second.keys() and [type(layer).__name__ for layer in layers] == [
        type(other).__name__ for other in others
    ]:
        return list(zip(layers, others))
    pairs = [(layer, second[key]) for key, layer in first.items() if key in second]
    for kind in {kind for _, kind in first}:
        unmatched = [
            [
                layer
                for key, layer in side.items()
                if key[1] == kind and not (key in first and key in second)
            ]
            for side in (first, second)
        ]
        pairs += zip(*unmatched) if len(unmatched[0]) == len(unmatched[1]) else []
    return pairs


def compute_dtype(layer: Any) -> Any:
    """Return the compute dtype of a layer; None if it has none."""
    return getattr(layer, "compute_dtype", None) or getattr(layer, "_compute_dtype", None)


def compute_modes(layer: Any) -> list[str]:
    """
    Return the compute dtypes of a layer and of the layers in it, and the modes in which their
    products are quantized.
    """
    return sorted(
        {
            str(name)
            for _, inner in paths(layer)
            for name in (compute_dtype(inner), quantization_mode(inner))
            if name is not None
        }
    )


_BODIES = ("body", "then_branch", "else_branch", "f")
_LIST = "TensorListFromTensor"
_EXACT = ("Placeholder", "Abs", "Max", "Maximum", "MaxPool", "Minimum", "Neg", "Relu", "SelectV2")
"""Operations that compute floats without rounding them, except for those that move values."""


def call_depth(graph: Any, call: Call) -> int:
    """
    Return the sum of the depths of all reductions in a call, one after the other; 0 without
    reductions. ``graph`` is None if the backend has no graphs.
    """
    if graph is None:
        return int(call.depth)
    return reduction_depth(graph.get_operations()[call.start : call.stop])


def reduction_depth(operations: Iterable[Any]) -> int:
    """Return the sum of the depths of operations, one after the other."""
    return sum(_depth(operation) for operation in operations)


def rounding_operations(graph: Any) -> list[dict[str, Any]]:
    """
    Return the dtypes of the floats in a graph that its operations round, each with the depth of a
    reduction (0 without one) and the number of such operations.
    """
    counts: dict[tuple[str, int], int] = {}
    for operation in _all_operations(graph, set()):
        is_cast = operation.type == "Cast"
        is_moving = bool(op_facts(operation.type).get("moves_values")) and not is_cast
        if is_moving or operation.type in _EXACT or _called_graphs(operation):
            continue
        for dtype in {tensor.dtype for tensor in operation.outputs if tensor.dtype.is_floating}:
            key = (dtype.name, 0 if is_cast else _own(operation))
            counts[key] = counts.get(key, 0) + 1
    return [
        {"dtype": dtype, "depth": depth, "count": count}
        for (dtype, depth), count in sorted(counts.items())
    ]


def _all_operations(graph: Any, known: set[int]) -> Iterator[Any]:
    """Yield the operations of a graph and of the functions that they call, each function once."""
    if id(graph) in known:
        return
    known.add(id(graph))
    for operation in graph.get_operations():
        yield operation
        for inner in _called_graphs(operation):
            yield from _all_operations(inner, known)


def _depth(operation: Any) -> int:
    """
    Return the depth of an operation with the functions that it calls; the body of a loop counts
    once for each iteration.
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
    Return the number of iterations of a loop: the length of the longest list that it iterates over,
    such as the sequence of an RNN.
    """
    lists = [tensor.op for tensor in operation.inputs if tensor.op.type == _LIST]
    return max(
        [_dims(list_op.inputs[0])[0] for list_op in lists if _dims(list_op.inputs[0])], default=1
    )


def _own(operation: Any) -> int:
    """Return the reduction depth of an operation, without the functions that it calls."""
    kind = operation.type
    shapes = [_dims(tensor) for tensor in operation.inputs]
    if kind == "MatMul":
        return _product_depth(
            shapes, operation.get_attr("transpose_a"), operation.get_attr("transpose_b")
        )
    if kind.startswith("BatchMatMul"):
        return _product_depth(shapes, operation.get_attr("adj_x"), operation.get_attr("adj_y"))
    if kind == "Einsum":
        return einsum_depth(operation.get_attr("equation").decode(), shapes)
    if kind.startswith("DepthwiseConv"):
        return product(shapes[1][:2])
    if kind.startswith("Conv") and len(shapes) > 1:
        return (
            product(shapes[1][:-1])
            if "Backprop" not in kind
            else product(shapes[1][:-2] + shapes[1][-1:])
        )
    if kind.startswith(
        "CudnnRNN"
    ):  # the whole of an RNN on a GPU: each step multiplies its input and the state
        return shapes[0][0] * (shapes[0][-1] + shapes[1][-1])
    return _sum_depth(operation, shapes)


def _sum_depth(operation: Any, shapes: list[list[int]]) -> int:
    """Return the depth of an operation that adds up elements of a tensor; 0 for others."""
    sums = op_facts(operation.type).get("sums")
    if sums == "reduced":
        return max(product(shapes[0]) // max(product(_dims(operation.outputs[0])), 1), 1)
    if sums == "running":
        return _along(operation)
    if sums == "last_axis":
        return shapes[0][-1] if shapes[0] else 0
    if sums == "window":
        return product(operation.get_attr("ksize"))
    return 0


def _product_depth(shapes: list[list[int]], first: bool, second: bool) -> int:  # noqa: FBT001  # as TensorFlow names which operand is transposed
    """
    Return the size of the dimension that a product reduces, from the operand with a known shape: in
    a loop of TF 1, one has none.
    """
    axes = (-2 if first else -1, -1 if second else -2)
    return max([shape[place] for shape, place in zip(shapes, axes) if shape], default=1)


def _along(operation: Any) -> int:
    """
    Return the size of the axis along which an operation sums; the largest size of the tensor if the
    axis is not constant.
    """
    from tensorflow.python.framework import tensor_util

    shape, axis = _dims(operation.inputs[0]), tensor_util.constant_value(operation.inputs[1])
    return max(shape, default=1) if axis is None or not shape else shape[int(axis)]


def _dims(tensor: Any) -> list[int]:
    """Return a tensor's shape, with 1 for unknown dimensions."""
    return [size or 1 for size in tensor.shape.as_list()] if tensor.shape.rank is not None else []


_DRAWING = ("Multinomial", "Random", "TruncatedNormal")
"""Parts of the types of ops that draw random numbers."""


def draws(kind: str) -> bool:
    """Return whether ops of a type draw random numbers."""
    return any(word in kind for word in _DRAWING)


def layers_of_operations(graph: Any, tapes: Sequence[Tape]) -> dict[str, str]:
    """
    Return the path of the innermost layer in which each operation of a graph was traced, by the
    name of the operation; without those that were not traced in a layer. Of calls that begin with
    the same operation, it is the outermost.
    """
    names = [operation.name for operation in graph.get_operations()]
    calls = [call for tape in tapes for call in reversed(list(tape.calls.values()))]
    return {
        name: call.path
        for call in sorted(calls, key=lambda call: call.start)
        for name in names[call.start : call.stop]
    }


def drawing_layers(graph: Any, operations: Iterable[Any], tapes: Sequence[Tape]) -> list[str]:
    """
    Return the paths of the layers that draw random numbers on which the outputs of a traced
    function depend, with some of the operations of its graph. A GRU of Keras 3 also draws masks
    that it does not use; it does not count.
    """
    outputs = [tensor.op for tensor in graph.outputs]
    needed = set(reachable(outputs, lambda op: [tensor.op for tensor in op.inputs]))
    drawing = [op.name for op in operations if op in needed and draws(op.type)]
    layers = layers_of_operations(graph, tapes) if drawing else {}
    return sorted({layers[name] for name in drawing if name in layers})


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
