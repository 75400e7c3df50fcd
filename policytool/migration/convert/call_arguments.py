"""The arguments of calls by their names, whether they are given by place or by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from policytool.migration.convert.architecture import Unit
    from policytool.model.calls import Argument, Call

RECURRENT: Final = frozenset(
    {"RNN", "SimpleRNN", "GRU", "LSTM", "Bidirectional", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D"}
)
"""The classes that are called on a sequence with states."""

ATTENTION: Final = "MultiHeadAttention"
STATE: Final = "initial_state"
"""The argument for the states that a sequence starts with."""

VALUE: Final = "value"
_RECURRENT_NAMES: Final = ("sequences", STATE, "mask", "training")
_PLACES: Final = {
    **dict.fromkeys(RECURRENT, _RECURRENT_NAMES),
    ATTENTION: (
        "query",
        VALUE,
        "key",
        "query_mask",
        "value_mask",
        "key_mask",
        "attention_mask",
        "return_attention_scores",
        "training",
    ),
    "Attention": ("inputs", "mask", "training", "return_attention_scores", "use_causal_mask"),
    "AdditiveAttention": (
        "inputs",
        "mask",
        "training",
        "return_attention_scores",
        "use_causal_mask",
    ),
    "Softmax": ("inputs", "mask"),
    "BatchNormalization": ("inputs", "training", "mask"),
    "GlobalAveragePooling1D": ("inputs", "mask"),
    "TimeDistributed": ("inputs", "training", "mask"),
    "CategoryEncoding": ("inputs", "count_weights"),
    "Functional": ("inputs", "training", "mask"),
    "Sequential": ("inputs", "training", "mask"),
}
"""The arguments of calls in Keras 3, in their order (keras/src/layers)."""

_OTHERS: Final = ("inputs", "training")


def argument_names(unit: Unit) -> tuple[str, ...]:
    """Return the names of a layer's arguments in the order in which Keras 3 takes them."""
    return _PLACES.get(unit.class_name, _OTHERS) if not unit.custom else _OTHERS


def named_arguments(unit: Unit, call: Call) -> dict[str, Argument]:
    """Return a call's arguments by their names, the first one's as Keras 3 calls it."""
    return {**dict(zip(argument_names(unit), call.args, strict=False)), **call.kwargs}
