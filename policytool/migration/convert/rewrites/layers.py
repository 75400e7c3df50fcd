"""
Classes, arguments and initializers that the two libraries write differently or TensorFlow.js lacks,
and layers whose converted forms were measured.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from msgspec import structs

from policytool.migration.convert.architecture import (
    BACKWARD,
    ObjectKind,
    SerializedObject,
    Unit,
    function_name,
    map_units,
    walk,
)
from policytool.migration.convert.masks import rule_of
from policytool.migration.convert.masks.flow import has_masks
from policytool.migration.convert.rewrites._base import ConversionContext, layer_rewrite, rewrite
from policytool.migration.convert.rewrites.shapes import CONV_LSTMS
from policytool.migration.convert.tensor_facts import compute_dtype, network_dtypes
from policytool.model.calls import Reference, tensors
from policytool.releases import behaviour, known_arguments, tfjs_layers
from policytool.releases.dtypes import HALVES
from policytool.releases.generations import SubPolicy
from policytool.releases.layer_classes import layer_facts
from policytool.releases.policy import Policy
from policytool.releases.releases import TFJS

if TYPE_CHECKING:
    from policytool.migration.convert.architecture import Value
    from policytool.migration.convert.target import Target

_SPECTRAL: Final = "SpectralNormalization"
_EMBEDDING: Final = "Embedding"
"""The class whose result Keras 3 casts to the dtype of its input: to integers if IDs are given."""


@rewrite(
    applies=lambda context: context.crosses and not context.to_keras3,
)
def spectral(root: Unit, context: ConversionContext) -> Unit:
    """
    Replaces SpectralNormalization with its inner layer, because the Keras 2 releases that write
    this wrapper cannot load it.

    In prediction the wrapper only calls its layer, so the layer can replace it. TF 2.15 and
    tf_keras 2.21 write the wrapper, but do not know its name when they read it (``deserialize`` in
    keras/layers/serialization.py).
    """
    is_masked = has_masks(root)

    def change(unit: Unit) -> Unit:
        """Replace one SpectralNormalization with its inner layer, if both predict the same."""
        inner = unit.config.get("layer")
        if unit.class_name != _SPECTRAL or unit.custom or not isinstance(inner, Unit):
            return unit
        if not _equals_inner_layer(unit, inner, context.source_release, is_masked=is_masked):
            return unit  # a later step refuses it as a class that the target does not load
        context.log.caution(
            "spectral-normalization",
            unit,
            f"{unit.path} ({_SPECTRAL}) is replaced with its inner layer ({inner.class_name}) "
            f"because {context.target.name} cannot load the wrapper. Predictions are unchanged, "
            "but training no longer normalizes the weights of this layer",
        )
        return replace(inner, name=unit.name, path=unit.path, calls=unit.calls)

    return map_units(root, change)


def _equals_inner_layer(unit: Unit, inner: Unit, release: str, *, is_masked: bool) -> bool:
    """Return whether a layer has the same outputs and the same mask as the wrapper around it."""
    return (
        not inner.custom
        and inner.class_name != _EMBEDDING
        and compute_dtype(inner) == compute_dtype(unit)
        and not (is_masked and rule_of(unit, {}, 1, release) != rule_of(inner, {}, 1, release))
    )


@layer_rewrite(
    after=("keras1",),  # supports only classes of Keras 2
    applies=lambda context: context.crosses,
)
def renames(unit: Unit, context: ConversionContext) -> Unit:
    """
    Converts keys and classes that have different names but the same meaning.
    """
    facts = layer_facts(unit.class_name)
    for keras2, keras3 in facts.renamed_arguments.items():
        before, after = (keras2, keras3) if context.to_keras3 else (keras3, keras2)
        if before in unit.config:
            context.log.change("key-renamed", unit, f"{before} becomes {after}")
            unit = unit.with_key_renamed(before, after)
    if not context.to_keras3:
        return _without_unrolling(unit, context)
    unused = [key for key in facts.unused_arguments if key in unit.config]
    if unused:
        context.log.change(
            "key-dropped",
            unit,
            f"{unit.class_name} is written without {', '.join(unused)}, which has no effect",
        )
        unit = unit.without(*unused)
    if unit.class_name == "ThresholdedReLU":
        return _thresholded_relu(unit, context)
    if facts.predicts_as is not None:
        arguments = "".join(f" with {key}={value}" for key, value in facts.predicts_with.items())
        text = f"{unit.class_name} becomes the equivalent {facts.predicts_as}{arguments}"
        context.log.change("class-renamed", unit, text)
        return replace(unit.with_config(**facts.predicts_with), class_name=facts.predicts_as)
    return unit


def _without_unrolling(unit: Unit, context: ConversionContext) -> Unit:
    """Return a ConvLSTM without unrolling, which Keras 2 does not support."""
    if unit.class_name not in CONV_LSTMS or unit.config.get("unroll") is not True:
        return unit
    context.log.change("key-dropped", unit, "unroll becomes false: it has no effect on predictions")
    return unit.with_config(unroll=False)


def _thresholded_relu(unit: Unit, context: ConversionContext) -> Unit:
    """
    Return a ThresholdedReLU as a ReLU: x if x is greater than theta, otherwise 0
    (keras/layers/activation/thresholded_relu.py).
    """
    theta: Value = unit.config.get("theta", 1.0)
    context.log.change(
        "class-renamed",
        unit,
        "ThresholdedReLU becomes the equivalent ReLU with a threshold",
    )
    return replace(
        unit.without("theta").with_config(max_value=None, negative_slope=0.0, threshold=theta),
        class_name="ReLU",
    )


@layer_rewrite(
    applies=lambda context: context.to_keras3,
)
def normalization(unit: Unit, context: ConversionContext) -> Unit:
    """
    Converts the axis of BatchNormalization layers: Keras 2.3 and Keras 3 store a number; TF 1.15
    and later and tf_keras store a list, which may contain several axes. With virtual batches,
    Keras 2 stores the axis after the dimension that it adds, and fails to load its own file.
    """
    if not layer_facts(unit.class_name).keeps_moving_statistics:
        return unit
    if unit.config.get("virtual_batch_size") is not None:
        text = f"{unit.path} ({unit.class_name}) has virtual_batch_size"
        context.log.refuse(
            "argument", unit, f"{text}, which {context.target.name} does not support"
        )
    axis = unit.config.get("axis")
    if not isinstance(axis, list):
        return unit
    if len(axis) == 1:
        context.log.change("axis", unit, "axis becomes a number instead of a list with one element")
        return unit.with_config(axis=axis[0])
    context.log.refuse(
        "argument",
        unit,
        f"{unit.path} ({unit.class_name}) has axis {axis}, but "
        f"{context.target.name} normalizes along only one axis",
    )
    return unit


_OTHER_NAMES: Final = {
    "Orthogonal": "OrthogonalInitializer",
    "OrthogonalInitializer": "Orthogonal",
    "Identity": "IdentityInitializer",
    "IdentityInitializer": "Identity",
}


@rewrite(
    after=("keras1", "keras2"),  # checks the initializers that these create
    applies=lambda context: True,  # noqa: ARG005  # releases of Keras 3 differ too
)
def initializers(root: Unit, context: ConversionContext) -> Unit:
    """
    Converts initializers whose names differ: Keras 3.0 to 3.6 use the names OrthogonalInitializer
    and IdentityInitializer for Orthogonal and Identity.
    """

    def change(unit: Unit) -> Unit:
        if unit.custom:
            return unit
        return replace(
            unit,
            config={
                key: _renamed_initializer(value, context.target)
                for key, value in unit.config.items()
            },
        )

    return map_units(root, change)


def _renamed_initializer(value: Value, target: Target) -> Value:
    """Return an initializer with its name in the target; other values are unchanged."""
    if (
        not isinstance(value, SerializedObject)
        or value.kind is not ObjectKind.INITIALIZER
        or value.registered_name is not None
    ):
        return value
    other = _OTHER_NAMES.get(value.class_name)
    if (
        other is None
        or not _lacks_initializer(value.class_name, target)
        or _lacks_initializer(other, target)
    ):
        return value
    return structs.replace(value, class_name=other)


def _lacks_initializer(class_name: str, target: Target) -> bool:
    is_known = known_arguments.is_known(ObjectKind.INITIALIZER, class_name)
    return not is_known or target.lacks(
        ObjectKind.INITIALIZER, class_name, module=target.writes_modules
    )


_ATTENTION: Final = "MultiHeadAttention"
_ATTENTION_SHAPES: Final = ("query_shape", "key_shape", "value_shape")
_SHAPES_SINCE: Final = "tf2.5"
_CAUSAL: Final = "use_causal_mask"
_CAUSAL_SINCE: Final = "tf2.10"
"""The first release with the argument (keras/layers/attention/multi_head_attention.py)."""


@layer_rewrite(
    after=("policies",),  # expects that each layer has a single policy
    applies=lambda context: True,  # noqa: ARG005  # releases of Keras 2 differ too
)
def attention(unit: Unit, context: ConversionContext) -> Unit:
    """
    Converts the input shapes that Keras 2 stores for MultiHeadAttention layers
    (``_build_from_signature`` in keras/layers/attention/multi_head_attention.py).

    TF 2.5 to tf_keras 2.21 require the keys in a config, and build the layer from them, or at its
    call if they are null. TF 2.4 and Keras 3 do not have these keys; Keras 3 stores the shapes as
    ``shapes_dict`` in ``build_config``.
    """
    if unit.class_name != _ATTENTION:
        return unit
    target = context.target
    if not target.since(_CAUSAL_SINCE) and any(call.kwargs.get(_CAUSAL) for call in unit.calls):
        context.log.refuse(
            "call",
            unit,
            f"{unit.path} ({_ATTENTION}) is called with {_CAUSAL}, which {target.name} does not "
            "support; use attention_mask in the source instead",
        )
    policy = unit.config.get("dtype")
    if (
        isinstance(policy, Policy)
        and policy.name != "float32"
        and _follows_loader(unit, context) != _makes_follow_loader(context)
    ):
        words = ["the global policy", "the policy of the layer"]
        before, after = words if _follows_loader(unit, context) else reversed(words)
        context.log.caution(
            "attention-policy",
            unit,
            f"inner layers of {unit.path} use {before} in the release that wrote the file, but "
            f"{after} in {target.name}",
        )
    if target.is_keras3 or not target.since(_SHAPES_SINCE):
        kept = [key for key in _ATTENTION_SHAPES if key in unit.config]
        if kept:
            context.log.change(
                "key-dropped",
                unit,
                f"{_ATTENTION} is written without {', '.join(kept)}: {target.name} infers shapes "
                "from the call",
            )
        return unit.without(*_ATTENTION_SHAPES)
    if all(key in unit.config for key in _ATTENTION_SHAPES):
        return unit
    shapes: Value = unit.build.get("shapes_dict") if unit.build is not None else None
    known = shapes if isinstance(shapes, dict) else {}
    value: Value = known.get("value_shape")
    shapes_by_key = {
        "query_shape": known.get("query_shape"),
        "value_shape": value,
        "key_shape": known.get("key_shape") or value,
    }
    context.log.change(
        "key-added",
        unit,
        f"{', '.join(_ATTENTION_SHAPES)} of {_ATTENTION} are added because {target.name} requires "
        "them",
    )
    return unit.with_config(
        **(shapes_by_key if all(shapes_by_key.values()) else dict.fromkeys(shapes_by_key))
    )


def _follows_loader(unit: Unit, context: ConversionContext) -> bool:
    """
    Return whether the projections of an attention layer get the global policy when the file is
    loaded unchanged (TF 2.4 to 2.12).
    """
    sites = context.loaded.sites
    below = context.loaded.children[unit.site] if unit.site is not None else ()
    return any(sites[child].sub_policy is SubPolicy.GLOBAL for child in below)


def _makes_follow_loader(context: ConversionContext) -> bool:
    return any(
        sub.policy is SubPolicy.GLOBAL
        for sub in context.target.generation.composites.get(_ATTENTION, ())
    )


_DOUBLE: Final = "float64"

_ROUNDED_ARGUMENTS: Final = {
    "ELU": ("alpha",),
    "LeakyReLU": ("alpha", "negative_slope"),
    "ReLU": ("max_value", "negative_slope", "threshold"),
}
"""
Arguments that Keras 2 rounds to floatx when it loads a model, which is float32 by default
(``cast_to_floatx`` in keras/layers/activation).
"""

_FLOAT32_CONSTANTS: Final = {
    "MultiHeadAttention": "the scale of its scores",
    "Normalization": "its mean and variance",
    "Rescaling": "its scale and offset",
}
"""
Layers with float32 constants under float64: the first two in Keras 3.15 but not in tf_keras 2.21,
and Rescaling, which conversions add before ``hard_sigmoid``, in both.
"""


_NORMALIZATIONS: Final = frozenset({"GroupNormalization", "LayerNormalization"})
"""
Layers that compute in the dtype of their policy in Keras 2, and in the dtype of their input in
Keras 3, or in float32 if the input has 16 bits (``autocast`` is false).
"""

_CASTS_IF_MIXED: Final = "LayerNormalization"
"""
The one of them that casts to float32 in Keras 2 too, if its variables are in float32. For values
around 30000 with a standard deviation of 30, its error under mixed_float16 is one rounding in
TF 2.3, 2.4, 2.9, 2.15, tf_keras 2.21 and Keras 3.15. Under float16 it is 0.9 in Keras 2, as is
that of GroupNormalization under both policies (0.4).
"""


@rewrite(
    applies=lambda context: context.crosses,
)
def measured_differences(root: Unit, context: ConversionContext) -> Unit:
    """
    Reports layers that returned different results after a conversion in our measurements
    (:mod:`policytool.releases.behaviour`).

    In float64 some layers agree only to the precision of float32, because a library converts a
    Python number to a float32 constant before the cast (``ops.cast(number, dtype)`` in Keras 3,
    ``tf.cast`` in Keras 2). In 16 bits some layers agree to a few roundings.
    """
    loaded = context.loaded
    refused = frozenset(context.log.refused_paths)
    for unit in walk(root):
        _note_uncast_inputs(unit, context)
        _note_float64(unit, context)
        _note_halves(unit, context)
        _note_short_vectors(unit, context)
        if unit.site is None or unit.custom or unit.network is not None or unit.path in refused:
            continue
        class_name = loaded.sites[unit.site].class_name or unit.class_name
        reason = behaviour.objection(
            class_name, loaded.config(unit.site), to_keras3=context.to_keras3
        )
        if reason is not None:
            context.log.refuse(
                "behaviour",
                unit,
                f"{unit.path} ({class_name}) is not converted to {context.target.name}: {reason}",
            )
    return root


def _note_float64(unit: Unit, context: ConversionContext) -> None:
    """Log a note for layers that compute in float64 with float32 constants."""
    constant, policy = _FLOAT32_CONSTANTS.get(unit.class_name), unit.config.get("dtype")
    if unit.custom or not isinstance(policy, Policy) or policy.compute_dtype != _DOUBLE:
        return
    is_of_file = unit.class_name == "Rescaling" and unit.site is not None
    lacks_mean = unit.class_name == "Normalization" and unit.config.get("mean") is None
    if constant is not None and not is_of_file and not lacks_mean:
        context.log.note(
            "float32-constant",
            unit,
            f"{unit.path} ({unit.class_name}) computes in float64, but one library uses float32 "
            f"for {constant}; predictions agree to within about 1e-8 of the largest value",
        )
    values = [(key, unit.config.get(key)) for key in _ROUNDED_ARGUMENTS.get(unit.class_name, ())]
    rounded = [key for key, value in values if isinstance(value, float) and not _is_single(value)]
    if rounded and not context.to_keras3:
        context.log.note(
            "float32-constant",
            unit,
            f"{unit.path} ({unit.class_name}) computes in float64, but Keras 2 rounds its "
            f"{' and '.join(rounded)} to float32; predictions agree to within about 1e-8 of the "
            "largest value",
        )


def _note_uncast_inputs(model: Unit, context: ConversionContext) -> None:
    """Log a note for layers that compute in float64 on numbers of another dtype."""
    network = model.network
    if network is None:
        return
    for place, unit in enumerate(network.units):
        if unit.class_name not in _NORMALIZATIONS or compute_dtype(unit) != _DOUBLE or unit.custom:
            continue
        before = network.units[max(place - 1, 0) : place]
        inputs = (
            [Reference(layer=earlier.name) for earlier in before]
            if network.is_chain
            else [tensor for call in unit.calls for tensor in tensors(call.args)]
        )
        if {network_dtypes(network).of(tensor) for tensor in inputs} - {_DOUBLE, None}:
            context.log.note(
                "uncast-input",
                unit,
                f"{unit.path} ({unit.class_name}) computes in float64 in Keras 2 but in float32 "
                "in Keras 3, which does not cast the layer's input; predictions agree to within "
                "about 1e-6 of the largest value",
            )


def _is_single(value: float) -> bool:
    """Return whether float32 represents a number exactly."""
    try:
        return bool(struct.unpack("f", struct.pack("f", value))[0] == value)
    except OverflowError:
        return False


def _note_halves(unit: Unit, context: ConversionContext) -> None:
    """Note a normalization that computes in 16 bits in Keras 2 but in float32 in Keras 3."""
    policy = unit.config.get("dtype")
    if (
        unit.class_name in _NORMALIZATIONS
        and not unit.custom
        and isinstance(policy, Policy)
        and policy.compute_dtype in HALVES
        and not (unit.class_name == _CASTS_IF_MIXED and policy.variable_dtype not in HALVES)
    ):
        context.log.note(
            "normalized-in-half",
            unit,
            f"{unit.path} ({unit.class_name}) computes in {policy.compute_dtype} in Keras 2, but "
            "in float32 in Keras 3.15; results agree to within about ten rounding errors unless "
            "the inputs are large compared with their spread, so compare predictions",
        )


def _note_short_vectors(unit: Unit, context: ConversionContext) -> None:
    """
    Log a note for layers that normalize vectors: in Keras 2 the squared length is at least 1e-12
    (``tf.math.l2_normalize``), in Keras 3 the length is (``normalize`` in numerical_utils.py). In
    float16, both limits are 0, and both return NaN and infinity (TF 2.12 and Keras 3.15).
    """
    policy = unit.config.get("dtype")
    is_half = isinstance(policy, Policy) and policy.compute_dtype == "float16"
    if unit.class_name == "UnitNormalization" and not unit.custom and not is_half:
        context.log.note(
            "short-vectors",
            unit,
            f"{unit.path} (UnitNormalization) scales vectors shorter than 1e-6 to length 1 in "
            "Keras 3, but to a smaller length in Keras 2",
        )


_NAMES_IN_TFJS: Final = {"LecunNormal": "LeCunNormal", "LecunUniform": "LeCunUniform"}
_NAMES_IN_KERAS: Final = {name: keras for keras, name in _NAMES_IN_TFJS.items()}
_L1L2: Final = {"L1": "l1", "L2": "l2"}
"""The argument of L1L2 for each regularizer that TensorFlow.js has only as L1L2."""

_DIRECTION: Final = "go_backwards"


@layer_rewrite(
    applies=lambda context: context.target.is_tfjs,
    after=("directions",),  # this step names the layers of a Bidirectional
)
def tensorflow_js(unit: Unit, context: ConversionContext) -> Unit:
    """
    Replaces what TensorFlow.js does not have: initializers, regularizers and constraints, which no
    prediction depends on, and the name ``silu`` of the activation ``swish``.
    """
    if not tfjs_layers.is_known(unit.class_name):
        context.log.refuse(
            "class",
            unit,
            f"{unit.path} cannot be converted: TensorFlow.js has no layer {unit.class_name}",
        )
        return unit
    # TensorFlow.js fails on arguments that Keras 2 writes but does not use, except ``trainable``
    unread = {*layer_facts(unit.class_name).unused_arguments} - {"trainable"}
    unread |= {BACKWARD} if _has_plain_twin(unit) else set()
    config = {key: value for key, value in unit.config.items() if key not in unread}
    for key, value in tuple(config.items()):
        new_value = _as_in_tfjs(value)
        if new_value is not value:
            config[key] = new_value
            context.log.change(
                "object",
                unit,
                f"{key} changes because {context.target.name} does not support it; predictions "
                "are unchanged",
            )
    return replace(unit, config=config)


@layer_rewrite(
    applies=lambda context: context.loaded.document.format == TFJS and not context.target.is_tfjs,
)
def from_tensorflow_js(unit: Unit, context: ConversionContext) -> Unit:
    """
    Gives initializers of TensorFlow.js the names that Keras has for them.
    """
    config = {
        key: structs.replace(value, class_name=_NAMES_IN_KERAS[value.class_name])
        if isinstance(value, SerializedObject) and value.class_name in _NAMES_IN_KERAS
        else value
        for key, value in unit.config.items()
    }
    if config == unit.config:
        return unit
    context.log.change("object", unit, "initializers get the names that Keras has for them")
    return replace(unit, config=config)


def _has_plain_twin(unit: Unit) -> bool:
    """
    Return whether the backward layer of a Bidirectional equals the layer that TensorFlow.js creates
    from the forward layer, because TensorFlow.js does not read the backward layer.
    """
    forward, backward = unit.config.get("layer"), unit.config.get(BACKWARD)
    if not isinstance(forward, Unit) or not isinstance(backward, Unit):
        return False
    forward_arguments, backward_arguments = _arguments(forward), _arguments(backward)
    is_turned = forward_arguments.pop(_DIRECTION, False) is not backward_arguments.pop(
        _DIRECTION, False
    )
    return (
        forward.class_name == backward.class_name
        and is_turned
        and forward_arguments == backward_arguments
    )


def _arguments(unit: Unit) -> dict[str, Value]:
    """Return the arguments that affect the results of a layer: its config without initializers."""
    return {
        key: value
        for key, value in unit.config.items()
        if not isinstance(value, SerializedObject) or value.kind is ObjectKind.FUNCTION
    }


def _as_in_tfjs(value: Value) -> Value:
    """Return a value of a config in the form that TensorFlow.js reads."""
    if not isinstance(value, SerializedObject) or tfjs_layers.is_known(value.class_name):
        return "swish" if function_name(value) == "silu" else value
    match value.kind:
        case ObjectKind.INITIALIZER:
            name = _NAMES_IN_TFJS.get(value.class_name, "Zeros")
            return structs.replace(value, class_name=name, config={})
        case ObjectKind.REGULARIZER if value.class_name in _L1L2:
            key = _L1L2[value.class_name]
            factor = value.config.get(key, 0.01) if isinstance(value.config, dict) else 0.01
            config: dict[str, Value] = {"l1": 0.0, "l2": 0.0, key: factor}
            return structs.replace(value, class_name="L1L2", config=config)
        case ObjectKind.REGULARIZER | ObjectKind.CONSTRAINT:
            return None
    return "swish" if function_name(value) == "silu" else value
