"""Operations of Keras 3 that several functions of TensorFlow compute together."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.rewrites.operations._building import UnsayableError
from policytool.migration.convert.rewrites.operations.activation_functions import ACTIVATIONS
from policytool.migration.convert.tensor_dtypes import module_of
from policytool.model.calls import Reference
from policytool.releases import dtypes as names_of_dtypes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from policytool.migration.convert.architecture import Unit, Value
    from policytool.migration.convert.rewrites.operations._building import OperationBuilder
    from policytool.model.calls import Argument

    Compose = Callable[[OperationBuilder, Unit, Reference, str], Reference]

_EPSILON: Final = 1e-7
"""What ``keras.config.epsilon()`` is unless a program sets another."""

_EUCLIDEAN: Final = 2
_INFINITIES: Final = {float("inf"): "math.reduce_max", float("-inf"): "math.reduce_min"}


def put_composed(
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
        raise UnsayableError(
            f"applies {unit.class_name} to an input that is not a float tensor; "
            "policytool does not convert this"
        )
    return compose(builder, unit, first, dtype)


def _reduce(
    builder: OperationBuilder, function: str, tensor: Reference, axis: Value, *, keepdims: bool
) -> Reference:
    told = {"axis": None if axis is None else _whole(axis), "keepdims": keepdims}
    return builder.function(function, tensor, told)


def _sum_of_squares(
    builder: OperationBuilder, tensor: Reference, axis: Value, *, keepdims: bool
) -> Reference:
    squares = builder.function("math.square", tensor)
    return _reduce(builder, "math.reduce_sum", squares, axis, keepdims=keepdims)


def _vector_norm(
    builder: OperationBuilder, tensor: Reference, order: Value, axis: Value, *, keepdims: bool
) -> Reference:
    """Return a norm of vectors of another order than 2, or an infinite one."""
    if isinstance(order, bool) or not isinstance(order, int | float) or order == 0:
        raise UnsayableError(f"computes a norm of order {order}; policytool does not convert this")
    sizes = builder.function("math.abs", tensor)
    if order in _INFINITIES:
        return _reduce(builder, _INFINITIES[order], sizes, axis, keepdims=keepdims)
    powers = sizes if order == 1 else builder.function("math.pow", sizes, {"y": float(order)})
    total = _reduce(builder, "math.reduce_sum", powers, axis, keepdims=keepdims)
    return total if order == 1 else builder.function("math.pow", total, {"y": 1 / order})


def _whole(value: Value) -> Argument:
    """Return a whole number or several."""
    if isinstance(value, int):
        return value
    if isinstance(value, list) and all(isinstance(item, int) for item in value):
        return [item for item in value if isinstance(item, int)]
    raise UnsayableError("has an argument that is not an integer; policytool does not convert this")


def _normalize(builder: OperationBuilder, unit: Unit, tensor: Reference, dtype: str) -> Reference:
    """
    Divide by the Euclidean norm, of which the reciprocal is at most ``1 / epsilon``, or by another,
    which is at least ``epsilon`` (``_normalize`` in keras/src/ops/nn.py).
    """
    del dtype
    epsilon, order = unit.config.get("epsilon"), unit.config.get("order", _EUCLIDEAN)
    axis = unit.config.get("axis", -1)
    least = epsilon if isinstance(epsilon, int | float) and epsilon > 0 else _EPSILON
    if order != _EUCLIDEAN:
        norm = _vector_norm(builder, tensor, order, axis, keepdims=True)
        norm = builder.function("math.maximum", norm, {"y": least})
        return builder.function("math.divide", tensor, {"y": norm})
    total = _sum_of_squares(builder, tensor, axis, keepdims=True)
    inverse = builder.function("math.rsqrt", total)
    inverse = builder.function("math.minimum", inverse, {"y": 1 / least})
    return builder.function("math.multiply", tensor, {"y": inverse})


def _norm(builder: OperationBuilder, unit: Unit, tensor: Reference, dtype: str) -> Reference:
    """Return a norm of vectors."""
    del dtype
    axis, order = unit.config.get("axis"), unit.config.get("ord")
    along_one = isinstance(axis, int) or (isinstance(axis, list) and len(axis) == 1)
    keepdims = unit.config.get("keepdims") is True
    if order is not None and not along_one:
        raise UnsayableError("computes a matrix norm; policytool does not convert this")
    if order not in {None, _EUCLIDEAN}:
        return _vector_norm(builder, tensor, order, axis, keepdims=keepdims)
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


def _full_like(builder: OperationBuilder, unit: Unit, tensor: Reference, dtype: str) -> Reference:
    """Add the number that fills to zeros, which changes neither."""
    number = next(iter((*unit.calls[0].args[1:], *unit.calls[0].kwargs.values())), None)
    given = unit.config.get("dtype") or dtype
    whole = given not in names_of_dtypes.FLOATS
    if (
        isinstance(number, bool)
        or not isinstance(number, int | float)
        or (whole and isinstance(number, float))
        or not isinstance(given, str)
        or given == "bool"
    ):
        raise UnsayableError(f"fills a tensor of dtype {given} with a value of a different dtype")
    zeros = builder.function("zeros_like", tensor, {"dtype": given})
    return builder.function("math.add", zeros, {"y": number})


def _pool(function: str) -> Compose:
    """Return what pools windows; Keras 3 on TensorFlow calls the same function."""

    def compose(builder: OperationBuilder, unit: Unit, tensor: Reference, dtype: str) -> Reference:
        del dtype
        config = unit.config
        size, strides = config.get("pool_size"), config.get("strides")
        padding = config.get("padding", "valid")
        if config.get("data_format") == "channels_first" or not isinstance(padding, str):
            raise UnsayableError(
                "pools with channels_first data, which TensorFlow does not support on CPUs"
            )
        told: dict[str, Argument] = {"ksize": _whole(size), "padding": padding.upper()}
        told["strides"] = _whole(size if strides is None else strides)
        return builder.function(function, tensor, told)

    return compose


def _activation(name: str) -> Compose:
    def compose(builder: OperationBuilder, unit: Unit, tensor: Reference, dtype: str) -> Reference:
        del dtype
        return ACTIVATIONS[name](builder, unit.config, tensor)

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
        raise UnsayableError("resizes images with options that tf.image.resize does not have")
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
        ("numpy", "FullLike"): _full_like,
        ("nn", "AveragePool"): _pool("nn.avg_pool"),
        ("nn", "MaxPool"): _pool("nn.max_pool"),
        **{("nn", name): _activation(name) for name in ACTIVATIONS},
    }
)
