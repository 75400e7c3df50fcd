"""
Layers whose errors under 16-bit policies are known from measurements, each in a small model, with
the inputs that bring them out.

This runs under the interpreter that has TensorFlow. A case is about the layer that is called LAYER;
before it stands a Dropout, and after it a classifier's head, as in a model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

LAYER: Final = "measured"
MODEL: Final = "model"
INPUT: Final = "inputs"


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One case."""

    name: str
    layer: Callable[[Any], Any]
    """Makes the layer of a Keras' ``layers``."""

    inputs: Any
    policy: str = "mixed_float16"
    first: bool = False
    """Whether the layer takes the model's inputs as they come, which preprocessing does."""

    itself: bool = False
    """Whether the layer attends to itself: it is called with its input twice."""

    def called(self, layer: Any, tensor: Any) -> Any:
        """Return what the layer makes of its input."""
        return layer(tensor, tensor) if self.itself else layer(tensor)


def normal(scale: float, *shape: int) -> Any:
    """Return normally distributed values."""
    return (np.random.default_rng(7).standard_normal(shape) * scale).astype("float32")


def constant(value: float, *shape: int) -> Any:
    """Return the same value everywhere."""
    return np.full(shape, value, "float32")


CASES: Final = (
    Measured(
        name="average-2d",
        layer=lambda layers: layers.GlobalAveragePooling2D(name=LAYER),
        inputs=constant(10, 2, 128, 128, 2),
    ),
    Measured(
        name="average-1d",
        layer=lambda layers: layers.GlobalAveragePooling1D(name=LAYER),
        inputs=constant(10, 2, 20000, 2),
    ),
    Measured(
        name="average-window",
        layer=lambda layers: layers.AveragePooling2D(112, name=LAYER),
        inputs=constant(10, 2, 112, 112, 2),
    ),
    Measured(
        name="unit-zeros",
        layer=lambda layers: layers.UnitNormalization(name=LAYER),
        inputs=constant(0, 2, 8),
    ),
    Measured(
        name="unit-small",
        layer=lambda layers: layers.UnitNormalization(name=LAYER),
        inputs=normal(1e-4, 4, 8),
    ),
    Measured(
        name="unit-large",
        layer=lambda layers: layers.UnitNormalization(name=LAYER),
        inputs=normal(300, 4, 64),
    ),
    Measured(
        name="layer-norm",
        layer=lambda layers: layers.LayerNormalization(name=LAYER),
        inputs=normal(300, 4, 64),
    ),
    Measured(
        name="layer-norm-pure",
        layer=lambda layers: layers.LayerNormalization(name=LAYER),
        inputs=normal(300, 4, 64),
        policy="float16",
    ),
    Measured(
        name="layer-norm-epsilon",
        layer=lambda layers: layers.LayerNormalization(epsilon=1e-12, name=LAYER),
        inputs=constant(3, 4, 64),
        policy="float16",
    ),
    Measured(
        name="group-norm",
        layer=lambda layers: layers.GroupNormalization(4, name=LAYER),
        inputs=normal(300, 4, 8, 8, 16),
    ),
    Measured(
        name="batch-norm",
        layer=lambda layers: layers.BatchNormalization(name=LAYER),
        inputs=normal(300, 8, 16),
    ),
    Measured(
        name="dense-deep",
        layer=lambda layers: layers.Dense(16, kernel_initializer="random_normal", name=LAYER),
        inputs=normal(1, 8, 4096),
    ),
    Measured(
        name="dense-overflow",
        layer=lambda layers: layers.Dense(4, kernel_initializer="ones", name=LAYER),
        inputs=constant(20, 2, 4096),
    ),
    Measured(
        name="softmax", layer=lambda layers: layers.Softmax(name=LAYER), inputs=normal(20, 8, 1000)
    ),
    Measured(
        name="exponential",
        layer=lambda layers: layers.Activation("exponential", name=LAYER),
        inputs=constant(12, 4, 8),
    ),
    Measured(
        name="gelu",
        layer=lambda layers: layers.Activation("gelu", name=LAYER),
        inputs=normal(3, 8, 64),
    ),
    Measured(
        name="elu",
        layer=lambda layers: layers.Activation("elu", name=LAYER),
        inputs=-np.abs(normal(1e-4, 8, 64)),
    ),
    Measured(
        name="normalization-mean",
        layer=lambda layers: layers.Normalization(axis=None, mean=1e5, variance=1e8, name=LAYER),
        inputs=1e5 + normal(1e4, 4, 8),
        first=True,
    ),
    Measured(
        name="normalization-variance",
        layer=lambda layers: layers.Normalization(axis=None, mean=0.0, variance=1e-9, name=LAYER),
        inputs=normal(3e-5, 4, 8),
        first=True,
    ),
    Measured(
        name="lstm", layer=lambda layers: layers.LSTM(16, name=LAYER), inputs=normal(1, 2, 500, 8)
    ),
    Measured(
        name="gru", layer=lambda layers: layers.GRU(16, name=LAYER), inputs=normal(1, 2, 500, 8)
    ),
    Measured(
        name="attention",
        layer=lambda layers: layers.MultiHeadAttention(4, 16, name=LAYER),
        inputs=normal(1, 2, 512, 32),
        itself=True,
    ),
    Measured(
        name="max-3d",
        layer=lambda layers: layers.MaxPooling3D(2, name=LAYER),
        inputs=normal(1, 2, 4, 4, 4, 2),
    ),
)


def built(keras: Any, case: Measured, policy: str) -> Any:
    """Return a case's model, all of it under a policy but its output."""
    layers = keras.layers
    keras.mixed_precision.set_global_policy(policy)
    try:
        inputs = layers.Input(case.inputs.shape[1:], name=INPUT, dtype="float32")
        tensor = inputs if case.first else layers.Dropout(0.1, name="before")(inputs)
        tensor = layers.Dense(3, name="after")(case.called(case.layer(layers), tensor))
        return keras.Model(
            inputs,
            layers.Activation("softmax", name="probabilities", dtype="float32")(tensor),
            name=MODEL,
        )
    finally:
        keras.mixed_precision.set_global_policy("float32")
