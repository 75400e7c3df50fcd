"""
Which classes are Keras' own layers, and which entries of a graph are operations and no layers.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from policytool.releases import data, keras_objects

if TYPE_CHECKING:
    from policytool.support.text.jsontext import Json

LOOKUPS: Final = frozenset({"IntegerLookup", "StringLookup", "TextVectorization"})
"""Layers that make ids of words and numbers by a vocabulary."""

ENCODERS: Final = LOOKUPS | {"CategoryEncoding", "Discretization", "HashedCrossing", "Hashing"}
"""
Layers that make ids of words and numbers, or vectors of ids: lookups in tables and counts, which
have no 16-bit form.
"""

IDENTITIES: Final = frozenset(
    {
        "ActivityRegularization",
        "AlphaDropout",
        "Dropout",
        "GaussianDropout",
        "GaussianNoise",
        "Identity",
        "SpatialDropout1D",
        "SpatialDropout2D",
        "SpatialDropout3D",
    }
)
"""Layers whose output is the very tensor that they were given, except in training."""

ARRANGING: Final = frozenset(
    {
        *("Concatenate", "Flatten", "Masking", "Permute", "RepeatVector", "Reshape"),
        *("Cropping1D", "Cropping2D", "Cropping3D"),
        *("UpSampling1D", "UpSampling2D", "UpSampling3D"),
        *("ZeroPadding1D", "ZeroPadding2D", "ZeroPadding3D"),
    }
)
"""Layers that move, repeat, join or drop the values of their inputs."""

SHAPING: Final = (
    IDENTITIES
    | ARRANGING
    | {
        *("Activation", "ELU", "LeakyReLU", "PReLU", "ReLU", "Softmax", "ThresholdedReLU"),
        *("CenterCrop", "Resizing", "Rescaling", "UnitNormalization"),
        *("MaxPooling1D", "MaxPooling2D", "MaxPooling3D"),
        *("GlobalMaxPooling1D", "GlobalMaxPooling2D", "GlobalMaxPooling3D"),
        *("AdaptiveMaxPooling1D", "AdaptiveMaxPooling2D", "AdaptiveMaxPooling3D"),
    }
)
"""
Layers whose results are as exact as the values that they get: each is one of these, chosen, scaled
or interpolated, or what an activation makes of it. Averages and sums are not among them: in those
the rounding of many values cancels out.
"""

_OPERATIONS: Final = ("keras.src.ops.", "keras.ops.")


@cache
def builtin_classes() -> frozenset[str]:
    """
    Return the layer and model classes of every release, which ``fixtures/generate.py`` asks of the
    releases themselves.
    """
    return frozenset(data.read("layer_classes")["classes"])


@cache
def operation_classes() -> frozenset[str]:
    """
    Return the classes of Keras 3's operations, asked in the same way; some share their name with a
    layer (Add, Softmax).
    """
    return frozenset(data.read("layer_classes")["operations"])


def is_operation(entry: dict[str, Json]) -> bool:
    """
    Return whether an entry of a functional model's graph is an operation of Keras 3 and not a
    layer.

    Its module says so. HDF5 has none: there its class and its call arguments (``args``), which only
    Keras 3 writes, tell; and a layer of a class that shares its name with an operation always
    writes ``trainable``.
    """
    module, config = entry.get("module"), entry.get("config")
    if isinstance(module, str):
        return module.startswith(_OPERATIONS)
    if (
        not isinstance(config, dict)
        or "trainable" in config
        or keras_objects.class_of(entry) not in operation_classes()
    ):
        return False
    nodes = entry.get("inbound_nodes")
    return isinstance(nodes, list) and any(
        isinstance(node, dict) and "args" in node for node in nodes
    )
