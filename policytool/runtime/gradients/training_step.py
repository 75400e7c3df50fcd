"""
What one step of training does up to the optimizer: a model is called, its library computes the
loss and its gradients; which variables that changes, and how far a candidate's gradients of them
are from the reference's, reduced on the device to a few numbers each.

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

import numpy as np

from ..engine.layer_hooks import compute_dtype, draws, reachable
from ..facts import op_facts
from ..library import KERAS2, KERAS3, paths
from ..tensors import dtype_name, item_bytes, to_array
from . import losses

if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, Sequence

    from ..library import Library


FLOAT32 = 4
"""The bytes of a float32."""

FIELDS = (
    "elements",
    "undefined",
    "nonzero",
    "underflow",
    "overflow",
    "subnormal",
    "squared_error",
    "squared_reference",
    "squared_lost",
    "largest",
    "largest_reference",
)
"""
What stands where in the vector of one variable.

``undefined`` elements have a reference that is not finite, and are in none of the counts after it.
``nonzero`` are those with a reference that is not zero; ``underflow`` are those of them that the
candidate has as zero when it is unscaled, and ``squared_lost`` is what the reference has in them,
squared. ``overflow`` elements are not finite before they are unscaled. ``subnormal`` and
``largest`` (of what is finite) are of the scaled gradient too, and subnormal in the dtype in which
it flowed. Squares are summed over what is finite in both.
"""


class Variable:
    """One trainable variable of a model."""

    def __init__(self, layer: str, keras_variable: Any, raw: Any, compute: str | None) -> None:
        self.layer = layer
        self.own = keras_variable
        """The variable of Keras."""
        self.name = str(keras_variable.name).rpartition("/")[2].partition(":")[0]
        self.raw = raw
        """The variable of the backend."""
        self.compute = compute
        """The compute dtype of its layer."""
        self.flow: str | None = None
        """
        The dtype of its gradient before the cast to the variable's dtype; None until a step was
        traced, and if there is no gradient.
        """

    def to_json(self) -> dict[str, Any]:
        """Return a description of the variable."""
        shape, dtype = [int(size) for size in self.raw.shape], dtype_name(self.raw)
        return {
            "layer": self.layer,
            "variable": self.name,
            "shape": shape,
            "dtype": dtype,
            "flow": self.flow,
        }


def variables_to_train(library: Library, model: Any) -> list[Variable]:
    """
    Return the trainable variables of a model, each once, in the model's order, with the path of the
    innermost layer that owns it.
    """
    owners: dict[int, tuple[str, Any]] = {}
    for path, layer in paths(model):
        for keras_variable in layer.trainable_variables:
            known = owners.get(id(keras_variable))
            if known is None or path.startswith(known[0] + "/"):
                owners[id(keras_variable)] = path, compute_dtype(layer)
    variables_by_id = {
        id(keras_variable): keras_variable for keras_variable in model.trainable_variables
    }
    found = []
    for key, keras_variable in variables_by_id.items():
        owner, compute = owners.get(key, (str(model.name), None))
        raw = keras_variable.value if library.family == KERAS3 else keras_variable
        found.append(Variable(owner, keras_variable, raw, compute))
    return found


def flow_dtype(gradient: Any) -> str:
    """
    Return the dtype in which a symbolic gradient was computed: the output of a cast from 16 bits
    has the range of 16 bits.
    """
    tensor = getattr(gradient, "values", gradient)  # of an embedding there are slices
    while op_facts(tensor.op.type).get("rearranges_values"):
        tensor = tensor.op.inputs[0]
    dtype = tensor.op.inputs[0].dtype if tensor.op.type == "Cast" else tensor.dtype
    return str((dtype if dtype.is_floating else tensor.dtype).name)


def unscale(library: Library, gradient: Any, scale: Any) -> Any:
    """
    Return a gradient as the optimizer gets it.

    Keras 2 multiplies with the reciprocal of the scale in the gradient's own dtype, where it may
    underflow again (``get_unscaled_gradients``); Keras 3 divides by a float32, which makes the
    result one (``LossScaleOptimizer``).
    """
    tf = library.tf
    if library.family == KERAS2:
        return gradient * tf.cast(1.0 / scale, gradient.dtype)
    return (
        tf.cast(gradient, tf.float32) / scale
        if item_bytes(gradient) < FLOAT32
        else gradient / tf.cast(scale, gradient.dtype)
    )


class Reducer:
    """
    Reduces gradients on the device, one variable after the other, traced once for each pair of
    dtypes and for all sizes.

    As a part of the step it would be optimised for each of hundreds of variables: for
    EfficientNetV2-B0 that was measured to take 30 s, and twice the memory.
    """

    def __init__(self, library: Library) -> None:
        self.library = library
        self._traced: dict[Any, Any] = {}

    def reduce(self, reference: Any, scaled: Any, scale: Any, kind: str) -> Any:
        """
        Return the reductions over one variable, as a float64 vector in the order of FIELDS;
        ``kind`` is the dtype in which the gradient flowed.
        """
        tf, key = self.library.tf, (reference.dtype, scaled.dtype)
        if not self.library.traces:
            arrays = [to_array(tensor) for tensor in (reference, scaled)]
            unscaled = arrays[1] / arrays[1].dtype.type(to_array(scale))
            candidate = arrays[1], unscaled
            return _reduce_gradient(tf.arrays, arrays[0], candidate, _normal(kind))
        if key not in self._traced:
            specs = [tf.TensorSpec([None], dtype) for dtype in key] + [
                tf.TensorSpec([], tf.float32)
            ] * 2
            self._traced[key] = tf.function(self._reduce, input_signature=specs, autograph=False)
        return self._traced[key](
            reference, scaled, scale, tf.constant(_normal(kind), tf.float32)
        ).numpy()

    def _reduce(self, reference: Any, scaled: Any, scale: Any, normal: Any) -> Any:
        return _reduce_gradient(
            self.library.tf, reference, (scaled, unscale(self.library, scaled, scale)), normal
        )


def _reduce_gradient(tf: Any, reference: Any, candidate: tuple[Any, Any], normal: Any) -> Any:
    """
    Return the reductions of a candidate's gradient before and after unscaling; ``normal`` is the
    smallest normal number of the dtype in which it was computed.

    Values are divided by the largest reference value before they are squared: gradients are small,
    and in float32 the squares of values below 1e-19 are zero.
    """
    scaled, unscaled_values = candidate
    reference = tf.cast(reference, tf.float32) if item_bytes(reference) < FLOAT32 else reference
    candidate_values, unscaled = (
        tf.cast(scaled, reference.dtype),
        tf.cast(unscaled_values, reference.dtype),
    )
    defined = tf.math.is_finite(reference)
    nonzero = tf.logical_and(defined, tf.not_equal(reference, 0))
    is_lost = tf.logical_and(nonzero, tf.equal(unscaled_values, 0))
    finite = tf.math.is_finite(candidate_values)
    both = tf.logical_and(defined, tf.logical_and(finite, tf.math.is_finite(unscaled)))
    size = tf.where(finite, tf.abs(candidate_values), tf.zeros_like(candidate_values))
    reference_values = tf.where(defined, reference, tf.zeros_like(reference))
    largest = _largest(tf, tf.abs(reference_values))
    unit = tf.where(largest > 0, largest, tf.ones_like(largest))

    def squares(values: Any, where: Any) -> Any:
        chosen = tf.where(where, values / unit, tf.zeros_like(values))
        return tf.cast(2 * tf.nn.l2_loss(chosen), tf.float64) * tf.cast(unit, tf.float64) ** 2

    reductions = (
        tf.size(reference),
        tf.math.count_nonzero(tf.logical_not(defined)),
        tf.math.count_nonzero(nonzero),
        tf.math.count_nonzero(is_lost),
        tf.math.count_nonzero(tf.logical_and(defined, tf.logical_not(finite))),
        tf.math.count_nonzero(
            tf.logical_and(defined, tf.logical_and(size > 0, size < tf.cast(normal, size.dtype)))
        ),
        squares(reference_values - unscaled, both),
        squares(reference_values, both),
        squares(reference_values, is_lost),
        _largest(tf, size),
        largest,
    )
    return tf.stack([tf.cast(reduction, tf.float64) for reduction in reductions])


def merge_reductions(first: Any, second: Any) -> Any:
    """Return the reductions over the elements of two batches; the variables are the rows."""
    largest = [name.startswith("largest") for name in FIELDS]
    return np.where(largest, np.maximum(first, second), first + second)


def _largest(tf: Any, values: Any) -> Any:
    return tf.maximum(
        tf.reduce_max(values), 0
    )  # of an empty variable it is the lowest number there is


def _normal(dtype: str) -> float:
    """Return the smallest normal number of a float dtype."""
    return (
        2.0**-14 if dtype == "float16" else float(np.finfo("float32").tiny)
    )  # bfloat16's is the same, and float64 has none to speak of


_RATES = ("rate", "stddev", "dropout", "recurrent_dropout")
_GENERATORS = ("seed_generator", "_random_generator")


class TrainingStep:
    """The loss and the gradients of a model, traced once for all scales if the backend traces."""

    def __init__(self, library: Library, model: Any, variables: Sequence[Variable]) -> None:
        self.library = library
        self.model = model
        self.variables = variables
        autograph = (
            library.family == KERAS2
        )  # as in ``fit``: classes of Keras 2 may branch on tensors, and Keras 3 converts nothing
        self.forward = library.tf.function(self._outputs, autograph=autograph)
        self.backward = library.tf.function(self._differentiate, autograph=autograph)

    def outputs(self, inputs: Any) -> Any:
        """
        Return the model's outputs for a batch in training: their specs if tracing determines all
        shapes, else the tensors.
        """
        if not self.library.traces:
            return self.library.tf.without_effects(lambda: self._outputs(inputs))
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
        return float(to_array(loss)), vectors

    def drawing(self, *arguments: Any) -> list[str]:
        """
        Return the types of ops that draw random numbers in a step; nothing if the backend does not
        trace.
        """
        if not self.library.traces:
            return []
        return _drawing(self.backward.get_concrete_function(*arguments).graph)

    def _run(self, traced: Any, *arguments: Any) -> Any:
        """
        Return the results of a traced function for the arguments, and restore the variables that it
        changed.
        """
        if not self.library.traces:  # which changes no variable
            return traced(*arguments)
        own_ids = {
            id(getattr(variable.raw, "_variable", variable.raw)) for variable in self.variables
        }
        graph = traced.get_concrete_function(*arguments).graph
        original_values = [
            (variable, self.library.tf.identity(variable))
            for variable in graph.variables
            if id(variable) not in own_ids
        ]
        try:
            return traced(*arguments)
        finally:
            for variable, value in original_values:
                variable.assign(value)

    def _outputs(self, inputs: Any) -> Any:
        expects = getattr(self.model, "_expects_training_arg", True)
        return self.model(inputs, training=True) if expects else self.model(inputs)

    def _differentiate(self, scale: Any, inputs: Any, targets: Any) -> tuple[Any, list[Any]]:
        """Return the loss and the gradients of the scaled loss as vectors."""
        tf = self.library.tf

        def compute_losses() -> tuple[Any, Any]:
            """Return the scaled loss, and the loss."""
            loss = losses.total(self.library, self.model, inputs, targets, self._outputs(inputs))
            # as ``get_scaled_loss`` and ``scale_loss`` have it: a loss in float16 overflows here
            return loss * tf.cast(scale, loss.dtype), loss

        loss, gradients = self.library.differentiate(compute_losses, self.variables)
        for variable, gradient in zip(self.variables, gradients):
            variable.flow = None if gradient is None else self._flow(variable, gradient)
        vectors = [
            None if gradient is None else tf.reshape(tf.convert_to_tensor(gradient), [-1])
            for gradient in gradients
        ]  # of an embedding there are slices
        return tf.reduce_mean(tf.cast(loss, tf.float32)), vectors

    def _flow(self, variable: Variable, gradient: Any) -> str:
        """
        Return the dtype in which a gradient was computed. Without a graph, it is that of the layer
        if all values are of this dtype.
        """
        if self.library.traces:
            return flow_dtype(gradient)
        own = dtype_name(variable.raw)
        narrow = variable.compute or own
        values = to_array(gradient)
        rounded = to_array(self.library.tf.cast(gradient, narrow)).astype(values.dtype)
        return narrow if np.array_equal(rounded, values, equal_nan=True) else own


@contextlib.contextmanager
def without_random_layers(model: Any) -> Iterator[list[str]]:
    """Run layers that draw random numbers as in inference in the context; yield their paths."""
    drawing_layers = [
        (path, layer)
        for path, layer in paths(model)
        if layer is not model
        and _draws_numbers(layer)
        and "training" in inspect.signature(layer.call).parameters
    ]
    own_calls = [vars(layer).get("call") for _, layer in drawing_layers]
    for _, layer in drawing_layers:
        object.__setattr__(layer, "call", _inferring(layer.call))  # no attribute tracking
    try:
        yield [path for path, _ in drawing_layers]
    finally:
        for (_, layer), own_call in zip(drawing_layers, own_calls):
            if own_call is None:
                object.__delattr__(layer, "call")
            else:
                object.__setattr__(layer, "call", own_call)


def _draws_numbers(layer: Any) -> bool:
    """
    Return whether a layer draws random numbers in training: a Keras layer whose class name
    begins with Random or that has a positive rate, or a custom layer with a random generator.
    """
    kind = type(layer)
    if kind.__module__.partition(".")[0] in ("keras", "tensorflow", "tf_keras"):
        rates = [getattr(layer, name, None) for name in _RATES]
        return kind.__name__.startswith("Random") or any(
            isinstance(rate, (int, float)) and rate > 0 for rate in rates
        )
    return any(getattr(layer, name, None) is not None for name in _GENERATORS)


def _inferring(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return the call of a layer with ``training=False``, whatever its caller passes."""
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

    def sources(node: Any) -> list[Any]:
        names = [name.partition(":")[0] for name in node.input if not name.startswith("^")]
        called = [value.func.name for value in node.attr.values() if value.HasField("func")]
        called += [func.name for value in node.attr.values() for func in value.list.func]
        return [
            *(nodes[name] for name in names if node is nodes.get(node.name)),
            *(inner for name in called if name in bodies for inner in bodies[name].node_def),
        ]

    needed = reachable([nodes[tensor.op.name] for tensor in graph.outputs], sources)
    return sorted(filter(draws, {node.op for node in needed}))
