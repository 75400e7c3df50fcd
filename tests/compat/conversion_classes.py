"""
Models and layers of someone else's, which hold layers in attributes, lists and dicts, in one of the
libraries.
"""

from __future__ import annotations

from typing import Any


def classes(keras: Any) -> dict[str, Any]:
    """Return the classes by their registered names."""
    layers = keras.layers

    class Plain(keras.Model):  # type: ignore[misc]
        """Attributes on both sides of ``layers``, of classes that differ."""

        def __init__(self, units: int = 3, **others: Any) -> None:
            super().__init__(**others)
            self.units = units
            self.b, self.a = layers.Dense(units, "relu"), layers.Dense(units)
            self.norm, self.drop = layers.BatchNormalization(), layers.Dropout(0.5)

        def call(self, x: Any, training: bool = False) -> Any:  # noqa: FBT001, FBT002
            x = self.a(self.drop(self.b(x), training=training))
            return self.norm(x, training=training)

        def get_config(self) -> Any:
            return {**super().get_config(), "units": self.units}

    class Listed(keras.Model):  # type: ignore[misc]
        """Lists and dicts of layers of one class, on both sides of ``layers``."""

        def __init__(self, **others: Any) -> None:
            super().__init__(**others)
            self.blocks = [layers.Dense(3), layers.LayerNormalization(), layers.Dense(3)]
            self.parts = {"z": layers.Dense(3), "y": layers.Dense(3)}

        def call(self, x: Any) -> Any:
            for block in self.blocks:
                x = block(x)
            return self.parts["y"](self.parts["z"](x))

    class Gathered(keras.Model):  # type: ignore[misc]
        """Lists and dicts of layers, all before ``layers``."""

        def __init__(self, keys: Any = ("y", "z"), **others: Any) -> None:
            super().__init__(**others)
            self.first = {key: layers.Dense(3) for key in keys}
            self.blocks = [layers.Dense(3), layers.LayerNormalization(), Block(3)]

        def call(self, x: Any) -> Any:
            for inner in (*self.first.values(), *self.blocks):
                x = inner(x)
            return x

    class Block(keras.layers.Layer):  # type: ignore[misc]
        """A layer with variables of its own, an attribute that is private, and a list."""

        def __init__(self, units: int = 4, **others: Any) -> None:
            super().__init__(**others)
            self.units = units
            self._inner = layers.Dense(units)
            self.items = [layers.Dense(units), layers.Dense(units)]

        def build(self, shape: Any) -> None:
            add = self.add_weight
            self.scale = add(name="scale", shape=(self.units,), initializer="random_normal")
            self.count = add(name="count", shape=(), initializer="ones", trainable=False)
            self._inner.build(shape)
            for item in self.items:
                item.build((*shape[:-1], self.units))
            super().build(shape)

        def call(self, x: Any) -> Any:
            x = self._inner(x)
            for item in self.items:
                x = item(x)
            return x * self.scale * self.count

        def get_config(self) -> Any:
            return {**super().get_config(), "units": self.units}

    class Composite(keras.Model):  # type: ignore[misc]
        """Layers that make layers."""

        def __init__(self, **others: Any) -> None:
            super().__init__(**others)
            self.emb, self.mha = layers.Embedding(9, 4), layers.MultiHeadAttention(2, 3)
            self.rnn = layers.LSTM(4, return_sequences=True)
            self.bi = layers.Bidirectional(layers.GRU(3, return_sequences=True))
            self.td, self.sep = (
                layers.TimeDistributed(layers.Dense(3)),
                layers.SeparableConv1D(3, 2),
            )

        def call(self, x: Any) -> Any:
            x = self.emb(x)
            return self.sep(self.td(self.bi(self.rnn(self.mha(x, x)))))

    class Attending(keras.layers.Layer):  # type: ignore[misc]
        """A layer that holds an attention."""

        def __init__(self, **others: Any) -> None:
            super().__init__(**others)
            self.mha, self.norm = layers.MultiHeadAttention(2, 3), layers.LayerNormalization()

        def call(self, x: Any) -> Any:
            return self.norm(self.mha(x, x) + x)

    class Pair(keras.Model):  # type: ignore[misc]
        """Two inputs in a list or a dict."""

        def __init__(self, keys: Any = (0, 1), **others: Any) -> None:
            super().__init__(**others)
            self.keys = tuple(keys)
            self._add_layers()

        def _add_layers(self) -> None:
            self.a, self.b = layers.Dense(3), layers.Dense(3)

        def call(self, x: Any) -> Any:
            return self.a(x[self.keys[0]]) + self.b(x[self.keys[1]])

        def get_config(self) -> Any:
            return {**super().get_config(), "keys": list(self.keys)}

    class Swapped(Pair):
        """The same, whose layers are made in the other order."""

        def _add_layers(self) -> None:
            self.b, self.a = layers.Dense(3), layers.Dense(3)

    class Building(keras.Model):  # type: ignore[misc]
        """A model with variables of its own."""

        def __init__(self, **others: Any) -> None:
            super().__init__(**others)
            self.a = layers.Dense(3)

        def build(self, shape: Any) -> None:
            self.scale = self.add_weight(name="scale", shape=(3,), initializer="random_normal")
            self.shift = self.add_weight(name="shift", shape=(3,), initializer="random_normal")
            self.a.build(shape)
            self.built = True

        def call(self, x: Any) -> Any:
            return self.a(x) * self.scale + self.shift

    class Held(keras.Model):  # type: ignore[misc]
        """Layers that stand in the config, under other names than the attributes'."""

        def __init__(self, encoder: Any = None, heads: Any = (), **others: Any) -> None:
            super().__init__(**others)
            self.enc, self.heads = encoder, list(heads)

        def call(self, x: Any) -> Any:
            x = self.enc(x)
            for head in self.heads:
                x = head(x)
            return x

        def get_config(self) -> Any:
            write = keras.saving.serialize_keras_object
            held = {"encoder": write(self.enc), "heads": [write(head) for head in self.heads]}
            return {**super().get_config(), **held}

        @classmethod
        def from_config(cls, config: Any) -> Any:
            read = keras.saving.deserialize_keras_object
            config = dict(config)
            heads = [read(head) for head in config.pop("heads")]
            return cls(encoder=read(config.pop("encoder")), heads=heads, **config)

    every = (Plain, Listed, Gathered, Block, Composite, Attending, Pair, Swapped, Building, Held)
    return {
        f"pt>{item.__name__}": keras.saving.register_keras_serializable(package="pt")(item)
        for item in every
    }
