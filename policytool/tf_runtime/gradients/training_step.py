"""
What one step of training does up to the optimizer: a model is called, its library computes the
loss, and a tape differentiates it.

The call is one in training because batch normalisation is another function there, with other
gradients: of a MobileNetV2 with random weights, 0.06 % of the gradient elements were measured to be
below 2**-25 in training, and 76 % with ``training=False``, in tf_keras 2.21 and Keras 3.15 alike.
Layers that draw numbers run as in inference all the same: both libraries draw in the compute dtype,
so that under one seed the masks of a Dropout in float32 and in float16 were measured to differ in
half of their elements.
"""

from __future__ import annotations

import contextlib
import inspect
from typing import TYPE_CHECKING

from ..engine.random_layers import draws
from ..library import KERAS2, paths
from . import losses
from .reductions import flow

if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, Sequence

    from ..library import Library
    from .reductions import Variable

_RATES = ("rate", "stddev", "dropout", "recurrent_dropout")
_GENERATORS = ("seed_generator", "_random_generator")


class Step:
    """The loss of a model and its gradients, traced once for all scales."""

    def __init__(self, library: Library, model: Any, variables: Sequence[Variable]) -> None:
        self.library = library
        self.model = model
        self.variables = variables
        autograph = (
            library.family == KERAS2
        )  # as in ``fit``: classes of Keras 2 may branch on tensors, and Keras 3 converts nothing
        self.forward = library.tf.function(self._outputs, autograph=autograph)
        self.backward = library.tf.function(self._differentiated, autograph=autograph)

    def outputs(self, inputs: Any) -> Any:
        """
        Return the model's outputs for a batch in training: their specs if tracing determines all
        shapes, else the tensors.
        """
        traced_outputs = self.forward.get_concrete_function(inputs).structured_outputs
        known = all(
            tensor.shape.is_fully_defined()
            for tensor in self.library.tf.nest.flatten(traced_outputs)
        )
        return traced_outputs if known else self._run(self.forward, inputs)

    def gradients(self, scale: Any, inputs: Any, targets: Any) -> tuple[float, list[Any]]:
        """
        Return the loss, and the gradients of the scaled loss as vectors; None for a variable on
        which the loss does not depend.
        """
        loss, vectors = self._run(self.backward, scale, inputs, targets)
        return float(loss.numpy()), vectors

    def drawing(self, *arguments: Any) -> list[str]:
        """Return the kinds of ops that draw numbers in a step."""
        return _drawing(self.backward.get_concrete_function(*arguments).graph)

    def _run(self, traced: Any, *arguments: Any) -> Any:
        """Return what a traced function makes of the arguments, and put back what it changed."""
        own = {id(getattr(variable.raw, "_variable", variable.raw)) for variable in self.variables}
        graph = traced.get_concrete_function(*arguments).graph
        kept = [
            (variable, self.library.tf.identity(variable))
            for variable in graph.variables
            if id(variable) not in own
        ]
        try:
            return traced(*arguments)
        finally:
            for variable, value in kept:
                variable.assign(value)

    def _outputs(self, inputs: Any) -> Any:
        expects = getattr(self.model, "_expects_training_arg", True)
        return self.model(inputs, training=True) if expects else self.model(inputs)

    def _differentiated(self, scale: Any, inputs: Any, targets: Any) -> tuple[Any, list[Any]]:
        tf = self.library.tf
        with tf.GradientTape() as tape:
            loss = losses.total(self.library, self.model, inputs, targets, self._outputs(inputs))
            scaled = loss * tf.cast(
                scale, loss.dtype
            )  # as ``get_scaled_loss`` and ``scale_loss`` have it: a loss in float16 overflows here
        gradients = tape.gradient(scaled, [variable.raw for variable in self.variables])
        for variable, gradient in zip(self.variables, gradients):
            variable.flow = None if gradient is None else flow(gradient)
        vectors = [
            None if gradient is None else tf.reshape(tf.convert_to_tensor(gradient), [-1])
            for gradient in gradients
        ]  # of an embedding there are slices
        return tf.reduce_mean(tf.cast(loss, tf.float32)), vectors


@contextlib.contextmanager
def quiet(model: Any) -> Iterator[list[str]]:
    """
    Run the layers that draw random numbers as in inference within the context; yield their paths.
    """
    drawing_layers = [
        (path, layer)
        for path, layer in paths(model)
        if layer is not model
        and _draws(layer)
        and "training" in inspect.signature(layer.call).parameters
    ]
    had = [vars(layer).get("call") for _, layer in drawing_layers]
    for _, layer in drawing_layers:
        object.__setattr__(layer, "call", _inferring(layer.call))  # no attribute tracking
    try:
        yield [path for path, _ in drawing_layers]
    finally:
        for (_, layer), own in zip(drawing_layers, had):
            if own is None:
                object.__delattr__(layer, "call")
            else:
                object.__setattr__(layer, "call", own)


def _draws(layer: Any) -> bool:
    """
    Return whether a layer draws numbers in training: one of Keras' own with a rate, or of its
    random ones; any other that has a generator.
    """
    kind = type(layer)
    if kind.__module__.partition(".")[0] in ("keras", "tensorflow", "tf_keras"):
        rates = [getattr(layer, name, None) for name in _RATES]
        return kind.__name__.startswith("Random") or any(
            isinstance(rate, (int, float)) and rate > 0 for rate in rates
        )
    return any(getattr(layer, name, None) is not None for name in _GENERATORS)


def _inferring(call: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(call)

    def inferring(*arguments: Any, **options: Any) -> Any:
        bound = signature.bind(*arguments, **options)
        bound.arguments["training"] = False
        return call(*bound.args, **bound.kwargs)

    return inferring


def _drawing(graph: Any) -> list[str]:
    """
    Return the types of the ops that draw random numbers on which a graph's outputs depend; a GRU of
    Keras 3 also draws masks that it does not use.
    """
    definition = graph.as_graph_def()
    bodies = {function.signature.name: function for function in definition.library.function}
    nodes = {node.name: node for node in definition.node}
    pending = [nodes[tensor.op.name] for tensor in graph.outputs]
    seen: set[int] = set()
    kinds: set[str] = set()
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        kinds.add(node.op)
        sources = [name.partition(":")[0] for name in node.input if not name.startswith("^")]
        pending += [nodes[name] for name in sources if node is nodes.get(node.name)]
        called = [value.func.name for value in node.attr.values() if value.HasField("func")]
        called += [func.name for value in node.attr.values() for func in value.list.func]
        pending += [inner for name in called if name in bodies for inner in bodies[name].node_def]
    return sorted(filter(draws, kinds))
