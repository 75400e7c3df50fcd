"""
Compare gradients of the runtime with those of plain Keras: ``python -m
tests.compat.backend_gradients``, under an interpreter with the backend in ``KERAS_BACKEND``.

It prints the largest relative difference of the gradients of a training step and of the
sensitivities, the dtypes in which gradients flowed, and in how many outputs of layers the effect of
TF32 was measured, of each model and policy as JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "policytool"))
check: Any = importlib.import_module("runtime.check")
library_of: Any = importlib.import_module("runtime.library")
losses: Any = importlib.import_module("runtime.gradients.losses")
sensitivity: Any = importlib.import_module("runtime.gradients.sensitivity")
training_step: Any = importlib.import_module("runtime.gradients.training_step")

if TYPE_CHECKING:
    from collections.abc import Callable

BACKEND: Final = os.environ["KERAS_BACKEND"]
LIBRARY: Final = library_of.Library(library_of.KERAS3, [BACKEND])
SCALE: Final = 8.0


def plain_gradients(function: Callable[[Any], Any], values: list[Any]) -> list[Any]:
    """Return the gradients of a function for its values."""
    if BACKEND == "jax":
        return list(importlib.import_module("jax").grad(function)(values))
    inputs = [value.detach().clone().requires_grad_() for value in values]
    return list(importlib.import_module("torch").autograd.grad(function(inputs), inputs))


def steps(keras: Any, model: Any, inputs: Any) -> tuple[float, list[Any]]:
    """Return the difference of the gradients of a step, and the dtypes in which they flowed."""
    outputs = model(inputs, training=False)
    part = losses.OutputLossSpec("out")
    part.take(keras.losses.MeanSquaredError(), "MeanSquaredError", "recorded")
    targets = losses.draw_targets(part, outputs, np.random.RandomState(3))
    losses.compile_losses(LIBRARY, model, outputs, [part])
    variables = training_step.variables_to_train(LIBRARY, model)
    step = training_step.TrainingStep(LIBRARY, model, variables)
    before = [array.copy() for array in model.get_weights()]
    with LIBRARY.tf.device("cpu:0"):
        _, found = step.gradients(
            LIBRARY.tf.constant(SCALE), LIBRARY.tf.constant(inputs), LIBRARY.tf.constant(targets)
        )
    assert all(map(np.array_equal, before, model.get_weights()))
    others = [variable.value for variable in model.non_trainable_variables]

    def loss(values: Any) -> Any:
        predicted, _ = model.stateless_call(values, others, inputs, training=True)
        return keras.losses.MeanSquaredError()(targets, predicted) * SCALE

    expected = plain_gradients(loss, [variable.value for variable in model.trainable_variables])
    arrays = [
        [keras.ops.convert_to_numpy(one).ravel() for one in side] for side in (found, expected)
    ]
    return difference(*map(np.concatenate, arrays)), [variable.flow for variable in variables]


def tf32_outputs(model: Any, inputs: Any) -> int:
    """Return the number of outputs in which TF32 was measured; CPUs compute in float32 anyway."""
    with LIBRARY.tf.device("cpu:0"):
        batches = SimpleNamespace(all=[LIBRARY.tf.constant(inputs)])
        found = check.measure_tf32(LIBRARY, model, batches)
    assert not LIBRARY.tf.uses_tf32()
    return len(found)


def sensitivities(keras: Any, model: Any, inputs: Any) -> float:
    """Return the difference of the sensitivity to the outputs of each layer but the first."""
    with LIBRARY.tf.device("cpu:0"):
        found = sensitivity.measure_sensitivities(LIBRARY, model, LIBRARY.tf.constant(inputs))
    outputs = model(inputs, training=False)
    values = keras.ops.convert_to_numpy(outputs)
    signs = np.sign(np.random.RandomState(0).uniform(-1.0, 1.0, values.shape))
    signs = (signs / np.linalg.norm(values)).astype("float32")
    pairs = []
    for layer in model.layers[1:-1]:
        head = keras.Model(layer.output, model.output)
        here = keras.Model(model.input, layer.output)(inputs, training=False)

        def total(values: Any, head: Any = head) -> Any:
            return (head(values[0], training=False) * keras.ops.convert_to_tensor(signs)).sum()

        (gradient,) = plain_gradients(total, [here])
        product = keras.ops.convert_to_numpy(keras.ops.cast(gradient * here, "float32"))
        pairs.append((found[(f"{model.name}/{layer.name}", 0), 0], np.linalg.norm(product)))
    return difference(*map(np.array, zip(*pairs, strict=True)))


def difference(found: Any, expected: Any) -> float:
    """Return the relative difference of two arrays."""
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def dense(keras: Any) -> Any:
    """Return a network with a BatchNormalization and a regularizer."""
    inputs = value = keras.Input((16,))
    value = keras.layers.Dense(32, activation="relu", name="wide")(value)
    value = keras.layers.BatchNormalization(name="norm")(value)
    return keras.Model(inputs, keras.layers.Dense(4, dtype="float32", name="out")(value))


def attention(keras: Any) -> Any:
    """Return a network with an attention and a recurrent layer."""
    inputs = keras.Input((6, 8))
    value = keras.layers.MultiHeadAttention(2, 4, name="attention")(inputs, inputs)
    value = keras.layers.GRU(5, name="gru")(value)
    return keras.Model(inputs, keras.layers.Dense(3, dtype="float32", name="out")(value))


CASES: Final = (
    (dense, "float32"),
    (dense, "mixed_float16"),
    (attention, "mixed_bfloat16"),
)


def main() -> None:
    """Print the differences."""
    keras = LIBRARY.keras
    assert os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
    LIBRARY.tf.configure(None)
    found = {}
    for build, policy in CASES:
        keras.utils.set_random_seed(1)
        keras.mixed_precision.set_dtype_policy(policy)
        model = build(keras)
        shape = (8, *model.input_shape[1:])
        inputs = np.random.default_rng(1).normal(size=shape).astype("float32")
        step, flows = steps(keras, model, inputs)
        others = sensitivities(keras, model, inputs)
        found[f"{build.__name__} {policy}"] = {
            "step": step,
            "other": others,
            "flows": flows,
            "tf32": tf32_outputs(model, inputs),
        }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
