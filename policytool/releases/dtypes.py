"""
The dtype names that Keras writes, and what is known of each.

Keras 3's list is ``keras.src.backend.common.dtypes.ALLOWED_DTYPES``; Keras 2 accepts every
TensorFlow dtype, of which models in the wild hold these.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

FLOATS: Final = ("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2")
"""Dtypes in which a layer can compute, and which policy names contain."""

HALVES: Final = frozenset({"float16", "bfloat16"})
"""The dtypes with 16 bits."""

OTHERS: Final = (
    *("int4", "int8", "int16", "int32", "int64", "uint4", "uint8", "uint16", "uint32", "uint64"),
    *(
        "bool",
        "string",
        "complex64",
        "complex128",
        "qint8",
        "quint8",
        "qint32",
        "qint16",
        "quint16",
    ),
    *("resource", "variant"),
)
"""Dtypes of inputs, lookup layers and stored quantized weights."""

NAMES: Final = frozenset((*FLOATS, *OTHERS))

OF_TENSORFLOW_ENUM: Final[Mapping[int, str]] = MappingProxyType(
    {
        1: "float32",
        2: "float64",
        3: "int32",
        4: "uint8",
        5: "int16",
        6: "int8",
        7: "string",
        8: "complex64",
        9: "int64",
        10: "bool",
        11: "qint8",
        12: "quint8",
        13: "qint32",
        14: "bfloat16",
        15: "qint16",
        16: "quint16",
        17: "uint16",
        18: "complex128",
        19: "float16",
        20: "resource",
        21: "variant",
        22: "uint32",
        23: "uint64",
        24: "float8_e5m2",
        25: "float8_e4m3fn",
        29: "int4",
        30: "uint4",
    }
)
"""tensorflow/core/framework/types.proto, ``enum DataType``."""

OF_NODE_DEF: Final[Mapping[str, str]] = MappingProxyType(
    {
        "DT_HALF": "float16",
        "DT_BFLOAT16": "bfloat16",
        "DT_FLOAT": "float32",
        "DT_DOUBLE": "float64",
        "DT_BOOL": "bool",
        "DT_STRING": "string",
        **{f"DT_{name.upper()}": name for name in OTHERS if "int" in name},
    }
)
"""The names of dtypes in the ``node_def`` of an op layer."""

_BYTES: Final[Mapping[str, int]] = MappingProxyType(
    {
        **dict.fromkeys(
            (
                "int4",
                "uint4",
                "int8",
                "uint8",
                "bool",
                "qint8",
                "quint8",
                "float8_e4m3fn",
                "float8_e5m2",
            ),
            1,
        ),
        **dict.fromkeys(("float16", "bfloat16", "int16", "uint16", "qint16", "quint16"), 2),
        **dict.fromkeys(("float32", "int32", "uint32", "qint32"), 4),
        **dict.fromkeys(("float64", "int64", "uint64", "complex64"), 8),
        "complex128": 16,
    }
)


def itemsize(name: str) -> int:
    """
    Return the number of bytes of a stored element, 0 for strings, whose elements differ in size.
    """
    return _BYTES.get(name, 0)


def is_float(name: str | None) -> bool:
    """Return whether a layer can compute in this dtype."""
    return name in FLOATS
