"""Layers and models of users, registered with the library that runs this process."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

PACKAGE = "random_models"


@cache
def custom_classes(keras: Any) -> Mapping[str, Any]:
    """Return the classes of users by their names, which loading finds from then on."""
    return {
        item.__name__: keras.saving.register_keras_serializable(PACKAGE)(item)
        for item in (
            _sampling(keras), _patch_encoder(keras), _gated(keras), _block(keras), _model(keras)
        )
    }  # fmt: skip


def _sampling(keras: Any) -> Any:
    class Sampling(keras.layers.Layer):  # type: ignore[misc]
        """The mean, with noise while training."""

        def call(self, inputs: Any, training: Any = None) -> Any:
            import tensorflow as tf

            mean, spread = inputs
            if not training:
                return mean
            return mean + tf.exp(0.5 * spread) * tf.random.normal(tf.shape(mean), dtype=mean.dtype)

    return Sampling


def _patch_encoder(keras: Any) -> Any:
    class PatchEncoder(keras.layers.Layer):  # type: ignore[misc]
        """A projection, and learned positions."""

        def __init__(self, patches: int, width: int, **options: Any) -> None:
            super().__init__(**options)
            self.patches, self.width = patches, width
            self.projection = keras.layers.Dense(width)
            self.position = keras.layers.Embedding(patches, width)

        def build(self, shape: Any) -> None:
            self.projection.build(shape)
            self.position.build((None,))
            self.built = True

        def call(self, value: Any) -> Any:
            import tensorflow as tf

            return self.projection(value) + self.position(tf.range(self.patches))

        def get_config(self) -> Any:
            return {**super().get_config(), "patches": self.patches, "width": self.width}

    return PatchEncoder


def _gated(keras: Any) -> Any:
    class Gated(keras.layers.Layer):  # type: ignore[misc]
        """Weights of its own, made when it is built."""

        def build(self, shape: Any) -> None:
            size = (shape[-1],)  # in another order than that of the alphabet
            self.opening = self.add_weight(shape=size, initializer="ones", name="opening")
            self.constant = self.add_weight(shape=size, initializer="zeros", name="constant")
            self.built = True

        def call(self, value: Any) -> Any:
            return value * self.opening + self.constant

    return Gated


def _block(keras: Any) -> Any:
    class Block(keras.layers.Layer):  # type: ignore[misc]
        """Layers in attributes and in a list, called one after the other."""

        def __init__(self, units: int, **options: Any) -> None:
            super().__init__(**options)
            self.units = units
            self.norm = keras.layers.LayerNormalization()
            self.steps = [keras.layers.Dense(units, activation="relu") for _ in range(2)]

        def build(self, shape: Any) -> None:
            self.norm.build(shape)
            for step in self.steps:
                step.build(shape)
                shape = (*shape[:-1], self.units)
            self.built = True

        def call(self, value: Any) -> Any:
            value = self.norm(value)
            for step in self.steps:
                value = step(value)
            return value

        def compute_output_shape(self, shape: Any) -> Any:
            return (*shape[:-1], self.units)

        def get_config(self) -> Any:
            return {**super().get_config(), "units": self.units}

    return Block


def _model(keras: Any) -> Any:
    class RandomModel(keras.Model):  # type: ignore[misc]
        """A subclassed model whose layers are attributes, as its description has them."""

        def __init__(self, description: Any, **options: Any) -> None:
            from tests.random_models.description import graph_from_json
            from tests.random_models.live import GraphBuilder

            super().__init__(**options)
            self.description = description
            self.builder = Hidden(GraphBuilder(keras, graph_from_json(description)))
            for node in self.builder.found.graph.nodes:
                if node.kind == "layer":
                    setattr(self, f"layer_{node.id}", self.builder.found.layer(node))

        def call(self, inputs: Any) -> Any:
            result = self.builder.found
            return result.run({result.graph.inputs[0].id: inputs})

        def get_config(self) -> Any:
            return {**super().get_config(), "description": self.description}

    return RandomModel


class Hidden:
    """What a model's attribute holds without being tracked as a part of it."""

    def __init__(self, found: Any) -> None:
        self.found = found
