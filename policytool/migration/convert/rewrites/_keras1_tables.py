"""
What Keras 1 calls classes, keys and values, and what Keras 2 and later call them.

Keras 2.0 to 2.3 have the same renaming for calls (keras/legacy/interfaces.py); here configs are
renamed. Read from the sources of Keras 1.0 to 1.2 (what each layer's ``get_config`` writes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
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
Classes that have another name; a ``Dense`` of Keras 2 works on the last axis, as
TimeDistributedDense did.
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
"""Keys that have another name, in all classes but those of :data:`OWN_KEYS`."""

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
"""Keys that stand for one ``kernel_size``."""

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
Keys that change no prediction, or are told otherwise: shapes stand in ``batch_input_shape``, and
weights in the file.
"""

UNUSED: Final = frozenset({("Embedding", "dropout"), ("SeparableConvolution2D", "init")})
"""
Keys of one class that change no prediction: the kernels of a separable convolution have
initialisers of their own in later releases.
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
The layers that ``Merge`` became, by its mode.

``cos`` has none: what it gives has one axis more than a normalised ``Dot`` does.
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
Keras 1's initialisers by name (keras/initializations.py), as those of Keras 2; they matter where
weights are drawn anew.
"""
