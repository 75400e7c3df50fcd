"""
The variables that training changes, and how far a candidate's gradients of them are from the
reference's, reduced on the device to a few numbers each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..facts import op_facts
from ..library import KERAS2, KERAS3, paths

if TYPE_CHECKING:
    from typing import Any

    from ..library import Library

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

    def __init__(self, layer: str, keras_variable: Any, raw: Any) -> None:
        self.layer = layer
        self.name = str(keras_variable.name).rpartition("/")[2].partition(":")[0]
        self.raw = raw
        """TensorFlow's own variable."""
        self.flow: str | None = None
        """
        The dtype of its gradient before the cast to the variable's dtype; None until a step was
        traced, and if there is no gradient.
        """

    def told(self) -> dict[str, Any]:
        """Return what it is."""
        shape, dtype = [int(size) for size in self.raw.shape], str(self.raw.dtype.base_dtype.name)
        return {
            "layer": self.layer,
            "variable": self.name,
            "shape": shape,
            "dtype": dtype,
            "flow": self.flow,
        }


def trainable(library: Library, model: Any) -> list[Variable]:
    """
    Return the trainable variables of a model, each once, in the model's order, with the path of the
    innermost layer that owns it.
    """
    owners: dict[int, str] = {}
    for path, layer in paths(model):
        for keras_variable in layer.trainable_variables:
            owner = owners.get(id(keras_variable))
            if owner is None or path.startswith(owner + "/"):
                owners[id(keras_variable)] = path
    once = {id(keras_variable): keras_variable for keras_variable in model.trainable_variables}
    return [
        Variable(
            owners.get(key, str(model.name)),
            keras_variable,
            keras_variable.value if library.family == KERAS3 else keras_variable,
        )
        for key, keras_variable in once.items()
    ]


def flow(gradient: Any) -> str:
    """
    Return the dtype in which a symbolic gradient was computed: what comes out of a cast from 16
    bits has the range of 16 bits.
    """
    tensor = getattr(gradient, "values", gradient)  # of an embedding there are slices
    while op_facts(tensor.op.type).get("rearranges_values"):
        tensor = tensor.op.inputs[0]
    dtype = tensor.op.inputs[0].dtype if tensor.op.type == "Cast" else tensor.dtype
    return str((dtype if dtype.is_floating else tensor.dtype).name)


def unscaled(library: Library, gradient: Any, scale: Any) -> Any:
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
        if gradient.dtype.size < tf.float32.size
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

    def reduced(self, reference: Any, scaled: Any, scale: Any, kind: str) -> Any:
        """
        Return the reductions over one variable, as a float64 vector in the order of FIELDS;
        ``kind`` is the dtype in which the gradient flowed.
        """
        tf, key = self.library.tf, (reference.dtype, scaled.dtype)
        if key not in self._traced:
            specs = [tf.TensorSpec([None], dtype) for dtype in key] + [
                tf.TensorSpec([], tf.float32)
            ] * 2
            self._traced[key] = tf.function(self._reduced, input_signature=specs, autograph=False)
        return self._traced[key](reference, scaled, scale, tf.constant(_normal(kind), tf.float32))

    def _reduced(self, reference: Any, scaled: Any, scale: Any, normal: Any) -> Any:
        return _reduced(
            self.library.tf, reference, (scaled, unscaled(self.library, scaled, scale)), normal
        )


def _reduced(tf: Any, reference: Any, candidate: tuple[Any, Any], normal: Any) -> Any:
    """
    Return the reductions of a candidate's gradient before and after unscaling; ``normal`` is the
    smallest normal number of the dtype in which it was computed.

    Values are divided by the largest reference value before they are squared: gradients are small,
    and in float32 the squares of values below 1e-19 are zero.
    """
    scaled, unscaled_values = candidate
    reference = (
        tf.cast(reference, tf.float32) if reference.dtype.size < tf.float32.size else reference
    )
    wide, got = tf.cast(scaled, reference.dtype), tf.cast(unscaled_values, reference.dtype)
    defined = tf.math.is_finite(reference)
    nonzero = tf.logical_and(defined, tf.not_equal(reference, 0))
    lost = tf.logical_and(nonzero, tf.equal(unscaled_values, 0))
    finite = tf.math.is_finite(wide)
    both = tf.logical_and(defined, tf.logical_and(finite, tf.math.is_finite(got)))
    size = tf.where(finite, tf.abs(wide), tf.zeros_like(wide))
    true = tf.where(defined, reference, tf.zeros_like(reference))
    largest = _largest(tf, tf.abs(true))
    unit = tf.where(largest > 0, largest, tf.ones_like(largest))

    def squares(values: Any, where: Any) -> Any:
        chosen = tf.where(where, values / unit, tf.zeros_like(values))
        return tf.cast(2 * tf.nn.l2_loss(chosen), tf.float64) * tf.cast(unit, tf.float64) ** 2

    reductions = (
        tf.size(reference),
        _count(tf, tf.logical_not(defined)),
        _count(tf, nonzero),
        _count(tf, lost),
        _count(tf, tf.logical_and(defined, tf.logical_not(finite))),
        _count(
            tf,
            tf.logical_and(defined, tf.logical_and(size > 0, size < tf.cast(normal, size.dtype))),
        ),
        squares(true - got, both),
        squares(true, both),
        squares(true, lost),
        _largest(tf, size),
        largest,
    )
    return tf.stack([tf.cast(reduction, tf.float64) for reduction in reductions])


def merged(first: Any, second: Any) -> Any:
    """Return the reductions over the elements of two batches; the variables are the rows."""
    largest = [name.startswith("largest") for name in FIELDS]
    return np.where(largest, np.maximum(first, second), first + second)


def _count(tf: Any, true: Any) -> Any:
    return tf.math.count_nonzero(true)


def _largest(tf: Any, values: Any) -> Any:
    return tf.maximum(
        tf.reduce_max(values), 0
    )  # of an empty variable it is the lowest number there is


def _normal(dtype: str) -> float:
    """Return the smallest normal number of a float dtype."""
    return (
        2.0**-14 if dtype == "float16" else float(np.finfo("float32").tiny)
    )  # bfloat16's is the same, and float64 has none to speak of
