"""
Keras 3 operations that require several TensorFlow functions: activations, norms, and ``Einsum`` of
one or two tensors as transpositions, sums and a product of matrices.

A Keras 2 op layer that calls ``tf.einsum`` stores the equation, but not the tensors.
"""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from policytool.migration.convert.rewrites.operations._building import UnsupportedOperationError
from policytool.migration.convert.tensor_facts import module_of
from policytool.model.calls import Reference
from policytool.releases import dtypes as names_of_dtypes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from policytool.migration.convert.architecture import Unit, Value
    from policytool.migration.convert.rewrites.operations._building import OperationBuilder
    from policytool.migration.convert.tensor_facts import TensorDtypes
    from policytool.model.calls import Argument, Call

    Compose = Callable[[OperationBuilder, Unit, Reference, str], Reference]


def _number(unit: Unit, key: str, default: float | None = None) -> float:
    value = unit.config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnsupportedOperationError(
            f"has a {key} that is not a number; policytool does not convert this"
        )
    return float(value)


def _celu(builder: OperationBuilder, unit: Unit, x: Reference, _dtype: str) -> Reference:
    alpha = _number(unit, "alpha", 1.0)
    below = builder.function("math.minimum", x, {"y": 0.0})
    curve = builder.function("math.expm1", builder.function("math.divide", below, {"y": alpha}))
    scaled = builder.function("math.multiply", curve, {"y": alpha})
    return builder.function("math.add", builder.function("nn.relu", x), {"y": scaled})


def _glu(builder: OperationBuilder, unit: Unit, x: Reference, _dtype: str) -> Reference:
    halves = builder.function(
        "split", x, {"num_or_size_splits": 2, "axis": int(_number(unit, "axis", -1))}
    )
    gate = builder.function("math.sigmoid", replace(halves, output=1))
    return builder.function("math.multiply", halves, {"y": gate})


def _squareplus(builder: OperationBuilder, unit: Unit, x: Reference, _dtype: str) -> Reference:
    squares = builder.function("math.square", x)
    root = builder.function(
        "math.sqrt", builder.function("math.add", squares, {"y": _number(unit, "b", 4)})
    )
    return builder.function("math.divide", builder.function("math.add", x, {"y": root}), {"y": 2.0})


def _soft_shrink(builder: OperationBuilder, unit: Unit, x: Reference, _dtype: str) -> Reference:
    end = _number(unit, "threshold", 0.5)
    inner = _clip(builder, x, -end, end)
    return builder.function("math.subtract", x, {"y": inner})


def _hard_shrink(builder: OperationBuilder, unit: Unit, x: Reference, _dtype: str) -> Reference:
    sizes = builder.function("math.abs", x)
    is_outside = builder.function("math.greater", sizes, {"y": _number(unit, "threshold", 0.5)})
    return builder.function("where", is_outside, {"x": x, "y": builder.function("zeros_like", x)})


def _threshold(builder: OperationBuilder, unit: Unit, x: Reference, _dtype: str) -> Reference:
    above = builder.function("math.greater", x, {"y": _number(unit, "threshold")})
    filled = builder.function(
        "math.add", builder.function("zeros_like", x), {"y": _number(unit, "default_value")}
    )
    return builder.function("where", above, {"x": x, "y": filled})


def _tanh_shrink(builder: OperationBuilder, _unit: Unit, x: Reference, _dtype: str) -> Reference:
    return builder.function("math.subtract", x, {"y": builder.function("math.tanh", x)})


def _sparse_plus(builder: OperationBuilder, _unit: Unit, x: Reference, _dtype: str) -> Reference:
    """Return ``clip(x + 1, 0, 2)² / 4 + relu(x - 1)``: a parabola between -1 and 1, then x."""
    clipped = _clip(builder, builder.function("math.add", x, {"y": 1.0}), 0.0, 2.0)
    curve = builder.function("math.divide", builder.function("math.square", clipped), {"y": 4.0})
    line = builder.function("nn.relu", builder.function("math.subtract", x, {"y": 1.0}))
    return builder.function("math.add", curve, {"y": line})


def _hard_tanh(builder: OperationBuilder, _unit: Unit, x: Reference, _dtype: str) -> Reference:
    return _clip(builder, x, -1.0, 1.0)


def _sparse_sigmoid(builder: OperationBuilder, _unit: Unit, x: Reference, _dtype: str) -> Reference:
    shifted = builder.function("math.add", x, {"y": 1.0})
    return _clip(builder, builder.function("math.divide", shifted, {"y": 2.0}), 0.0, 1.0)


def _clip(builder: OperationBuilder, x: Reference, lower: float, upper: float) -> Reference:
    return builder.function("clip_by_value", x, {"clip_value_min": lower, "clip_value_max": upper})


_EPSILON: Final = 1e-7
"""The default of ``keras.config.epsilon()``."""

_EUCLIDEAN: Final = 2
_INFINITIES: Final = {float("inf"): "math.reduce_max", float("-inf"): "math.reduce_min"}


def add_composed(
    builder: OperationBuilder, unit: Unit, first: Argument, dtype: str | None
) -> Reference | None:
    """
    Add the functions that compute a call of an operation, and return the result; None if the
    operation cannot be composed.

    :param first: the first argument of the call
    :param dtype: the dtype of the first argument; None if unknown
    :raises UnsupportedOperationError: if the functions do not support an argument
    """
    compose = _FUNCTIONS.get((module_of(unit), unit.class_name))
    if compose is None:
        return None
    if not isinstance(first, Reference) or dtype not in names_of_dtypes.FLOATS:
        raise UnsupportedOperationError(
            f"applies {unit.class_name} to an input that is not a float tensor; "
            "policytool does not convert this"
        )
    return compose(builder, unit, first, dtype)


def _reduce(
    builder: OperationBuilder, function: str, tensor: Reference, axis: Value, *, keepdims: bool
) -> Reference:
    arguments = {"axis": None if axis is None else _whole(axis), "keepdims": keepdims}
    return builder.function(function, tensor, arguments)


def _sum_of_squares(
    builder: OperationBuilder, tensor: Reference, axis: Value, *, keepdims: bool
) -> Reference:
    squares = builder.function("math.square", tensor)
    return _reduce(builder, "math.reduce_sum", squares, axis, keepdims=keepdims)


def _vector_norm(
    builder: OperationBuilder, tensor: Reference, order: Value, axis: Value, *, keepdims: bool
) -> Reference:
    """Return a norm of vectors whose order is not 2; the order may be infinite."""
    if isinstance(order, bool) or not isinstance(order, int | float) or order == 0:
        raise UnsupportedOperationError(
            f"computes a norm of order {order}; policytool does not convert this"
        )
    sizes = builder.function("math.abs", tensor)
    if order in _INFINITIES:
        return _reduce(builder, _INFINITIES[order], sizes, axis, keepdims=keepdims)
    powers = sizes if order == 1 else builder.function("math.pow", sizes, {"y": float(order)})
    total = _reduce(builder, "math.reduce_sum", powers, axis, keepdims=keepdims)
    return total if order == 1 else builder.function("math.pow", total, {"y": 1 / order})


def _whole(value: Value) -> Argument:
    """Return an integer or a list of integers."""
    if isinstance(value, int):
        return value
    if isinstance(value, list) and all(isinstance(item, int) for item in value):
        return [item for item in value if isinstance(item, int)]
    raise UnsupportedOperationError(
        "has an argument that is not an integer; policytool does not convert this"
    )


def _normalize(builder: OperationBuilder, unit: Unit, tensor: Reference, _dtype: str) -> Reference:
    """
    Divide by the Euclidean norm, whose reciprocal is limited to ``1 / epsilon``, or by another
    norm, which is limited to at least ``epsilon`` (``_normalize`` in keras/src/ops/nn.py).
    """
    epsilon, order = unit.config.get("epsilon"), unit.config.get("order", _EUCLIDEAN)
    axis = unit.config.get("axis", -1)
    lower_bound = epsilon if isinstance(epsilon, int | float) and epsilon > 0 else _EPSILON
    if order != _EUCLIDEAN:
        norm = _vector_norm(builder, tensor, order, axis, keepdims=True)
        norm = builder.function("math.maximum", norm, {"y": lower_bound})
        return builder.function("math.divide", tensor, {"y": norm})
    total = _sum_of_squares(builder, tensor, axis, keepdims=True)
    inverse = builder.function("math.rsqrt", total)
    inverse = builder.function("math.minimum", inverse, {"y": 1 / lower_bound})
    return builder.function("math.multiply", tensor, {"y": inverse})


def _norm(builder: OperationBuilder, unit: Unit, tensor: Reference, _dtype: str) -> Reference:
    """Return a norm of vectors."""
    axis, order = unit.config.get("axis"), unit.config.get("ord")
    along_one = isinstance(axis, int) or (isinstance(axis, list) and len(axis) == 1)
    keepdims = unit.config.get("keepdims") is True
    if order is not None and not along_one:
        raise UnsupportedOperationError("computes a matrix norm; policytool does not convert this")
    if order not in {None, _EUCLIDEAN}:
        return _vector_norm(builder, tensor, order, axis, keepdims=keepdims)
    total = _sum_of_squares(builder, tensor, axis, keepdims=keepdims)
    return builder.function("math.sqrt", total)


def _hard_sigmoid(
    builder: OperationBuilder, _unit: Unit, tensor: Reference, _dtype: str
) -> Reference:
    """Return ``relu6(x + 3) / 6``."""
    shifted = builder.function("math.add", tensor, {"y": 3.0})
    return builder.function("math.divide", builder.function("nn.relu6", shifted), {"y": 6.0})


def _hard_silu(builder: OperationBuilder, unit: Unit, tensor: Reference, dtype: str) -> Reference:
    gate = _hard_sigmoid(builder, unit, tensor, dtype)
    return builder.function("math.multiply", tensor, {"y": gate})


def _logarithm(base: float) -> Compose:
    """Return a function that composes the logarithm to a base: ``log(x) / log(base)``."""

    def compose(
        builder: OperationBuilder, _unit: Unit, tensor: Reference, _dtype: str
    ) -> Reference:
        natural = builder.function("math.log", tensor)
        return builder.function("math.divide", natural, {"y": math.log(base)})

    return compose


def _full_like(builder: OperationBuilder, unit: Unit, tensor: Reference, dtype: str) -> Reference:
    """Return a tensor filled with a number: the number is added to zeros, which is exact."""
    number = next(iter((*unit.calls[0].args[1:], *unit.calls[0].kwargs.values())), None)
    fill_dtype = unit.config.get("dtype") or dtype
    is_integer = fill_dtype not in names_of_dtypes.FLOATS
    if (
        isinstance(number, bool)
        or not isinstance(number, int | float)
        or (is_integer and isinstance(number, float))
        or not isinstance(fill_dtype, str)
        or fill_dtype == "bool"
    ):
        raise UnsupportedOperationError(
            f"fills a tensor of dtype {fill_dtype} with a value of a different dtype"
        )
    zeros = builder.function("zeros_like", tensor, {"dtype": fill_dtype})
    return builder.function("math.add", zeros, {"y": number})


def _pool(function: str) -> Compose:
    """Return a function that composes pooling; Keras 3 on TensorFlow calls the same op."""

    def compose(builder: OperationBuilder, unit: Unit, tensor: Reference, _dtype: str) -> Reference:
        config = unit.config
        size, strides = config.get("pool_size"), config.get("strides")
        padding = config.get("padding", "valid")
        if config.get("data_format") == "channels_first" or not isinstance(padding, str):
            raise UnsupportedOperationError(
                "pools with channels_first data, which TensorFlow does not support on CPUs"
            )
        arguments: dict[str, Argument] = {"ksize": _whole(size), "padding": padding.upper()}
        arguments["strides"] = _whole(size if strides is None else strides)
        return builder.function(function, tensor, arguments)

    return compose


def _resize(builder: OperationBuilder, unit: Unit, tensor: Reference, dtype: str) -> Reference:
    """
    Convert a Keras 3 resize, which returns the dtype of its input. ``tf.image.resize`` returns
    float32 for any input dtype unless the method is ``nearest``.
    """
    config = unit.config
    others = ("crop_to_aspect_ratio", "pad_to_aspect_ratio")
    method = config.get("interpolation", "bilinear")
    if (
        any(config.get(key) for key in others)
        or config.get("data_format") == "channels_first"
        or not isinstance(method, str)
    ):
        raise UnsupportedOperationError(
            "resizes images with options that tf.image.resize does not have"
        )
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
        # keras/src/backend/tensorflow/nn.py
        ("nn", "Celu"): _celu,
        ("nn", "Glu"): _glu,
        ("nn", "Squareplus"): _squareplus,
        ("nn", "SoftShrink"): _soft_shrink,
        ("nn", "HardShrink"): _hard_shrink,
        ("nn", "Threshold"): _threshold,
        ("nn", "TanhShrink"): _tanh_shrink,
        ("nn", "SparsePlus"): _sparse_plus,
        ("nn", "HardTanh"): _hard_tanh,
        ("nn", "SparseSigmoid"): _sparse_sigmoid,
    }
)


CLASS_NAME = "Einsum"


class _Term(Struct, frozen=True, kw_only=True):
    """A tensor, with a letter for each axis."""

    tensor: Reference
    letters: str


def add_einsum(
    builder: OperationBuilder, unit: Unit, call: Call, dtypes: TensorDtypes
) -> Reference:
    """
    Add the functions that compute an Einsum, and return the result.

    :raises UnsupportedOperationError: if these functions cannot compute the equation
    """
    equation = str(unit.config.get("subscripts")).replace(" ", "")
    before, arrow, result = equation.partition("->")
    letters = before.split(",")
    tensors = [operand for operand in call.args if isinstance(operand, Reference)]
    kinds = {dtypes.of(operand) for operand in tensors}
    if len(kinds) != 1 or not kinds <= set(names_of_dtypes.FLOATS):
        raise UnsupportedOperationError(
            "is an Einsum of tensors that do not share a float dtype, which "
            "policytool does not convert"
        )
    if (
        not arrow
        or "." in equation
        or len(tensors) != len(letters)
        or len(tensors) != len(call.args)
        or len(tensors) not in (1, 2)
        or any(len(set(part)) != len(part) for part in (*letters, result))
    ):
        raise UnsupportedOperationError(
            f"is an Einsum with the equation {equation}, which policytool cannot convert to a "
            "product"
        )
    terms = [
        _Term(tensor=tensor, letters=part) for tensor, part in zip(tensors, letters, strict=True)
    ]
    return _arrange_axes(builder, _product(builder, terms, result), result).tensor


def _product(builder: OperationBuilder, terms: Sequence[_Term], result: str) -> _Term:
    """Return the product of two terms; axes that only one term has are summed first."""
    if len(terms) == 1:
        return _sum_other_axes(builder, terms[0], set(result))
    first, second = (
        _sum_other_axes(builder, term, {*result, *other.letters})
        for term, other in zip(terms, reversed(terms), strict=True)
    )
    shared = [letter for letter in first.letters if letter in second.letters]
    batch = "".join(letter for letter in shared if letter in result)
    summed_letters = "".join(letter for letter in shared if letter not in result)
    left_letters = "".join(letter for letter in first.letters if letter not in shared)
    right_letters = "".join(letter for letter in second.letters if letter not in shared)
    if max(len(summed_letters), len(left_letters), len(right_letters)) <= 1:
        return _matrices(
            builder, (first, second), (batch, left_letters, summed_letters, right_letters)
        )
    if batch:
        raise UnsupportedOperationError(
            "is an Einsum with batch axes that is not a plain matrix product; policytool does not "
            "convert this"
        )
    axes: list[Argument] = [
        [term.letters.index(letter) for letter in summed_letters] for term in (first, second)
    ]
    product = builder.function("tensordot", first.tensor, {"b": second.tensor, "axes": axes})
    return _Term(tensor=product, letters=left_letters + right_letters)


def _sum_other_axes(builder: OperationBuilder, term: _Term, kept: set[str]) -> _Term:
    axes = [axis for axis, letter in enumerate(term.letters) if letter not in kept]
    if not axes:
        return term
    total = builder.function("math.reduce_sum", term.tensor, {"axis": [*axes]})
    return _Term(tensor=total, letters="".join(letter for letter in term.letters if letter in kept))


def _matrices(
    builder: OperationBuilder, terms: tuple[_Term, _Term], axes: tuple[str, str, str, str]
) -> _Term:
    """Return a product of matrices; missing rows or columns become an axis of size 1."""
    batch, left_letters, summed_letters, right_letters = axes
    sides = []
    for term, ends in zip(
        terms, ((left_letters, summed_letters), (summed_letters, right_letters)), strict=True
    ):
        matrix = _arrange_axes(builder, term, batch + "".join(ends)).tensor
        if not ends[0]:
            matrix = builder.function("expand_dims", matrix, {"axis": -2 if ends[1] else -1})
        if not ends[1]:
            matrix = builder.function("expand_dims", matrix, {"axis": -1})
        sides.append(matrix)
    product = builder.function("linalg.matmul", sides[0], {"b": sides[1]})
    missing_axes = [
        axis for axis, letter in ((-2, left_letters), (-1, right_letters)) if not letter
    ]
    if missing_axes:
        product = builder.function("squeeze", product, {"axis": [*missing_axes]})
    return _Term(tensor=product, letters=batch + left_letters + right_letters)


def _arrange_axes(builder: OperationBuilder, term: _Term, letters: str) -> _Term:
    """
    Return a term with its axes in the order of ``letters``.

    :raises UnsupportedOperationError: if the term does not have exactly these axes
    """
    if set(letters) != set(term.letters):
        raise UnsupportedOperationError("is an Einsum whose result has an axis that no input has")
    if letters == term.letters:
        return term
    order = [term.letters.index(letter) for letter in letters]
    transposed = builder.function("transpose", term.tensor, {"perm": [*order]})
    return _Term(tensor=transposed, letters=letters)
