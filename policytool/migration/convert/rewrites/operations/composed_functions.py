"""Operations of Keras 3 that several functions of TensorFlow compute together."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import Reference
from policytool.migration.convert.rewrites.operations._building import UnsayableError
from policytool.migration.convert.rewrites.operations._calls import module_of
from policytool.releases import dtypes as names_of_dtypes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from policytool.migration.convert.architecture import Argument, Unit, Value
    from policytool.migration.convert.rewrites.operations._building import OperationBuilder

    Compose = Callable[[OperationBuilder, Unit, Reference, str], Reference]

_EPSILON: Final = 1e-7
"""What ``keras.config.epsilon()`` is unless a program sets another."""

_EUCLIDEAN: Final = 2


def put(
    builder: OperationBuilder, unit: Unit, first: Argument, dtype: str | None
) -> Reference | None:
    """
    Add the functions that compute what an operation does in one call, and return the result; None
    for an operation that no functions are known for.

    :param first: what it is called with, of a dtype that may not be known
    :raises UnsayableError: for arguments that they do not take
    """
    compose = _FUNCTIONS.get((module_of(unit), unit.class_name))
    if compose is None:
        return None
    if not isinstance(first, Reference) or dtype not in names_of_dtypes.FLOATS:
        raise UnsayableError(f"is {unit.class_name} of something that is no tensor of floats")
    return compose(builder, unit, first, dtype)


def gives_as_it_gets(unit: Unit) -> bool:
    """Return whether an operation is one of these, whose result has the dtype of its tensor."""
    return (module_of(unit), unit.class_name) in _FUNCTIONS


def _sum_of_squares(
    builder: OperationBuilder, tensor: Reference, axis: Value, *, keepdims: bool
) -> Reference:
    squares = builder.function("math.square", tensor)
    return builder.function(
        "math.reduce_sum",
        squares,
        {"axis": None if axis is None else _whole(axis), "keepdims": keepdims},
    )


def _whole(value: Value) -> Argument:
    """Return a whole number or several."""
    if isinstance(value, int):
        return value
    if isinstance(value, list) and all(isinstance(item, int) for item in value):
        return [item for item in value if isinstance(item, int)]
    raise UnsayableError("has an argument that is no whole number")


def _normalize(builder: OperationBuilder, unit: Unit, tensor: Reference, dtype: str) -> Reference:
    """
    Divide by the Euclidean norm, of which the reciprocal is at most ``1 / epsilon``
    (``_normalize`` in keras/src/ops/nn.py).
    """
    del dtype
    epsilon = unit.config.get("epsilon")
    if unit.config.get("order", _EUCLIDEAN) != _EUCLIDEAN:
        raise UnsayableError("normalizes by a norm that is not the Euclidean one")
    least = epsilon if isinstance(epsilon, int | float) and epsilon > 0 else _EPSILON
    total = _sum_of_squares(builder, tensor, unit.config.get("axis", -1), keepdims=True)
    inverse = builder.function("math.rsqrt", total)
    inverse = builder.function("math.minimum", inverse, {"y": 1 / least})
    return builder.function("math.multiply", tensor, {"y": inverse})


def _norm(builder: OperationBuilder, unit: Unit, tensor: Reference, dtype: str) -> Reference:
    """Return the Euclidean norm of vectors."""
    del dtype
    axis, order = unit.config.get("axis"), unit.config.get("ord")
    along_one = isinstance(axis, int) or (isinstance(axis, list) and len(axis) == 1)
    if order not in {None, _EUCLIDEAN} or (order is not None and not along_one):
        raise UnsayableError("computes a norm that is not the Euclidean one of vectors")
    keepdims = unit.config.get("keepdims") is True
    total = _sum_of_squares(builder, tensor, axis, keepdims=keepdims)
    return builder.function("math.sqrt", total)


def _hard_sigmoid(
    builder: OperationBuilder, unit: Unit, tensor: Reference, dtype: str
) -> Reference:
    """Return ``relu6(x + 3) / 6``."""
    del unit, dtype
    shifted = builder.function("math.add", tensor, {"y": 3.0})
    return builder.function("math.divide", builder.function("nn.relu6", shifted), {"y": 6.0})


def _hard_silu(builder: OperationBuilder, unit: Unit, tensor: Reference, dtype: str) -> Reference:
    gate = _hard_sigmoid(builder, unit, tensor, dtype)
    return builder.function("math.multiply", tensor, {"y": gate})


def _logarithm(base: float) -> Compose:
    """Return what composes the logarithm to a base: the natural one over that of the base."""

    def compose(builder: OperationBuilder, unit: Unit, tensor: Reference, dtype: str) -> Reference:
        del unit, dtype
        natural = builder.function("math.log", tensor)
        return builder.function("math.divide", natural, {"y": math.log(base)})

    return compose


def _resize(builder: OperationBuilder, unit: Unit, tensor: Reference, dtype: str) -> Reference:
    """
    ``tf.image.resize`` gives float32 whatever it takes, but for the nearest pixels; Keras 3 gives
    what it takes.
    """
    config = unit.config
    others = ("crop_to_aspect_ratio", "pad_to_aspect_ratio")
    method = config.get("interpolation", "bilinear")
    if (
        any(config.get(key) for key in others)
        or config.get("data_format") == "channels_first"
        or not isinstance(method, str)
    ):
        raise UnsayableError("resizes images in a way that tf.image.resize has no words for")
    antialias = config.get("antialias") is True
    resized = builder.function(
        "image.resize",
        tensor,
        {"size": _whole(config.get("size")), "method": method, "antialias": antialias},
    )
    if method == "nearest" or dtype == "float32":
        return resized
    return builder.function("cast", resized, {"dtype": dtype})


_FUNCTIONS: Final[Mapping[tuple[str, str], Compose]] = MappingProxyType(
    {
        ("nn", "Normalize"): _normalize,
        ("nn", "HardSigmoid"): _hard_sigmoid,
        ("nn", "HardSilu"): _hard_silu,
        ("numpy", "Log2"): _logarithm(2),
        ("numpy", "Log10"): _logarithm(10),
        ("linalg", "Norm"): _norm,
        ("image", "Resize"): _resize,
    }
)
