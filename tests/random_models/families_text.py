"""Well-known shapes for text, sequences and tables, in random sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.random_models.sketch import Sketch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.random_models.description import Graph
    from tests.random_models.drawing import Draw


@dataclass(frozen=True, kw_only=True, slots=True)
class _Blocks:
    """Blocks of a transformer, with the normalization before or after attention."""

    sketch: Sketch
    width: int
    heads: int
    before: bool
    dropout: float

    def attend(self, value: str, other: str | None = None, **call: Any) -> str:
        """Add attention to a sequence, by default the same, and the residual."""
        sketch = self.sketch
        query = self._normal(value) if self.before else value
        attended = sketch.spread(
            "MultiHeadAttention",
            query,
            other or query,
            call=call,
            num_heads=self.heads,
            key_dim=self.width,
            dropout=self.dropout,
        )
        return self._joined(value, attended)

    def feed_forward(self, value: str) -> str:
        """Add two dense layers and the residual."""
        sketch = self.sketch
        hidden = sketch.layer(
            "Dense",
            self._normal(value) if self.before else value,
            units=self.width * 2,
            activation=sketch.draw.pick(("relu", "gelu")),
        )
        hidden = sketch.layer("Dense", hidden, units=self.width)
        return self._joined(value, sketch.layer("Dropout", hidden, rate=0.1))

    def _joined(self, value: str, other: str) -> str:
        added = (
            self.sketch.layer("Add", value, other)
            if self.sketch.draw.chance(0.7)
            else self.sketch.op("add", value, other)
        )
        return added if self.before else self._normal(added)

    def _normal(self, value: str) -> str:
        return self.sketch.layer("LayerNormalization", value, epsilon=1e-6)


def _blocks(sketch: Sketch, width: int) -> _Blocks:
    draw = sketch.draw
    return _Blocks(
        sketch=sketch,
        width=width,
        heads=draw.whole(1, 2),
        before=draw.chance(0.5),
        dropout=draw.pick((0.0, 0.1)),
    )


def _embedding(sketch: Sketch, bound: int, width: int, *, masked: bool = True) -> str:
    tokens = sketch.ids(sketch.draw.pick((None, 6)), bound)
    return sketch.layer("Embedding", tokens, input_dim=bound, output_dim=width, mask_zero=masked)


def transformer(draw: Draw) -> Graph:
    """Return an encoder and a decoder with padding masks."""
    sketch, width, bound = Sketch(draw), draw.pick((4, 6)), draw.whole(8, 20)
    blocks = _blocks(sketch, width)
    encoded = _embedding(sketch, bound, width)
    decoded = _embedding(sketch, bound, width)
    for _ in range(draw.whole(1, 2)):
        encoded = blocks.feed_forward(blocks.attend(encoded))
    for _ in range(draw.whole(1, 2)):
        decoded = blocks.attend(decoded, use_causal_mask=True)
        decoded = blocks.feed_forward(blocks.attend(decoded, encoded))
    return sketch.graph(sketch.layer("Dense", decoded, units=bound, activation="softmax"))


def classifier(draw: Draw) -> Graph:
    """Return a transformer over tokens and segments with a pooled output, as BERT has it."""
    sketch, width, bound = Sketch(draw), draw.pick((4, 6)), draw.whole(8, 20)
    tokens = sketch.ids(6, bound)
    embedded = sketch.layer(
        "Embedding", tokens, input_dim=bound, output_dim=width, mask_zero=draw.chance(0.8)
    )
    segments = sketch.ids(6, 2, "ints")
    segment = sketch.layer("Embedding", segments, input_dim=2, output_dim=width)
    value = sketch.layer("LayerNormalization", sketch.layer("Add", embedded, segment))
    value = sketch.layer("Dropout", value, rate=0.1)
    blocks = _blocks(sketch, width)
    for _ in range(draw.whole(1, 2)):
        value = blocks.feed_forward(blocks.attend(value))
    pooled = (
        sketch.layer("GlobalAveragePooling1D", value)
        if draw.chance(0.5)
        else sketch.op("slice", value, index=["all", 0])
    )
    pooled = sketch.layer("Dense", pooled, units=width, activation="tanh")
    return sketch.graph(sketch.layer("Dense", pooled, units=2, activation="softmax"))


def seq2seq(draw: Draw) -> Graph:
    """Return a recurrent encoder and a decoder that begins with its state and attends to it."""
    sketch, units, bound = Sketch(draw), draw.pick((4, 6)), draw.whole(8, 20)
    what = draw.pick(("LSTM", "GRU"))
    options = {"units": units, "return_sequences": True, "return_state": True}
    encoded = sketch.layer(what, _embedding(sketch, bound, units), **options)
    states = [sketch.state(encoded, 1), sketch.state(encoded, 2)][: 2 if what == "LSTM" else 1]
    decoded = sketch.spread(
        what,
        _embedding(sketch, bound, units),
        call={"initial_state": states},
        **options,
    )
    attended = sketch.layer(draw.pick(("Attention", "AdditiveAttention")), decoded, encoded)
    joined = sketch.layer("Concatenate", decoded, attended)
    dense = {"class": "Dense", "config": {"units": bound, "activation": "softmax"}}
    return sketch.graph(
        sketch.layer("TimeDistributed", joined, layer=dense)
        if draw.chance(0.5)
        else sketch.layer("Dense", joined, units=bound, activation="softmax")
    )


def text_cnn(draw: Draw) -> Graph:
    """Return parallel convolutions over an embedding."""
    sketch = Sketch(draw)
    value = sketch.layer(
        "SpatialDropout1D",
        _embedding(sketch, draw.whole(8, 20), 4, masked=draw.chance(0.3)),
        rate=0.2,
    )
    pooled = [
        sketch.layer(
            "GlobalMaxPooling1D",
            sketch.layer(
                *("Conv1D", value), filters=3, kernel_size=size, padding="same", activation="relu"
            ),
        )
        for size in (2, 3, 4)
    ]
    value = sketch.layer("Dropout", sketch.layer("Concatenate", *pooled), rate=0.5)
    return sketch.graph(sketch.layer("Dense", value, units=1, activation="sigmoid"))


def temporal_convolution(draw: Draw) -> Graph:
    """Return residual blocks of dilated causal convolutions (TCN)."""
    sketch, width = Sketch(draw), draw.pick((3, 4))
    sketch.draw.open_length = 8
    value = sketch.floats(draw.pick((None, 8)), draw.whole(1, 3))
    for level in range(draw.whole(1, 3)):
        inner = value
        for _ in range(2):
            inner = sketch.layer(
                *("Conv1D", inner), filters=width, kernel_size=2, padding="causal",
                dilation_rate=2**level,
            )  # fmt: skip
            inner = sketch.layer("Activation", inner, activation="relu")
            inner = sketch.layer("SpatialDropout1D", inner, rate=0.1)
        residual = sketch.layer("Conv1D", value, filters=width, kernel_size=1)
        value = sketch.layer("Activation", sketch.layer("Add", inner, residual), activation="relu")
    last = sketch.op("slice", value, index=["all", -1])
    return sketch.graph(sketch.layer("Dense", last, units=2))


def recommender(draw: Draw) -> Graph:
    """Return dense features and embedded categories that interact (DLRM)."""
    sketch, width = Sketch(draw), draw.pick((3, 4))
    dense = sketch.layer("Dense", sketch.floats(5), units=width, activation="relu")
    features = [dense]
    for _ in range(draw.whole(1, 3)):
        bound = draw.whole(4, 9)
        embedded = sketch.layer(
            "Embedding", sketch.ids(1, bound, "ints"), input_dim=bound, output_dim=width
        )
        features.append(
            sketch.layer("Flatten", embedded)
            if draw.chance(0.6)
            else sketch.layer("Reshape", embedded, target_shape=[width])
        )
    pairs = [
        sketch.layer("Dot", one, other, axes=1)
        for number, one in enumerate(features)
        for other in features[:number]
    ]
    value = sketch.layer("Concatenate", dense, *pairs)
    value = sketch.layer("Dense", value, units=4, activation="relu")
    return sketch.graph(sketch.layer("Dense", value, units=1, activation="sigmoid"))


def siamese(draw: Draw) -> Graph:
    """Return one model called on two inputs, and the distance of its outputs."""
    inner = Sketch(draw)
    text = draw.chance(0.5)
    if text:
        value = _embedding(inner, 12, 4)
        what = draw.pick(("LSTM", "GRU", "GlobalAveragePooling1D"))
        value = inner.layer(
            what, value, **({"units": 4} if what != "GlobalAveragePooling1D" else {})
        )
    else:
        value = inner.layer("Dense", inner.floats(5), units=6, activation="relu")
        value = inner.layer("BatchNormalization", value)
    encoder = inner.graph(inner.layer("Dense", value, units=4))
    length = inner.specs[0].shape[0]
    sketch = Sketch(draw)
    one, other = (sketch.ids(length, 12) if text else sketch.floats(5) for _ in range(2))
    first = sketch.model(encoder, one)
    second = sketch.again(first, other)
    if draw.chance(0.5):
        value = sketch.op("abs", sketch.op("subtract", first, second))
    else:
        value = sketch.layer("Dot", first, second, axes=1, normalize=True)
    return sketch.graph(sketch.layer("Dense", value, units=1, activation="sigmoid"))


FAMILIES: Final[Mapping[str, Callable[[Draw], Graph]]] = {
    "transformer": transformer,
    "classifier": classifier,
    "seq2seq": seq2seq,
    "text_cnn": text_cnn,
    "temporal_convolution": temporal_convolution,
    "recommender": recommender,
    "siamese": siamese,
}
