"""
Small models in which masks travel: what the libraries make of them differs, release by release.

Each begins with an Embedding (``mask_zero=True``) of ids: one row is not padded, one at its end,
one in front, and one everywhere.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

Built = tuple[Any, Any]
"""A model and its inputs."""

STEPS: Final = 6
WIDTH: Final = 8
MERGES: Final = ("Add", "Average", "Concatenate", "Maximum", "Minimum", "Multiply", "Subtract")


def _ids(seed: int = 0) -> Any:
    found = np.random.default_rng(seed).integers(1, 9, size=(4, STEPS))
    found[1, 2 + seed :] = 0
    found[2 - seed] = 0
    found[3, : 2 + seed] = 0
    return found.astype("int32")


def _embedded(keras: Any, name: str) -> tuple[Any, Any]:
    """Return an input of ids and its E(i)."""
    given = keras.Input((STEPS,), dtype="int32", name=name)
    result = keras.layers.Embedding(9, WIDTH, mask_zero=True, name=f"embed_{name}")(given)
    return given, result


def _attention(keras: Any, **options: Any) -> Any:
    return keras.layers.MultiHeadAttention(2, 4, **options)


def transformer(keras: Any) -> Built:
    """Return two post-LN blocks: MultiHeadAttention clears masks in Keras 3.8 and later."""
    given, x = _embedded(keras, "ids")
    for number in range(2):
        x = keras.layers.Add()([x, _attention(keras)(x, x)])
        x = keras.layers.LayerNormalization(name=f"norm_{number}")(x)
        x = keras.layers.Add()([x, keras.layers.Dense(WIDTH, name=f"dense_{number}")(x)])
    return keras.Model(given, keras.layers.LSTM(3)(x)), _ids()


def decoders(keras: Any) -> Built:
    """Return a decoder whose two attentions see one encoder output."""
    source, encoded = _embedded(keras, "source")
    target, x = _embedded(keras, "target")
    for _ in range(2):
        x = keras.layers.Add()([x, _attention(keras)(x, encoded)])
    model = keras.Model([source, target], keras.layers.LSTM(3)(x))
    return model, [_ids(), _ids(1)]


def merged(keras: Any, name: str, *, half: bool) -> Built:
    """Return a layer that merges two masked tensors, or a masked one and another."""
    first, x = _embedded(keras, "first")
    if half:
        second = keras.Input((STEPS, WIDTH), name="second")
        other, inputs = second, np.random.default_rng(1).normal(size=(4, STEPS, WIDTH))
    else:
        second, other = _embedded(keras, "second")
        inputs = _ids(1)
    y = getattr(keras.layers, name)()([x, other])
    return keras.Model([first, second], keras.layers.LSTM(3)(y)), [
        _ids(),
        inputs.astype(_ids().dtype if not half else "float32"),
    ]


def joined_steps(keras: Any) -> Built:
    """Return a Concatenate of two masked tensors along their steps."""
    first, x = _embedded(keras, "first")
    second, other = _embedded(keras, "second")
    y = keras.layers.Concatenate(axis=1)([x, other])
    return keras.Model([first, second], keras.layers.LSTM(3)(y)), [_ids(), _ids(1)]


def passed_on(keras: Any, make: Callable[[Any], Any]) -> Built:
    """Return a layer between a masked tensor and one that looks for the mask."""
    given, x = _embedded(keras, "ids")
    return keras.Model(given, keras.layers.LSTM(3)(make(keras.layers)(x))), _ids()


def given_states(keras: Any) -> Built:
    """Return a recurrent layer with states, which looks for no mask in Keras 3."""
    given, x = _embedded(keras, "ids")
    state = keras.Input((3,), name="state")
    y = keras.layers.GRU(3)(x, initial_state=state)
    return keras.Model([given, state], y), [_ids(), np.ones((4, 3), "float32")]


def averaged_attention(keras: Any, **options: Any) -> Built:
    """Return an attention whose fully masked steps are left out behind it."""
    given, x = _embedded(keras, "ids")
    return keras.Model(given, keras.layers.LSTM(3)(_attention(keras, **options)(x, x))), _ids()


def shown_attention(
    keras: Any, *, scores: bool = False, causal: bool = False, **options: Any
) -> Built:
    """Return an attention whose fully masked steps are in an output."""
    given, x = _embedded(keras, "ids")
    layer = _attention(keras, bias_initializer="random_normal", **options)
    y = layer(x, x, return_attention_scores=scores, use_causal_mask=causal)
    return keras.Model(given, list(y) if scores else y), _ids()


def squared_softmax(keras: Any) -> Built:
    """Return a Softmax whose input has as many rows, steps and channels: its mask fits."""
    given = keras.Input((4,), dtype="int32", name="ids")
    x = keras.layers.Embedding(9, 4, mask_zero=True)(given)
    return keras.Model(given, keras.layers.Softmax()(x)), _ids()[:, 1:5]


def unrolled_backwards(keras: Any) -> Built:
    """Return a Bidirectional that takes its mask as it is, and its steps turned around."""
    given, x = _embedded(keras, "ids")
    layer = keras.layers.LSTM(3, unroll=True, return_sequences=True)
    return keras.Model(given, keras.layers.Bidirectional(layer)(x)), _ids()


def casting_attention(keras: Any) -> Built:
    """Return an attention that casts its query, whose mask Keras 2 loses by that."""
    given = keras.Input((STEPS,), dtype="int32", name="ids")
    x = keras.layers.Embedding(9, WIDTH, mask_zero=True, dtype="float64")(given)
    return keras.Model(given, _attention(keras, dtype="float32")(x, x)), _ids()


def nested(keras: Any) -> Built:
    """Return a nested model that a mask enters and leaves."""
    inner_input = keras.Input((STEPS, WIDTH))
    inner = keras.Model(inner_input, keras.layers.Dense(WIDTH)(inner_input), name="inner")
    given, x = _embedded(keras, "ids")
    y = keras.layers.Add()([inner(x), x])
    return keras.Model(given, keras.layers.LSTM(3)(y)), _ids()


MODELS: Final[dict[str, Callable[[Any], Built]]] = {
    "masked_transformer": transformer,
    "masked_decoders": decoders,
    "masked_steps_joined": joined_steps,
    "masked_beside_states": given_states,
    "masked_softmax": squared_softmax,
    "masked_unrolled_backwards": unrolled_backwards,
    "masked_nested": nested,
    "masked_rescaling": partial(passed_on, make=lambda layers: layers.Rescaling(2.0)),
    "masked_normalization": partial(
        passed_on, make=lambda layers: layers.Normalization(mean=0.5, variance=2.0)
    ),
    "masked_identity": partial(passed_on, make=lambda layers: layers.Identity()),
    "attention_dropout_unseen": partial(averaged_attention, dropout=0.5),
    "attention_dropout_shown": partial(shown_attention, dropout=0.5),
    "attention_scores_shown": partial(shown_attention, scores=True),
    "attention_causal_shown": partial(shown_attention, scores=True, causal=True),
    "attention_without_bias_shown": partial(shown_attention, dropout=0.5, use_bias=False),
    "attention_shown": shown_attention,
    "attention_casting_shown": casting_attention,
    **{f"masked_{name.lower()}": partial(merged, name=name, half=False) for name in MERGES},
    **{f"half_masked_{name.lower()}": partial(merged, name=name, half=True) for name in MERGES},
}
"""By name, what builds a model with a library."""
