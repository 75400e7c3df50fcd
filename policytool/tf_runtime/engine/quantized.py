"""
Quantised layers of Keras 3: what they compute if they quantise nothing, and how coarse their stored
weights are.

int8 and int4 files hold rounded weights with their scales; what the weights were before is lost.
float8 files hold the weights as they were: a layer rounds them at every call. In gptq and awq, and
where a layer quantises its weights alone, a layer dequantises its weights and computes in floats.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ..library import paths

if TYPE_CHECKING:
    from typing import Any

    from ..library import Library

_STORED = ("_kernel", "_embeddings", "reverse_embeddings")
"""Attributes of layers that hold integers in place of weights."""

_INT4 = "int4"
_FLOAT8 = "float8"
_STEP_ERROR = 1 / math.sqrt(12)
"""The root mean square of what rounding to integers takes from a number."""


def compute_unquantized(library: Library, model: Any) -> int:
    """
    Let the layers of a model compute with their weights as the file has them, dequantised, and with
    their inputs as they are; return how many of them round otherwise.
    """
    changed = 0
    for _, layer in paths(model):
        mode = getattr(layer, "quantization_mode", None)
        quantizer = getattr(layer, "inputs_quantizer", None)
        if mode == _FLOAT8:
            layer.dtype_policy = _source(layer)
        elif mode is not None and quantizer is not None:
            layer.inputs_quantizer = _passing(library, quantizer)
        else:
            continue
        changed += 1
    return changed


def weight_rounding(reference: Any, candidate: Any) -> float:
    """
    Return the relative error that the rounding of stored weights explains, for two layers and their
    child layers; 0 if both have the same integers.

    The root-mean-square error of rounding to integers is the square root of 1/12, whatever the
    scale is.
    """
    stored = [_integers(layer) for layer in (reference, candidate)]
    if len(stored[0]) == len(stored[1]) and all(map(np.array_equal, *stored)):
        return 0.0
    return math.sqrt(sum(_relative(integers) ** 2 for side in stored for integers in side))


def _relative(integers: Any) -> float:
    """Return the error of rounding to integers, relative to them; 0 where all of them are zero."""
    mean = float(np.mean(np.square(integers, dtype="float32"))) if integers.size else 0.0
    return _STEP_ERROR / math.sqrt(mean) if mean else 0.0


def _integers(layer: Any) -> list[Any]:
    """Return the integers that stand for weights in a layer and those within it."""
    arrays = []
    for _, inner in paths(layer):
        mode = getattr(inner, "quantization_mode", None)
        for name in _STORED if mode is not None else ():
            variable: Any = getattr(inner, name, None)
            if str(getattr(variable, "dtype", "")) == "int8":
                array = np.asarray(variable.numpy())
                arrays.append(_unpacked(array) if mode == _INT4 else array)
    return arrays


def _unpacked(array: Any) -> Any:
    """Return both numbers of 4 bits of each byte; their order does not matter here."""
    return np.stack([np.left_shift(array, 4) >> 4, array >> 4])


def _source(layer: Any) -> str:
    """Return the name of the policy that a layer had before it was quantised."""
    compute, variable = layer.compute_dtype, layer.variable_dtype
    return str(compute) if compute == variable else "mixed_{}".format(compute)


def _passing(library: Library, quantizer: Any) -> Any:
    """Return what takes a quantizer's place and gives its inputs as they are, scaled by 1."""

    def unchanged(inputs: Any, *places: Any, **options: Any) -> Any:
        _, scale = quantizer(inputs, *places, **options)
        return inputs, library.keras.ops.ones_like(scale)

    return unchanged
