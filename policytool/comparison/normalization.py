"""
Normalizes configs, so that values with the same meaning are equal although releases write them in
different formats.

:data:`RULES` lists the rules, with the text of ``docs/how-to/diff.md``. Objects of custom classes
keep their package and module, because these distinguish classes with the same name.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any, Final

from policytool.model.tree import INPUT_CLASS, LAYERS
from policytool.releases import generations, keras_objects
from policytool.releases.generations import GENERATIONS
from policytool.releases.layer_classes import layer_facts
from policytool.support.errors import SpellingError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.support.text.jsontext import Json

RULES: Final = (
    (
        "keys",
        (
            "`batch_input_shape` (Keras 1 and 2) equals `batch_shape` (Keras 3), the optimizer "
            "key `lr` equals `learning_rate`, and the LeakyReLU key `alpha` equals "
            "`negative_slope`"
        ),
    ),
    (
        "wrappers",
        (
            "a built-in Keras object is identified by its class and its config: `module`, "
            "`registered_name`, `build_config` and `shared_object_id` are ignored"
        ),
    ),
    (
        "names",
        (
            "an object without a config, or a serialized function, equals its bare name: "
            "`{class_name: function, config: relu}` equals `relu`"
        ),
    ),
    (
        "classes",
        (
            "a renamed class equals its new name: a functional `Model` is `Functional`, "
            "`OrthogonalInitializer` is `Orthogonal`, and `BatchNormalizationV2` is "
            "`BatchNormalization`"
        ),
    ),
    (
        "initializers",
        (
            "Glorot, He and Lecun initializers equal the corresponding `VarianceScaling` "
            "initializers that standalone Keras wrote; a missing `dtype` equals float32"
        ),
    ),
    ("policies", "a policy in any format equals its bare name, unless it has a loss scale"),
    (
        "sequences",
        (
            "tuples, lists and `TensorShape`s with the same items are equal, and an `axis` "
            "equals a list that contains only that axis"
        ),
    ),
    (
        "axes",
        (
            "an `axis` counted from the end equals the same axis counted from the start, if the "
            "number of dimensions is known from the preceding layers"
        ),
    ),
    (
        "numbers",
        (
            "a number equals the same number rounded to float32, because some releases store "
            "rounded hyperparameters"
        ),
    ),
    (
        "defaults",
        (
            "a missing key equals null, and the value that releases use if they do not have "
            "the key, such as `ragged: false`"
        ),
    ),
    (
        "derived",
        (
            "a key that only one file contains is ignored if its value can be derived from the "
            "rest of the model, such as `build_input_shape` or the `query_shape` of an attention "
            "layer"
        ),
    ),
    (
        "directions",
        (
            "in a Bidirectional layer, `go_backwards` of the backward layer and "
            "`zero_output_for_mask` of both layers are ignored, because some releases write the "
            "arguments of the original layer instead of those of the built layers"
        ),
    ),
    (
        "order",
        (
            "the order in which a functional model lists its layers is ignored if each layer "
            "has the same inputs"
        ),
    ),
    ("cells", "the number in the name of an RNN cell is ignored if the RNN creates the cell"),
)
"""The rules of normalization, each with its name and description."""

_KEYS: Final = {"batch_input_shape": "batch_shape", "lr": "learning_rate"}
_INITIALIZERS: Final = {"OrthogonalInitializer": "Orthogonal", "IdentityInitializer": "Identity"}
_SCALINGS: Final = {
    (1.0, "fan_avg", "uniform"): "GlorotUniform",
    (1.0, "fan_avg", "normal"): "GlorotNormal",
    (1.0, "fan_avg", "truncated_normal"): "GlorotNormal",
    (2.0, "fan_in", "uniform"): "HeUniform",
    (2.0, "fan_in", "normal"): "HeNormal",
    (2.0, "fan_in", "truncated_normal"): "HeNormal",
    (1.0, "fan_in", "uniform"): "LecunUniform",
    (1.0, "fan_in", "normal"): "LecunNormal",
    (1.0, "fan_in", "truncated_normal"): "LecunNormal",
}
"""The specific class in Keras for the scale, mode and distribution of a VarianceScaling."""

_SEQUENCES: Final = frozenset({"__tuple__", "TensorShape", "__list__"})

_POLICIES: Final = frozenset(
    {
        "Policy",
        "PolicyV1",
        "DTypePolicy",
        "FloatDTypePolicy",
        "QuantizedDTypePolicy",
        "QuantizedFloat8DTypePolicy",
    }
)
_OWN_MODULES: Final = ("keras", "tf_keras", "tensorflow.python.keras", "builtins")
_WRAPPER: Final = frozenset(
    {*keras_objects.KEYS, "build_config", keras_objects.SHARED_ID, "name", "compile_config"}
)
_DROPPED: Final = frozenset({keras_objects.SHARED_ID, "build_config"})
_LAYER_KEYS: Final = frozenset({"layer", "backward_layer", "cell", "cells"})

UNSAID: Final[Mapping[str, tuple[Json, ...]]] = {
    **dict.fromkeys(
        (
            "ragged",
            "sparse",
            "optional",
            "synchronized",
            "renorm",
            "rms_scaling",
            "keepdims",
            "time_major",
            "use_gate",
        ),
        (False,),
    ),
    **dict.fromkeys(
        (
            "softmax_robust_masking",
            "invert",
            "pad_to_max_tokens",
            "use_ema",
            "zero_output_for_mask",
        ),
        (False,),
    ),
    **dict.fromkeys(("jit_compile", "is_legacy_optimizer"), (False, True)),
    "trainable": (True,),
    "autocast": (True,),
    "groups": (1,),
    "offset": (0.0,),
    "decay": (0.0,),
    "ema_momentum": (0.99,),
    "renorm_momentum": (0.99,),
    "encoding": ("utf-8",),
    "oov_method": ("floormod",),
    "output_mode": ("int",),
}
"""
The values of each key that have the same meaning as a missing key, because releases without the
argument behave as with this value.
"""

DERIVED: Final = frozenset(
    {
        "build_input_shape",
        "query_shape",
        "key_shape",
        "value_shape",
        "vocabulary_size",
        "quantization_config",
        "implementation",
        "has_input_vocabulary",
    }
)
"""
Keys that may be missing in one file, because they can be derived from the rest of the model or do
not affect results.
"""


def normalized_value(value: Json) -> Json:
    """Return the normal form of a value, which all values with the same meaning have."""
    match value:
        case float() if math.isfinite(value):
            return _single(value)
        case list():
            return [normalized_value(item) for item in value if not is_layer(item)]
        case dict():
            return _object(value)
    return value


def normal_entries(
    config: Mapping[str, Json], class_name: str | None = None
) -> dict[str, tuple[str, Json, Json]]:
    """
    Return the entries of a config by normalized key: the original key, the original value, and the
    normalized value of each. Layers are left out.
    """
    renamed = {**_KEYS, **layer_facts(class_name or "").renamed_arguments}
    normalized = {}
    for key, value in config.items():
        if (
            key not in _DROPPED
            and not (key == LAYERS and isinstance(value, list))
            and not is_layer(value, slot=key in _LAYER_KEYS)
        ):
            normalized[renamed.get(key, key)] = (
                key,
                value,
                _axis(normalized_value(value)) if key == "axis" else normalized_value(value),
            )
    return normalized


def is_derived(key: str, class_name: str | None) -> bool:
    """
    Return whether the value of a key that only one file has can be derived from the rest of the
    model.
    """
    return key in DERIVED or (
        key == "batch_shape" and class_name != INPUT_CLASS
    )  # in the first layer of a Sequential


def is_default(key: str, value: Json) -> bool:
    """Return whether this normalized value of a key has the same meaning as a missing key."""
    return value is None or any(is_same_value(value, default) for default in UNSAID.get(key, ()))


def is_layer(value: Json, *, slot: bool = False) -> bool:
    """
    Return whether a value is a serialized layer or a list of layers, which are compared separately.

    :param slot: whether the value is in a key for layers; otherwise, a layer has a name
    """
    if isinstance(value, list):
        return slot and bool(value) and all(is_layer(item, slot=True) for item in value)
    serialized = keras_objects.read(value)
    if serialized is None:
        return False
    return slot or {"name", "trainable"} <= serialized.arguments.keys()


def is_same_value(value: Json, other: Json) -> bool:
    """Return whether two normalized values are equal; a bool never equals a number."""
    return bool(_freeze(value) == _freeze(other))


def _freeze(value: Json) -> Any:  # noqa: ANN401  # nested tuples
    """
    Return a hashable form of a value. Entries with default values are left out, and bools and
    numbers stay different although Python treats them as equal.
    """
    match value:
        case dict():
            return (
                "object",
                frozenset(
                    (key, _freeze(item)) for key, item in value.items() if not is_default(key, item)
                ),
            )
        case list():
            return ("list", tuple(_freeze(item) for item in value))
        case bool():
            return ("bool", value)
        case float() if math.isnan(value):
            return ("number", "nan")
        case int() | float():
            return ("number", _single(value))
    return value


def _single(number: float) -> float:
    """Return a number rounded to float32, or unchanged if float32 cannot represent it."""
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", number))[0]
    except (OverflowError, struct.error):  # struct.error if an integer is too large for float64
        return number
    return rounded if rounded or not number else number


def _object(value: dict[str, Json]) -> Json:
    """
    Return the normal form of a serialized object: without its wrapper, default values and layers.
    """
    serialized = keras_objects.read(value)
    if serialized is None:
        return {
            _KEYS.get(key, key): normalized_value(item)
            for key, item in value.items()
            if key not in _DROPPED and not is_layer(item, slot=key in _LAYER_KEYS)
        }
    class_name, config, items = serialized.class_name, serialized.config, value.get("items")
    if class_name in _SEQUENCES and isinstance(items, list):
        return [normalized_value(item) for item in items]
    if class_name in _POLICIES and (name := _policy_name(value)) is not None:
        return name
    if serialized.function is not None:
        return serialized.function
    is_own = ">" not in class_name and (
        serialized.module is None
        or serialized.module.split(".")[0] in {module.split(".")[0] for module in _OWN_MODULES}
    )
    named = _present_name(serialized.own_class)
    inner = normalized_value(config) if config is not None else None
    explicit_config = (
        {key: item for key, item in inner.items() if not is_default(key, item)}
        if isinstance(inner, dict)
        else inner
    )
    named, explicit_config = _initialiser(named, explicit_config)
    other_entries: dict[str, Json] = {
        key: normalized_value(item) for key, item in value.items() if key not in _WRAPPER
    }
    if is_own:
        return (
            {**keras_objects.short(named, explicit_config), **other_entries}
            if explicit_config or other_entries
            else named
        )
    package = serialized.registered_name or class_name
    return {
        **keras_objects.short(named, explicit_config),
        "registered_name": package,
        **other_entries,
    }


def _axis(value: Json) -> Json:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _initialiser(class_name: str, config: Json) -> tuple[str, Json]:
    """
    Return the class and config of an initializer under its specific Keras name, without a dtype of
    float32.
    """
    if not isinstance(config, dict):
        return class_name, config
    other_entries: dict[str, Json] = {
        key: item for key, item in config.items() if (key, item) != ("dtype", "float32")
    }
    if class_name != "VarianceScaling":
        return class_name, other_entries
    scaling = tuple(other_entries.get(key) for key in ("scale", "mode", "distribution"))
    name = next((name for known, name in _SCALINGS.items() if known == scaling), None)
    return (
        (
            name,
            {
                key: item
                for key, item in other_entries.items()
                if key not in {"scale", "mode", "distribution"}
            },
        )
        if name
        else (class_name, other_entries)
    )


def _policy_name(value: dict[str, Json]) -> str | None:
    """
    Return the name of a policy; None if the policy has a loss scale, or no release supports it.
    """
    if "loss_scale" in keras_objects.arguments_of(value):
        return None
    for generation in reversed(GENERATIONS):
        try:
            return generations.parse(value, generation).name
        except SpellingError:
            continue
    return None


def class_of(name: str | None) -> str | None:
    """Return the current name of a class, which may have been renamed."""
    return _present_name(name) if name is not None else None


def _present_name(class_name: str) -> str:
    return layer_facts(class_name).later_name or _INITIALIZERS.get(class_name, class_name)
