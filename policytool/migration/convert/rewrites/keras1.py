"""
Models of Keras 1.

The names of classes, keys and values in Keras 1 are from the sources of Keras 1.0 to 1.2 (each
layer's ``get_config``). Keras 2.0 to 2.3 rename the arguments of calls in the same way
(keras/legacy/interfaces.py); this module renames configs. These releases also rearrange variables
like this module when they load a file of Keras 1 (``preprocess_weights_for_loading`` in
keras/engine/topology.py and keras/engine/saving.py); TF 1.13 and later and Keras 3 do not. Theano
computes convolutions, TensorFlow cross-correlations: kernels of Theano are reversed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import (
    ObjectKind,
    Recipe,
    SerializedObject,
    Unit,
    map_layers,
)
from policytool.migration.convert.rewrites._base import ConversionContext, layer_rewrite, rewrite
from policytool.migration.convert.target import display_value
from policytool.model.tree import INPUT_CLASS
from policytool.releases import generations

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.migration.convert.architecture import Value


CLASSES: Final = {
    "AtrousConvolution1D": "Conv1D",
    "AtrousConvolution2D": "Conv2D",
    "Convolution1D": "Conv1D",
    "Convolution2D": "Conv2D",
    "Convolution3D": "Conv3D",
    "Deconvolution2D": "Conv2DTranspose",
    "SeparableConvolution2D": "SeparableConv2D",
    "TimeDistributedDense": "Dense",
}
"""
Renamed classes; a ``Dense`` of Keras 2 works on the last axis, like TimeDistributedDense.
"""

GONE: Final = frozenset({"Highway", "MaxoutDense", "ParametricSoftplus", "SReLU"})
"""Classes that no later release has."""

_WEIGHTED: Final = {
    "W_regularizer": "kernel_regularizer",
    "b_regularizer": "bias_regularizer",
    "U_regularizer": "recurrent_regularizer",
    "W_constraint": "kernel_constraint",
    "b_constraint": "bias_constraint",
    "init": "kernel_initializer",
    "inner_init": "recurrent_initializer",
    "bias": "use_bias",
}
KEYS: Final = {
    **_WEIGHTED,
    "output_dim": "units",
    "inner_activation": "recurrent_activation",
    "dropout_W": "dropout",
    "dropout_U": "recurrent_dropout",
    "nb_filter": "filters",
    "filter_length": "kernel_size",
    "subsample": "strides",
    "subsample_length": "strides",
    "border_mode": "padding",
    "dim_ordering": "data_format",
    "atrous_rate": "dilation_rate",
    "pool_length": "pool_size",
    "stride": "strides",
    "p": "rate",
    "sigma": "stddev",
}
"""Renamed keys of all classes except those in :data:`OWN_KEYS`."""

OWN_KEYS: Final = {
    "Embedding": {
        "output_dim": "output_dim",
        "init": "embeddings_initializer",
        "W_regularizer": "embeddings_regularizer",
        "W_constraint": "embeddings_constraint",
    },
    "PReLU": {"init": "alpha_initializer"},
    "BatchNormalization": {"beta_init": "beta_initializer", "gamma_init": "gamma_initializer"},
    "UpSampling1D": {"length": "size"},
}

KERNEL_SIZES: Final = (("nb_row", "nb_col"), ("kernel_dim1", "kernel_dim2", "kernel_dim3"))
"""Keys that together become ``kernel_size``."""

SAID_ELSEWHERE: Final = frozenset(
    {
        "input_dim",
        "input_length",
        "input_dtype",
        "consume_less",
        "mode",
        "forget_bias_init",
        "weights",
    }
)
"""
Keys that do not affect predictions or that are stored elsewhere: shapes in ``batch_input_shape``,
and weights in the file.
"""

UNUSED: Final = frozenset({("Embedding", "dropout"), ("SeparableConvolution2D", "init")})
"""
Keys of single classes that do not affect predictions: in later releases, each kernel of a separable
convolution has its own initializer.
"""

DATA_FORMATS: Final = {"tf": "channels_last", "th": "channels_first"}

MERGES: Final = {
    "sum": "Add",
    "mul": "Multiply",
    "concat": "Concatenate",
    "ave": "Average",
    "max": "Maximum",
    "dot": "Dot",
}
"""
The layer that replaces ``Merge``, by its mode.

``cos`` has no replacement: its result has one more axis than that of a normalized ``Dot``.
"""

INITIALIZERS: Final[dict[str, tuple[str, dict[str, Value]]]] = {
    "uniform": ("RandomUniform", {"minval": -0.05, "maxval": 0.05, "seed": None}),
    "normal": ("RandomNormal", {"mean": 0.0, "stddev": 0.05, "seed": None}),
    "zero": ("Zeros", {}),
    "one": ("Ones", {}),
    "identity": ("Identity", {"gain": 1.0}),
    "orthogonal": ("Orthogonal", {"gain": 1.1, "seed": None}),
    "lecun_uniform": (
        "VarianceScaling",
        {"scale": 1.0, "mode": "fan_in", "distribution": "uniform", "seed": None},
    ),
    "glorot_uniform": (
        "VarianceScaling",
        {"scale": 1.0, "mode": "fan_avg", "distribution": "uniform", "seed": None},
    ),
    "glorot_normal": (
        "VarianceScaling",
        {"scale": 1.0, "mode": "fan_avg", "distribution": "untruncated_normal", "seed": None},
    ),
    "he_uniform": (
        "VarianceScaling",
        {"scale": 2.0, "mode": "fan_in", "distribution": "uniform", "seed": None},
    ),
    "he_normal": (
        "VarianceScaling",
        {"scale": 2.0, "mode": "fan_in", "distribution": "untruncated_normal", "seed": None},
    ),
}
"""
The Keras 2 initializers for those of Keras 1 (keras/initializations.py), by name; they affect only
models that are initialized again.
"""


_DENSE: Final = {"kernel": "W", "bias": "b"}
_PLAIN: Final = {
    "Dense": _DENSE,
    "TimeDistributedDense": _DENSE,
    "LocallyConnected1D": _DENSE,
    "LocallyConnected2D": _DENSE,
    "SimpleRNN": {"kernel": "W", "recurrent_kernel": "U", "bias": "b"},
    "Embedding": {"embeddings": "W"},
    "PReLU": {"alpha": "alphas"},
    "BatchNormalization": {
        "gamma": "gamma",
        "beta": "beta",
        "moving_mean": "running_mean",
        "moving_variance": "running_std",
    },
}
"""
The new names of the variables of each class. ``running_std`` is a variance: Keras 1 divides by its
square root (keras/layers/normalization.py).
"""

_GATES: Final = {"LSTM": "ifco", "GRU": "zrh", "ConvLSTM2D": "ifco"}
"""The gates of each class, in the order in which Keras 2 joins them."""

_KERNEL_NAMES: Final = ("_W", "_W_i", "_W_z")
"""The ends of the names of a kernel, and of that of the first gate of each class."""

_CONVOLUTIONS: Final = {"Convolution2D": 2, "AtrousConvolution2D": 2, "Convolution3D": 3}
_CONVOLUTIONS_OF: Final = {
    "Conv1D": "Convolution1D",
    "Conv2D": "Convolution2D",
    "Conv3D": "Convolution3D",
}
"""The class of Keras 1 for each convolution of later releases whose layout its shapes show."""

_FIRST: Final = {2: (2, 3, 1, 0), 3: (2, 3, 4, 1, 0)}
"""Axes that transpose (filters, channels, *size) to (*size, channels, filters)."""


def weight_layout(
    class_name: str,
    config: Mapping[str, Value],
    shapes: Mapping[str, tuple[int, ...]],
    *,
    reverses: bool,
) -> dict[str, Recipe]:
    """
    Return the recipes that create a layer's variables from those in a Keras 1 file; empty for a
    layer without variables.

    :param config: the config in the format of Keras 1
    :param shapes: the shapes of the stored variables of the layer, by name
    :param reverses: whether the backend that wrote the file computes convolutions, as Theano does
    """
    channels_first = config.get("dim_ordering") == "th"
    if class_name in _PLAIN:
        return {new: Recipe(parts=(old,)) for new, old in _PLAIN[class_name].items()}
    if class_name in _GATES:
        return _recurrent(class_name, shapes, channels_first=channels_first, reverses=reverses)
    bias: dict[str, Recipe] = {"bias": Recipe(parts=("b",))}
    if class_name in _CONVOLUTIONS:
        rank = _CONVOLUTIONS[class_name]
        return {
            "kernel": Recipe(
                parts=("W",),
                axes=_FIRST[rank] if channels_first else (),
                flip=tuple(range(rank)) if reverses else (),
            ),
            **bias,
        }
    match class_name:
        case "Convolution1D" | "AtrousConvolution1D":
            return {"kernel": _one_dimensional(config, shapes, reverses=reverses), **bias}
        case "Deconvolution2D":
            axes: tuple[int, ...] = (2, 3, 0, 1) if channels_first else (0, 1, 3, 2)
            return {"kernel": Recipe(parts=("W",), axes=axes), **bias}
        case "SeparableConvolution2D":
            axes = _FIRST[2] if channels_first else ()
            kernels = ("depthwise_kernel", "pointwise_kernel")
            return {**{key: Recipe(parts=(key,), axes=axes) for key in kernels}, **bias}
    return {}


def _recurrent(
    class_name: str, shapes: Mapping[str, tuple[int, ...]], *, channels_first: bool, reverses: bool
) -> dict[str, Recipe]:
    """
    Return the recipes of gates that are stored separately, or joined (``consume_less="gpu"``).
    """
    gates = _GATES[class_name]
    convolves = class_name == "ConvLSTM2D"
    axes = _FIRST[2] if convolves and channels_first else ()
    flip = (0, 1) if convolves and reverses else ()
    is_joined = not any(name.endswith("W_" + gates[0]) for name in shapes)

    def recipe(old: str, *, lies_otherwise: bool = True) -> Recipe:
        parts = (old,) if is_joined else tuple(f"{old}_{gate}" for gate in gates)
        return Recipe(parts=parts, axes=axes, flip=flip) if lies_otherwise else Recipe(parts=parts)

    return {
        "kernel": recipe("W"),
        "recurrent_kernel": recipe("U"),
        "bias": recipe("b", lies_otherwise=False),
    }


def _one_dimensional(
    config: Mapping[str, Value], shapes: Mapping[str, tuple[int, ...]], *, reverses: bool
) -> Recipe:
    """
    Return the recipe of a Convolution1D's kernel: (length, 1, channels, filters) in Keras 1.2,
    (filters, channels, length, 1) up to 1.1.
    """
    shape = next(
        (shape for name, shape in shapes.items() if name == "W" or name.endswith("_W")), None
    )
    flip = (0,) if reverses else ()
    if shape is None or len(shape) != 4:  # noqa: PLR2004  # a kernel of two dimensions, one of them 1
        return Recipe(parts=("W",), flip=flip)
    if shape[:2] == (config.get("filter_length"), 1) and shape[3] == config.get("nb_filter"):
        return Recipe(parts=("W",), reshape=(shape[0], *shape[2:]), flip=flip)
    return Recipe(parts=("W",), reshape=shape[:3], axes=(2, 1, 0), flip=flip)


_KERNELS: Final = frozenset(
    {
        *(
            "Convolution2D",
            "AtrousConvolution2D",
            "Convolution3D",
            "Deconvolution2D",
            "SeparableConvolution2D",
            "ConvLSTM2D",
        ),
        *("MaxPooling2D", "AveragePooling2D", "MaxPooling3D", "AveragePooling3D"),
    }
)
"""Classes with a window over an image, whose channels may be the first axis."""

_SEQUENCE_PADS: Final = ("left_pad", "right_pad")
_IMAGE_PADS: Final = ("top_pad", "bottom_pad", "left_pad", "right_pad")


def _penalty(key: str, value: Mapping[str, Value]) -> SerializedObject | None:
    """
    Return a regularizer or constraint of Keras 1, which is stored as its name and arguments; None
    if it no longer exists.
    """
    name = value.get("name")
    if key.endswith("_constraint"):
        kept = {
            ("max_value" if item == "m" else item): value[item] for item in value if item != "name"
        }
        constraint = {"MaxNorm": "MaxNorm", "NonNeg": "NonNeg", "UnitNorm": "UnitNorm"}.get(
            str(name)
        )
        return (
            SerializedObject(kind=ObjectKind.CONSTRAINT, class_name=constraint, config=kept)
            if constraint is not None
            else None
        )
    if name not in {"WeightRegularizer", "ActivityRegularizer", "L1L2Regularizer", "L1L2"}:
        return None
    return SerializedObject(
        kind=ObjectKind.REGULARIZER,
        class_name="L1L2",
        config={"l1": value.get("l1", 0.0), "l2": value.get("l2", 0.0)},
    )


def _pad_config(config: dict[str, Value], class_name: str) -> dict[str, Value]:
    """
    Return a config with the padding of an image in the format of Keras 2: for each axis, the sizes
    on its two sides.
    """
    padding = config.get("padding")
    if class_name == "ZeroPadding1D" and isinstance(padding, dict):
        config["padding"] = [padding.get(side, 0) for side in _SEQUENCE_PADS]
    if class_name == "ZeroPadding2D":
        sides = (
            [padding.get(side, 0) for side in _IMAGE_PADS] if isinstance(padding, dict) else padding
        )
        if isinstance(sides, list) and len(sides) == len(_IMAGE_PADS):
            config["padding"] = [sides[:2], sides[2:]]
    return config


def _deconvolution(
    config: dict[str, Value], unit: Unit, context: ConversionContext
) -> dict[str, Value]:
    """
    Return the config of a Conv2DTranspose with the output size of a Deconvolution2D.

    Keras 2 computes the size: n steps become n * stride (``same``), plus the difference between a
    longer kernel and the stride (``valid``). Other sizes are refused, because Keras 3.0 to 3.12
    ignore ``output_padding``, which could represent them.
    """
    shape = config.pop("output_shape", None)
    axes = slice(2, 4) if config.get("data_format") == "channels_first" else slice(1, 3)
    sizes = shape[axes] if isinstance(shape, list) else []
    strides, kernel = config.get("strides"), config.get("kernel_size")
    is_computed_size = (
        isinstance(strides, list) and isinstance(kernel, list) and len(sizes) == len(strides)
    )
    for size, step, side in zip(
        sizes,
        strides if isinstance(strides, list) else (),
        kernel if isinstance(kernel, list) else (),
        strict=False,
    ):
        has_integers = isinstance(size, int) and isinstance(step, int) and isinstance(side, int)
        is_computed_size = (
            is_computed_size
            and has_integers
            and (size - (max(side - step, 0) if config.get("padding") == "valid" else 0)) % step  # type: ignore[operator]
            == 0
        )
    if not is_computed_size:
        context.log.refuse(
            "argument",
            unit,
            f"{unit.path} (Deconvolution2D) has an output_shape that differs from the one that "
            "Conv2DTranspose computes from its input",
        )
    return config


_NO_VALUE: Final = (None, 0, 0.0)


def theano(context: ConversionContext) -> bool:
    """
    Return whether Theano wrote the file's variables.

    Keras 1 does not store its backend, but only the names of TensorFlow variables end with ``:0``.
    """
    writer = context.loaded.document.writer.backend
    tensors = context.loaded.document.tensors
    return writer == "theano" or (
        writer is None
        and bool(tensors)
        and not any(tensor.path[-1].endswith(":0") for tensor in tensors or ())
    )


@rewrite(
    applies=lambda context: context.loaded.generation is generations.KERAS_1,
)
def keras1(root: Unit, context: ConversionContext) -> Unit:
    """
    Converts Keras 1 classes, keys, values and stored variables to the Keras 2 format.

    Computations of Keras 1 that later releases do not support are refused: merges by a function,
    batch normalization by batches, and the padding of Theano.
    """
    reverses = theano(context)

    def change(unit: Unit) -> Unit:
        return (
            _refuse(unit, context)
            if unit.class_name in GONE
            else _layer(unit, context, reverses=reverses)
        )

    return map_layers(root, change)


def _has_separate_weights(context: ConversionContext) -> bool:
    """Return whether an architecture of a later release has weights with the names of Keras 1."""
    document = context.loaded.document
    return (
        document.weights is not None
        and context.loaded.generation is not generations.KERAS_1
        and any(
            tensor.path[-1].removesuffix(":0").endswith(_KERNEL_NAMES)
            for tensor in document.tensors or ()
        )
    )


@layer_rewrite(
    applies=_has_separate_weights,
)
def keras1_weights(unit: Unit, context: ConversionContext) -> Unit:
    """
    Reads separate weights with the names of Keras 1 for an architecture of a later release.

    The shape of a kernel shows where its channels are. Only layers whose variables have a layout
    that does not depend on other arguments of Keras 1 are read.
    """
    if unit.site is None:
        return unit
    shapes = _stored_shapes(unit.site, context)
    old = _keras1_layer(unit, shapes)
    if old is None:
        return unit
    class_name, config = old
    layout = weight_layout(class_name, config, shapes, reverses=theano(context))
    return replace(unit, layout=_with_bias(layout, unit.config))


def _keras1_layer(
    unit: Unit, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[str, dict[str, Value]] | None:
    """
    Return the class of Keras 1 that stored the variables of a layer, with the arguments on which
    their layout depends; None if it is unknown.
    """
    class_name = unit.class_name
    if class_name in _PLAIN or class_name in {"LSTM", "GRU"}:
        return class_name, {}
    size, filters = unit.config.get("kernel_size"), unit.config.get("filters")
    if class_name not in _CONVOLUTIONS_OF or not isinstance(size, list):
        return None
    if class_name == "Conv1D":
        return _CONVOLUTIONS_OF[class_name], {"filter_length": size[0], "nb_filter": filters}
    shape = list(next((shape for name, shape in shapes.items() if name.endswith("W")), ()))
    is_last = (shape[:-2], shape[-1:]) == (size, [filters])
    is_first = (shape[2:], shape[:1]) == (size, [filters])
    if is_last == is_first:  # both fit, or none
        return None
    return _CONVOLUTIONS_OF[class_name], {"dim_ordering": "th" if is_first else "tf"}


def _stored_shapes(site: int, context: ConversionContext) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the stored variables of a layer and its cell by their names."""
    return {
        variable.name: variable.shape
        for index in (site, *context.loaded.children[site])
        for variable in context.loaded.layers[index].variables
        if variable.shape is not None
    }


def _with_bias(layout: Mapping[str, Recipe], config: Mapping[str, Value]) -> dict[str, Recipe]:
    """Return the recipes of a layer, without that of a bias that the layer does not have."""
    has_bias = config.get("use_bias", True) is not False
    return {name: recipe for name, recipe in layout.items() if name != "bias" or has_bias}


def _refuse(unit: Unit, context: ConversionContext) -> Unit:
    context.log.refuse(
        "class",
        unit,
        f"{unit.path} is a Keras 1 {unit.class_name}, which later releases do not support",
    )
    return unit


def _layer(unit: Unit, context: ConversionContext, *, reverses: bool) -> Unit:
    """
    Return a layer of Keras 1 with the class, the config and the variable layout of later releases.
    """
    class_name = (
        MERGES.get(str(unit.config.get("mode")))
        if unit.class_name == "Merge"
        else CLASSES.get(unit.class_name, unit.class_name)
    )
    if class_name is None or (unit.class_name == "Merge" and "layers" in unit.config):
        reason = (
            "of separate models"
            if "layers" in unit.config
            else f"with mode {display_value(str(unit.config.get('mode')))}"
        )
        context.log.refuse(
            "class",
            unit,
            f"{unit.path} is a Keras 1 Merge {reason}, which later releases do not support",
        )
        return unit
    _judge(unit, context, reverses=reverses)
    shapes = _stored_shapes(unit.site, context) if unit.site is not None else {}
    config = _merge(unit) if unit.class_name == "Merge" else _config(unit, context)
    if class_name != unit.class_name:
        context.log.change("class", unit, f"{unit.class_name} of Keras 1 becomes {class_name}")
    changed = replace(unit, class_name=class_name, config=config)
    if context.loaded.document.tensors is None:
        return changed
    layout = weight_layout(unit.class_name, unit.config, shapes, reverses=reverses)
    return replace(changed, layout=_with_bias(layout, config))


def _judge(unit: Unit, context: ConversionContext, *, reverses: bool) -> None:
    """Refuse layers that later releases compute differently, and log what training loses."""
    config, log = unit.config, context.log
    if unit.class_name == "BatchNormalization" and config.get("mode") not in _NO_VALUE:
        log.refuse(
            "argument",
            unit,
            f"{unit.path} (BatchNormalization) has mode "
            f"{display_value(str(config['mode']))}, but later releases support only mode 0",
        )
    if config.get("border_mode") not in {None, "valid", "same"}:
        log.refuse(
            "argument",
            unit,
            f"{unit.path} ({unit.class_name}) has border_mode "
            f"{display_value(str(config['border_mode']))}, which later releases do not support",
        )
    if unit.class_name == "Embedding" and config.get("dropout") not in _NO_VALUE:
        log.caution(
            "training",
            unit,
            f"{unit.path} (Embedding) has a dropout of {config['dropout']}, which later releases "
            "do not support; it only affects training",
        )
    if config.get("dim_ordering") == "th" and unit.class_name in _KERNELS:
        log.note(
            "channels-first",
            unit,
            f"{unit.path} uses the channels_first data format, which TensorFlow supports only on "
            "GPUs",
        )
    if reverses and not _same_in_tensorflow(unit):
        log.refuse(
            "argument",
            unit,
            f"{unit.path} ({unit.class_name}) was trained with Theano, whose padding "
            "differs from TensorFlow's",
        )


def _same_in_tensorflow(unit: Unit) -> bool:
    """
    Return whether Theano and TensorFlow pad a layer equally: without padding, or with half of an
    odd kernel on each side.
    """
    config = unit.config
    if unit.class_name in {"Deconvolution2D", "ConvLSTM2D", "SeparableConvolution2D"}:
        return False
    if config.get("border_mode") != "same":
        return True
    size = [
        config[key] for keys in (("filter_length",), *KERNEL_SIZES) for key in keys if key in config
    ]
    strides = config.get("subsample", config.get("subsample_length", 1))
    stride_list = strides if isinstance(strides, list) else [strides]
    return (
        bool(size)
        and all(isinstance(side, int) and side % 2 == 1 for side in size)
        and all(step == 1 for step in stride_list)
    )


def _merge(unit: Unit) -> dict[str, Value]:
    mode, config = unit.config["mode"], unit.config
    kept = {key: config[key] for key in ("trainable",) if key in config}
    if mode == "concat":
        return {**kept, "axis": config.get("concat_axis", -1)}
    return (
        {**kept, "axes": config.get("dot_axes", -1), "normalize": False} if mode == "dot" else kept
    )


def _config(unit: Unit, context: ConversionContext) -> dict[str, Value]:
    """Return the config of a Keras 1 layer with the keys and values of later releases."""
    class_name, config = unit.class_name, unit.config
    keys = {**KEYS, **OWN_KEYS.get(class_name, {})}
    renamed: dict[str, Value] = {}
    for key, value in config.items():
        if key in SAID_ELSEWHERE and not (class_name == "Embedding" and key == "input_dim"):
            continue
        if (class_name, key) in UNUSED:
            continue
        renamed[keys.get(key, key)] = _value(unit, key, value, context)
    for key_group in KERNEL_SIZES:
        if key_group[0] in config:
            renamed["kernel_size"] = [renamed.pop(key) for key in key_group]
    if "forget_bias_init" in config:
        renamed["unit_forget_bias"] = config["forget_bias_init"] == "one"
    if class_name == "GRU":
        renamed["reset_after"] = False
    if class_name == INPUT_CLASS and isinstance(config.get("input_dtype"), str):
        renamed["dtype"] = config["input_dtype"]
    if class_name == "Deconvolution2D":
        return _deconvolution(renamed, unit, context)
    return _pad_config(renamed, class_name)


def _value(unit: Unit, key: str, value: Value, context: ConversionContext) -> Value:
    """Return a value of a Keras 1 config in the form of later releases."""
    if key in {"init", "inner_init"} or key.endswith("_init"):
        return _initializer(unit, value, context) if isinstance(value, str) else value
    if key.endswith(("_regularizer", "_constraint")) and isinstance(value, dict):
        penalty = _penalty(key, value)
        if penalty is None:
            context.log.refuse(
                "argument",
                unit,
                f"{unit.path} ({unit.class_name}) sets {key} to "
                f"{display_value(str(value.get('name')))}, which later releases do not support",
            )
        return penalty
    return DATA_FORMATS.get(str(value), value) if key == "dim_ordering" else value


def _initializer(unit: Unit, name: str, context: ConversionContext) -> Value:
    """Return an initializer of Keras 1, which is only a name, as an object."""
    if name not in INITIALIZERS:
        context.log.refuse(
            "argument",
            unit,
            f"{unit.path} ({unit.class_name}) has the initializer {display_value(name)}, "
            "which Keras 1 does not have",
        )
        return name
    class_name, config = INITIALIZERS[name]
    return SerializedObject(kind=ObjectKind.INITIALIZER, class_name=class_name, config=dict(config))
