"""
Classes of somebody's own, for models that only they can load: ``check_classes:TF_KERAS`` and
``check_classes:KERAS`` are what ``--custom-objects`` names.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, Final

LIBRARIES: Final = {"TF_KERAS": "tf_keras", "KERAS": "keras"}


def __getattr__(name: str) -> dict[str, Any]:
    """Return the classes of one Keras by name; only that one is imported."""
    if name not in LIBRARIES:
        raise AttributeError(name)
    return classes(LIBRARIES[name])


@cache
def classes(library: str) -> dict[str, Any]:
    """Return the classes, made of a Keras."""
    keras: Any = import_module(library)
    tf: Any = import_module("tensorflow")
    layers: Any = keras.layers
    layer: Any = layers.Layer

    class Scale(layer):  # type: ignore[misc]
        """Multiplies by one weight for each channel."""

        def build(self, input_shape: Any) -> None:
            self.factor = self.add_weight(
                name="factor", shape=(input_shape[-1],), initializer="random_uniform"
            )
            super().build(input_shape)

        def call(self, inputs: Any) -> Any:
            return inputs * tf.cast(self.factor, inputs.dtype)

    class Block(layer):  # type: ignore[misc]
        """Two layers and a shortcut."""

        def __init__(self, units: int = 8, **options: Any) -> None:
            super().__init__(**options)
            self.units = units
            self.inner = layers.Dense(
                units,
                activation="relu",
                name="inner",
                dtype=self.dtype_policy if library == "keras" else self._dtype_policy,
            )
            self.scale = Scale(
                name="scale", dtype=self.dtype_policy if library == "keras" else self._dtype_policy
            )

        def build(self, input_shape: Any) -> None:
            self.inner.build(input_shape)
            self.scale.build((*input_shape[:-1], self.units))
            super().build(input_shape)

        def call(self, inputs: Any) -> Any:
            return self.scale(self.inner(inputs)) + tf.cast(inputs, self.compute_dtype)

        def get_config(self) -> dict[str, Any]:
            return {**super().get_config(), "units": self.units}

    class Net(keras.Model):  # type: ignore[misc]
        """A subclassed model with layers in a list."""

        def __init__(self, units: int = 8, **options: Any) -> None:
            super().__init__(**options)
            self.units = units
            self.hidden = [
                layers.Dense(units, activation="tanh", name=f"hidden_{number}")
                for number in range(2)
            ]
            self.scores = layers.Dense(3, name="scores")

        def call(self, inputs: Any) -> Any:
            for layer in self.hidden:
                inputs = layer(inputs)
            return self.scores(inputs)

        def get_config(self) -> dict[str, Any]:
            return {"name": self.name, "units": self.units}

    class Traced(Net):
        """The same, with a call that is a tf.function."""

        @tf.function  # type: ignore[untyped-decorator]
        def call(self, inputs: Any) -> Any:
            return super().call(inputs)

    return {item.__name__: item for item in (Scale, Block, Net, Traced)}
