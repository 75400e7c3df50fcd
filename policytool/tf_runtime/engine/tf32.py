"""What TF32 does to a reference: every layer with it against every layer without."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import model_calls
from ..devices import available
from . import tensor_errors
from .layer_hooks import Tape, named

if TYPE_CHECKING:
    from typing import Any

    from ..feeding.batches import FedInputs
    from ..library import Library


def measure_tf32(library: Library, model: Any, fed: FedInputs) -> dict[Any, Any]:
    """
    Return the reductions of each output of each call, by the call's key and the output's place.

    Whether float32 is multiplied in TF32 is a setting of the process, so the model runs twice, and
    all activations of a batch stay in memory meanwhile.
    """
    tf = library.tf
    keys: list[Any] = []

    def tapped(inputs: Any) -> list[Any]:
        tape = Tape(library, model, named(model))
        with tape.watching():
            model_calls.call(model, inputs)
        flat = [
            ((call.key, place), tensor)
            for call in tape.calls.values()
            for place, tensor in enumerate(tf.nest.flatten(call.outputs, expand_composites=True))
            if tf.is_tensor(tensor) and tensor.dtype.is_floating
        ]
        keys[:] = [key for key, _ in flat]
        return [tensor for _, tensor in flat]

    function = tf.function(tapped, autograph=False)
    compared = tf.function(
        lambda ones, others: tf.stack(
            [
                tensor_errors.compare_tensors(tf, tensor, other)
                for tensor, other in zip(ones, others)
            ]
        ),
        autograph=False,
    )
    total: Any = None
    for batch in fed.all:
        plain = function(batch)
        with available.tf32(tf):
            coarse = function(batch)
        vectors = compared(plain, coarse).numpy()
        total = (
            vectors
            if total is None
            else [tensor_errors.merge(vector, other) for vector, other in zip(total, vectors)]
        )
    return {key: tensor_errors.to_json(vector) for key, vector in zip(keys, total)}
