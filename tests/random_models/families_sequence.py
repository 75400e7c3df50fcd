"""Well-known shapes for sequences, in random sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.random_models.description import as_json
from tests.random_models.samples import BATCH
from tests.random_models.sketch import Sketch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.random_models.description import Graph
    from tests.random_models.drawing import Draw

_RECURRENT: Final = ("LSTM", "GRU", "SimpleRNN")


def forecaster(draw: Draw) -> Graph:
    """Return recurrent layers that keep their state from batch to batch."""
    sketch = Sketch(draw)
    value = sketch.floats(5, 3, batch=BATCH)
    for _ in range(draw.whole(0, 1)):
        value = sketch.layer(
            draw.pick(_RECURRENT), value, units=4, stateful=True, return_sequences=True
        )
    value = sketch.layer(draw.pick(_RECURRENT), value, units=3, stateful=True)
    return sketch.graph(sketch.layer("Dense", value, units=2))


def tagger(draw: Draw) -> Graph:
    """Return recurrent layers of both directions that say something of each step."""
    sketch = Sketch(draw)
    value = sketch.layer(
        "Embedding",
        sketch.ids(draw.pick((None, 6)), 12),
        input_dim=12,
        output_dim=4,
        mask_zero=draw.chance(0.8),
    )
    for _ in range(draw.whole(1, 2)):
        what = draw.pick(("LSTM", "GRU"))
        layer = {"class": what, "config": {"units": 3, "return_sequences": True, "dropout": 0.1}}
        value = sketch.layer("Bidirectional", value, layer=layer)
        if draw.chance(0.5):
            value = sketch.layer("LayerNormalization", value)
    dense = {"class": "Dense", "config": {"units": 5, "activation": "softmax"}}
    return sketch.graph(sketch.layer("TimeDistributed", value, layer=dense))


def sequence_autoencoder(draw: Draw) -> Graph:
    """Return a sequence that is packed into a vector, repeated and unpacked."""
    sketch, what = Sketch(draw), draw.pick(_RECURRENT)
    value = sketch.floats(6, 3, values="padded")
    if draw.chance(0.5):
        value = sketch.layer("Masking", value, mask_value=0.0)
    value = sketch.layer(what, value, units=4)
    value = sketch.layer("RepeatVector", value, n=6)
    value = sketch.layer(what, value, units=4, return_sequences=True)
    dense = {"class": "Dense", "config": {"units": 3}}
    return sketch.graph(sketch.layer("TimeDistributed", value, layer=dense))


def memory_network(draw: Draw) -> Graph:
    """Return a question that is matched with the steps of a story."""
    sketch, width = Sketch(draw), 4
    story, question = sketch.ids(6, 12), sketch.ids(3, 12)
    options = {"input_dim": 12, "mask_zero": draw.chance(0.4)}
    asked = sketch.layer("Embedding", question, output_dim=width, **options)
    match = sketch.layer("Embedding", story, output_dim=width, **options)
    match = sketch.layer("Softmax", sketch.layer("Dot", match, asked, axes=2))
    result = sketch.layer("Embedding", story, output_dim=3, **options)
    value = sketch.layer("Permute", sketch.layer("Add", match, result), dims=[2, 1])
    if draw.chance(0.5):
        value = sketch.layer("Concatenate", value, asked, axis=-1)
    value = sketch.layer(draw.pick(_RECURRENT), value, units=5)
    return sketch.graph(sketch.layer("Dense", value, units=12, activation="softmax"))


def speech(draw: Draw) -> Graph:
    """Return convolutions over a spectrogram that recurrent layers follow (CRNN)."""
    sketch = Sketch(draw)
    value = sketch.floats(8, 6, 1)
    for filters in (3, 4)[: draw.whole(1, 2)]:
        value = sketch.layer("Conv2D", value, filters=filters, kernel_size=3, padding="same")
        value = sketch.layer("BatchNormalization", value)
        value = sketch.layer("ReLU", value)
        value = sketch.layer("MaxPooling2D", value, pool_size=[1, 2])
    steps = {"class": "Flatten", "config": {}}
    value = sketch.layer("TimeDistributed", value, layer=steps)
    what = draw.pick(("LSTM", "GRU"))
    layer = {"class": what, "config": {"units": 3, "return_sequences": True}}
    value = sketch.layer("Bidirectional", value, layer=layer)
    return sketch.graph(sketch.layer("Dense", value, units=6, activation="softmax"))


def characters(draw: Draw) -> Graph:
    """Return words that a model makes of their characters, and a recurrent layer over them."""
    inner = Sketch(draw)
    value = inner.layer("Embedding", inner.ids(5, 9, "ints"), input_dim=9, output_dim=3)
    value = inner.layer("Conv1D", value, filters=4, kernel_size=2)
    word = inner.graph(inner.layer("GlobalMaxPooling1D", value))
    sketch = Sketch(draw)
    value = sketch.characters(4, 5, 9)
    value = sketch.layer("TimeDistributed", value, layer={"graph": as_json(word)})
    value = sketch.layer(draw.pick(_RECURRENT), value, units=4)
    return sketch.graph(sketch.layer("Dense", value, units=1, activation="sigmoid"))


def attention_pooling(draw: Draw) -> Graph:
    """Return steps weighed by a softmax over them, and summed."""
    sketch = Sketch(draw)
    masked = draw.chance(0.6)
    value = sketch.layer(
        "Embedding", sketch.ids(6, 12), input_dim=12, output_dim=4, mask_zero=masked
    )
    value = sketch.layer("GRU", value, units=4, return_sequences=True)
    scores = sketch.layer("Dense", value, units=1, activation="tanh")
    scores = sketch.layer("Softmax", scores, axis=1)
    weighed = (
        sketch.layer("Multiply", value, scores)
        if draw.chance(0.5)
        else sketch.op("multiply", value, scores)
    )
    pooled = sketch.op("sum", weighed, axis=1, keepdims=False)
    return sketch.graph(sketch.layer("Dense", pooled, units=2, activation="softmax"))


def scored_steps(draw: Draw) -> Graph:
    """Return attention by hand: scores of each step by each, a mask, and their sum."""
    sketch = Sketch(draw)
    tokens = sketch.ids(6, 12)
    value = sketch.layer("Embedding", tokens, input_dim=12, output_dim=4)
    scores = sketch.layer("Dot", value, value, axes=2)
    kept = sketch.op("expand", sketch.op("is_positive", tokens), axis=1)
    weights = sketch.spread("Softmax", scores, call={"mask": {"ref": kept}})
    value = sketch.layer("Dot", weights, value, axes=[2, 1])
    value = sketch.layer("GlobalAveragePooling1D", value)
    return sketch.graph(sketch.layer("Dense", value, units=2))


FAMILIES: Final[Mapping[str, Callable[[Draw], Graph]]] = {
    "forecaster": forecaster,
    "tagger": tagger,
    "sequence_autoencoder": sequence_autoencoder,
    "memory_network": memory_network,
    "speech": speech,
    "characters": characters,
    "attention_pooling": attention_pooling,
    "scored_steps": scored_steps,
}
