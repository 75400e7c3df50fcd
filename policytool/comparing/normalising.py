"""
Configs in one spelling, so that what two generations write for the same thing compares as the same.

:data:`RULES` lists what is normalised, in the words of ``docs/diff.md``. A value of a custom class keeps its package and its module: there the name
is all that tells one class from another.
"""

from __future__ import annotations

import json
import math
import struct
from typing import TYPE_CHECKING, Any, Final

from policytool import generations
from policytool.errors import SpellingError
from policytool.generations import GENERATIONS
from policytool.tree import LAYERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.jsontext import Json

RULES: Final = (
    ("keys", "`batch_input_shape` of Keras 1 and 2 is Keras 3's `batch_shape`, `inner_optimizer` is TF 2.0's `optimizer`, `learning_rate` is the older `lr`"),
    ("wrappers", "an object of Keras' own is its class and config: `module`, `registered_name`, `build_config` and `shared_object_id` say nothing more"),
    ("names", "an object with an empty config is its bare name, and a function is its name: `relu`, `{class_name: function, config: relu}`"),
    ("classes", "`OrthogonalInitializer` is `Orthogonal`, `BatchNormalizationV1` and `V2` are `BatchNormalization`, `LossScaleOptimizerV1` and `V3` too"),
    ("policies", "a policy is its name, however it is spelled, as long as it has no loss scale"),
    ("sequences", "tuples, lists and `TensorShape`s of the same items are the same"),
    ("numbers", "a number and the same number rounded to float32 are the same: releases store hyperparameters either way"),
    ("unsaid", "a key whose value is null is the same as no key, and so is a key with the value that releases without it have: `ragged: false`"),
)
"""What is normalised: a name for the rule, and what it takes to be the same."""

_KEYS: Final = {"batch_input_shape": "batch_shape", "lr": "learning_rate", "optimizer": "inner_optimizer"}
_CLASSES: Final = {
    "OrthogonalInitializer": "Orthogonal",
    "IdentityInitializer": "Identity",
    "BatchNormalizationV1": "BatchNormalization",
    "BatchNormalizationV2": "BatchNormalization",
    "LossScaleOptimizerV1": "LossScaleOptimizer",
    "LossScaleOptimizerV3": "LossScaleOptimizer",
}
_SEQUENCES: Final = frozenset({"__tuple__", "TensorShape", "__list__"})
_FUNCTION: Final = "function"
_POLICIES: Final = frozenset({"Policy", "PolicyV1", "DTypePolicy", "FloatDTypePolicy", "QuantizedDTypePolicy", "QuantizedFloat8DTypePolicy"})
_OWN_MODULES: Final = ("keras", "tf_keras", "tensorflow.python.keras", "builtins")
_WRAPPER: Final = frozenset({"module", "class_name", "config", "registered_name", "build_config", "shared_object_id", "name", "compile_config"})
_DROPPED: Final = frozenset({"shared_object_id", "build_config"})
_LAYER_KEYS: Final = frozenset({"layer", "backward_layer", "cell", "cells"})

UNSAID: Final[Mapping[str, frozenset[str]]] = {
    key: frozenset(values)
    for key, values in {
        "ragged": ("false",),
        "sparse": ("false",),
        "optional": ("false",),
        "synchronized": ("false",),
        "renorm": ("false",),
        "groups": ("1",),
        "rms_scaling": ("false",),
        "zero_output_for_mask": ("false",),
        "keepdims": ("false",),
        "autocast": ("true",),
        "time_major": ("false",),
    }.items()
}
"""Key to the values, as JSON, that stand for the key's absence: what a release without the argument does."""


def normal(value: Json) -> Json:
    """Return a value in the one spelling that stands for all that mean the same."""
    match value:
        case float() if math.isfinite(value):
            return _single(value)
        case list():
            return [normal(item) for item in value if not is_layer(item)]
        case dict():
            return _object(value)
    return value


def keys(config: Mapping[str, Json]) -> dict[str, tuple[str, Json, Json]]:
    """Return the keys of a config in the one spelling, each with the key and the value as they are spelled, and the normal value; layers are left out."""
    found = {}
    for key, value in config.items():
        if key not in _DROPPED and not (key == LAYERS and isinstance(value, list)) and not is_layer(value, slot=key in _LAYER_KEYS):
            found[_KEYS.get(key, key)] = (key, value, normal(value))
    return found


def is_unsaid(key: str, value: Json) -> bool:
    """Return whether a key with this normal value says no more than its absence."""
    return value is None or json.dumps(value) in UNSAID.get(key, ())


def is_layer(value: Json, *, slot: bool = False) -> bool:
    """Return whether a value is a serialised layer, or a list of them: layers are compared as layers."""
    if isinstance(value, list):
        return slot and bool(value) and all(is_layer(item, slot=True) for item in value)
    if not isinstance(value, dict) or not isinstance(value.get("class_name"), str):
        return False
    config = value.get("config")
    return slot or (isinstance(config, dict) and {"name", "trainable"} <= config.keys())


def same(one: Json, other: Json) -> bool:
    """Return whether two normal values are the same; booleans are no numbers."""
    return _frozen(one) == _frozen(other)


def _frozen(value: Json) -> Any:  # noqa: ANN401  # nested tuples
    match value:
        case dict():
            return ("object", frozenset((key, _frozen(item)) for key, item in value.items() if not is_unsaid(key, item)))
        case list():
            return ("list", tuple(_frozen(item) for item in value))
        case bool():
            return ("bool", value)
        case float() if math.isnan(value):
            return ("number", "nan")
        case int() | float():
            return ("number", _single(value))
    return value


def _single(number: float) -> float:
    """Return a number rounded to float32, and one that float32 cannot hold as it is."""
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        return number
    return rounded if rounded or not number else number


def _object(value: dict[str, Json]) -> Json:
    class_name = value.get("class_name")
    if not isinstance(class_name, str):
        return {_KEYS.get(key, key): normal(item) for key, item in value.items() if key not in _DROPPED and not is_layer(item, slot=key in _LAYER_KEYS)}
    config = value.get("config")
    items = value.get("items")
    if class_name in _SEQUENCES and isinstance(items, list):
        return [normal(item) for item in items]
    if class_name in _POLICIES and (name := _policy_name(value)) is not None:
        return name
    if class_name == _FUNCTION and isinstance(config, str):
        return config
    module, registered = value.get("module"), value.get("registered_name")
    is_own = ">" not in class_name and (not isinstance(module, str) or module.split(".")[0] in {own.split(".")[0] for own in _OWN_MODULES})
    named = _CLASSES.get(class_name.rpartition(">")[2], class_name.rpartition(">")[2])
    inner = normal(config) if config is not None else None
    said = {key: item for key, item in inner.items() if not is_unsaid(key, item)} if isinstance(inner, dict) else inner
    rest: dict[str, Json] = {key: normal(item) for key, item in value.items() if key not in _WRAPPER}
    if is_own:
        return {"class_name": named, "config": said, **rest} if said or rest else named
    package = registered if isinstance(registered, str) else class_name
    return {"class_name": named, "registered_name": package, "config": said, **rest}


def _policy_name(value: dict[str, Json]) -> str | None:
    """Return the name of a policy without a loss scale; None for one that says more than its name."""
    config = value.get("config")
    if isinstance(config, dict) and "loss_scale" in config:
        return None
    for generation in reversed(GENERATIONS):
        try:
            return generations.parse(value, generation).name
        except SpellingError:
            continue
    return None


def class_of(name: str | None) -> str | None:
    """Return a class by the name that it has today."""
    return _CLASSES.get(name, name) if name is not None else None
