"""
The sensitivity of the outputs of a model to errors in each call of a layer, from one backward pass.

The loss needs no labels: it adds up the outputs with random signs. On average, the norm of its
gradient is that of the change of all outputs (M. Hutchinson, Communications in Statistics 18,
1989), whatever the outputs mean. Predictions that hardly change, such as saturated probabilities,
have hardly any gradient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .. import model_calls
from ..engine.layer_hooks import Tape, layer_paths_by_id
from ..tensors import is_floating, to_array

if TYPE_CHECKING:
    from typing import Any, Callable, Mapping, Sequence

    from ..engine.layer_hooks import Call, Key
    from ..library import Library


def measure_sensitivities(
    library: Library, model: Any, batch: Any
) -> Mapping[tuple[Key, int], float]:
    """
    Return the sensitivity to each output of each call, by the key of the call and the position of
    the output: the norm of the change of the model's outputs, relative to their norm, if each
    element of the output of the call has a relative error of 1 with a random sign.
    """
    tf = library.tf
    if not library.traces:
        return _measure_op_by_op(library, model, batch)
    keys: list[tuple[Key, int]] = []

    def measure(inputs: Any) -> Any:
        """Return the sensitivities, and record their keys."""
        tape = Tape(library, model, layer_paths_by_id(model))
        with tape.watching():
            predictions = _floats(tf, model_calls.call(model, inputs))
        outputs = {
            (call.key, place): tensor
            for call in tape.calls.values()
            for place, tensor in _floats(tf, call.outputs).items()
        }
        keys[:] = outputs
        loss = tf.add_n([_signed_sum(tf, *prediction) for prediction in predictions.items()])
        gradients = tf.gradients(loss, list(outputs.values()))
        return tf.stack(list(map(_sensitivity, [tf] * len(keys), gradients, outputs.values())))

    values = tf.function(measure, autograph=False)(batch).numpy()
    return dict(zip(keys, map(float, values)))


def _measure_op_by_op(library: Library, model: Any, batch: Any) -> Mapping[tuple[Key, int], float]:
    """Return the sensitivities from the gradients for zeros that are added to the outputs."""
    tf = library.tf

    def run(shifts: Mapping[tuple[Key, int], Any]) -> tuple[dict[int, Any], dict[Any, Any]]:
        """Return the predictions, and the outputs of all calls, with additions to outputs."""

        def around(call: Call, make: Callable[..., Any]) -> Any:
            outputs = tape.make_call(call, make)
            flat = list(tf.nest.flatten(outputs))
            tensors = [number for number, tensor in enumerate(flat) if tf.is_tensor(tensor)]
            for place, tensor in _floats(tf, outputs).items():
                if (call.key, place) in shifts:
                    shifted = flat[tensors[place]] = tensor + shifts[call.key, place]
                    mask = library.mask_of(tensor)
                    if mask is not None:
                        library.set_mask(shifted, mask)
            call.outputs = tf.nest.pack_sequence_as(outputs, flat)
            return call.outputs

        tape = Tape(library, model, layer_paths_by_id(model), around)
        with tape.watching():
            predictions = _floats(tf, model_calls.call(model, batch))
        return predictions, {
            (call.key, place): tensor
            for call in tape.calls.values()
            for place, tensor in _floats(tf, call.outputs).items()
        }

    predictions, outputs = run({})
    signs = {}
    for place, prediction in predictions.items():
        values = to_array(prediction)
        random = np.random.RandomState(place).uniform(-1.0, 1.0, values.shape)
        norm = np.linalg.norm(values)
        signs[place] = tf.constant((np.sign(random) / (norm or np.inf)).astype("float32"))

    def loss(shifts: Sequence[Any]) -> tuple[Any, None]:
        """Return the sum of the predictions with random signs."""
        found, _ = run(dict(zip(outputs, shifts)))
        parts = [
            (tf.cast(value, tf.float32) * signs[place]).sum() for place, value in found.items()
        ]
        return sum(parts), None

    _, gradients = tf.gradients(loss, list(map(tf.zeros_like, outputs.values())))
    found = {}
    for key, gradient in zip(outputs, gradients):
        product = 0.0 if gradient is None else to_array(gradient) * to_array(outputs[key])
        found[key] = float(np.linalg.norm(np.where(np.isfinite(product), product, 0)))
    return found


def _floats(tf: Any, outputs: Any) -> dict[int, Any]:
    """Return the floating-point tensors of a call, by their positions."""
    flat = tf.nest.flatten(outputs, expand_composites=True)
    tensors = enumerate(filter(tf.is_tensor, flat))
    return {place: tensor for place, tensor in tensors if is_floating(tensor)}


def _signed_sum(tf: Any, place: int, prediction: Any) -> Any:
    """Return the sum of an output of the model with random signs, relative to its norm."""
    prediction = tf.cast(prediction, tf.float32)
    random = tf.random.stateless_uniform(tf.shape(prediction), [place, 1], -1.0, 1.0)
    norm = tf.stop_gradient(tf.norm(prediction))
    return tf.math.divide_no_nan(tf.reduce_sum(tf.sign(random) * prediction), norm)


def _sensitivity(tf: Any, gradient: Any, output: Any) -> Any:
    """Return the norm of the finite products of a gradient with an output; 0 without a gradient."""
    if gradient is None:  # the predictions do not depend on the output
        return tf.constant(0.0)
    product = tf.cast(tf.convert_to_tensor(gradient) * output, tf.float32)
    return tf.norm(tf.where(tf.math.is_finite(product), product, tf.zeros_like(product)))
