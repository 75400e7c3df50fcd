"""
From op layers of Keras 2 to operations of Keras 3.

:data:`COMPOSED` contains the TensorFlow functions that require several operations.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.rewrites.operations import _building
from policytool.migration.convert.rewrites.operations._building import (
    SLICING,
    OperationBuilder,
    UnsupportedOperationError,
)
from policytool.migration.convert.tensor_facts import called_class
from policytool.migration.result_dtypes import (
    named_arguments_of_op_layer,
    promoted_dtype_of_tensors,
)
from policytool.model.calls import Constant, Reference, tensors
from policytool.releases import dtypes as names_of_dtypes
from policytool.releases.keras_operations import REQUIRED, Pair, ParameterKind, Place

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from policytool.migration.convert.architecture import Unit, Value
    from policytool.migration.convert.tensor_facts import TensorDtypes
    from policytool.model.calls import Argument, Call
    from policytool.releases.keras_operations import OperationRow

    Compose = Callable[[OperationBuilder, Call, TensorDtypes], Reference | None]


_EUCLIDEAN: Final = "euclidean"


def _floats(call: Call, dtypes: TensorDtypes) -> Reference:
    """Return the input tensor of a function with a single float tensor."""
    first = call.args[0]
    if not isinstance(first, Reference) or dtypes.of(first) not in names_of_dtypes.FLOATS:
        raise UnsupportedOperationError(
            "calls a TensorFlow function with an input other than a float "
            "tensor; policytool does not convert this"
        )
    return first


def _matmul(builder: OperationBuilder, call: Call, dtypes: TensorDtypes) -> Reference | None:
    """``transpose_a`` and ``transpose_b`` swap the last two axes."""
    flags = [
        call.kwargs.get(f"transpose_{side}") or call.kwargs.get(f"adjoint_{side}") for side in "ab"
    ]
    if not any(flags):
        return None
    _floats(call, dtypes)
    sides = [call.args[0], call.kwargs.get("b")]
    if (
        not all(isinstance(side, Reference) for side in sides)
        or call.kwargs.get("output_type") is not None
    ):
        raise UnsupportedOperationError(
            "multiplies a matrix that is not a tensor in the graph, which "
            "policytool does not convert"
        )
    last_axes = {"axis1": -1, "axis2": -2}
    args = [
        builder.operation("numpy.Swapaxes", (side,), last_axes) if flag else side
        for side, flag in zip(sides, flags, strict=True)
    ]
    return builder.operation("numpy.Matmul", tuple(args))


def _l2_normalize(builder: OperationBuilder, call: Call, dtypes: TensorDtypes) -> Reference:
    """
    ``tf.math.l2_normalize``: multiply by the reciprocal square root of the sum of squares, which is
    limited to at least ``epsilon``.
    """
    x = _floats(call, dtypes)
    epsilon = call.kwargs.get("epsilon", 1e-12)
    squares = builder.operation("numpy.Square", (x,))
    total = builder.operation("numpy.Sum", (squares,), {"axis": _axis(call), "keepdims": True})
    limited = builder.operation("numpy.Maximum", (total, epsilon))
    return builder.operation("numpy.Multiply", (x, builder.operation("math.Rsqrt", (limited,))))


def _axis(call: Call) -> Value:
    """Return the axis of a call: a number, a list of numbers, or None."""
    axis = call.kwargs.get("axis")
    if axis is None or isinstance(axis, int):
        return axis
    if isinstance(axis, list) and all(isinstance(item, int) for item in axis):
        return [item for item in axis if isinstance(item, int)]
    raise UnsupportedOperationError(
        "calls a TensorFlow function with an axis that is not a number, which "
        "policytool does not convert"
    )


def _norm(builder: OperationBuilder, call: Call, dtypes: TensorDtypes) -> Reference:
    """Return a norm of vectors, or the Euclidean norm over several axes."""
    order = call.kwargs.get("ord") or _EUCLIDEAN
    if order != _EUCLIDEAN and isinstance(call.kwargs.get("axis"), list | tuple):
        raise UnsupportedOperationError("computes a matrix norm; policytool does not convert this")
    if order == 2 and call.kwargs.get("axis") is None:  # noqa: PLR2004
        order = _EUCLIDEAN
    config: dict[str, Value] = {"axis": _axis(call), "keepdims": bool(call.kwargs.get("keepdims"))}
    x = _floats(call, dtypes)
    if order in {_EUCLIDEAN, 2}:
        squares = builder.operation("numpy.Square", (x,))
        return builder.operation(
            "numpy.Sqrt", (builder.operation("numpy.Sum", (squares,), config),)
        )
    if isinstance(order, bool) or not isinstance(order, int | float):
        raise UnsupportedOperationError(
            f"computes a norm of order {order}; policytool does not convert this"
        )
    sizes = builder.operation("numpy.Absolute", (x,))
    if order == float("inf"):
        return builder.operation("numpy.Max", (sizes,), config)
    if order == 1:
        return builder.operation("numpy.Sum", (sizes,), config)
    powers = builder.operation("numpy.Power", (sizes, float(order)))
    total = builder.operation("numpy.Sum", (powers,), config)
    return builder.operation("numpy.Power", (total, 1 / order))


def _difference(builder: OperationBuilder, call: Call, dtypes: TensorDtypes) -> Reference:
    x = _floats(call, dtypes)
    y = call.kwargs.get("y")
    if not isinstance(y, Reference | int | float):
        raise UnsupportedOperationError("subtracts an array; policytool does not convert this")
    return builder.operation("numpy.Square", (builder.operation("numpy.Subtract", (x, y)),))


def _add_n(builder: OperationBuilder, call: Call, _dtypes: TensorDtypes) -> Reference:
    """Add the operations that add up a list of tensors, and return the sum."""
    terms = call.args[0]
    if isinstance(terms, Reference):
        terms = [terms]
    if not isinstance(terms, list) or not all(isinstance(term, Reference) for term in terms):
        raise UnsupportedOperationError(
            "adds arrays that are not tensors in the graph; policytool does not convert this"
        )
    total: Argument = terms[0]
    if len(terms) == 1:
        return builder.operation("numpy.Copy", (total,))
    for term in terms[1:]:
        total = builder.operation("numpy.Add", (total, term))
    if not isinstance(total, Reference):
        raise UnsupportedOperationError("adds an empty list of tensors")
    return total


_SPACE: Final = 3
"""The largest number of spatial axes of a window."""

_METHODS: Final = frozenset({"bilinear", "nearest", "bicubic", "lanczos3", "lanczos5"})


def _resize(builder: OperationBuilder, call: Call, dtypes: TensorDtypes) -> Reference:
    """
    Convert ``tf.image.resize``, which returns float32 for any input dtype unless the method is
    ``nearest``; the Keras 3 operation returns the dtype of its input.
    """
    x, size = call.args[0], call.kwargs.get("size")
    method = call.kwargs.get("method") or "bilinear"
    dtype = dtypes.of(x)
    if (
        not isinstance(x, Reference)
        or dtype is None
        or method not in _METHODS
        or call.kwargs.get("preserve_aspect_ratio")
    ):
        raise UnsupportedOperationError(
            f"resizes images by {method} or with options that Keras 3 does not have"
        )
    if not isinstance(size, list) or not all(isinstance(item, int) for item in size):
        raise UnsupportedOperationError(
            "uses a tensor as the new size of images; policytool does not convert this"
        )
    if dtype != "float32" and method != "nearest":
        x = builder.operation("core.Cast", (x,), {"dtype": "float32"})
    config: dict[str, Value] = {
        "size": [item for item in size if isinstance(item, int)],
        "interpolation": str(method),
    }
    config |= {"antialias": bool(call.kwargs.get("antialias")), "data_format": "channels_last"}
    return builder.operation("image.Resize", (x,), config)


def _clip(builder: OperationBuilder, call: Call, dtypes: TensorDtypes) -> Reference | None:
    """Convert bounds that are tensors: ``tf.clip_by_value`` applies the upper bound first."""
    lower, upper = (call.kwargs.get(f"clip_value_{end}") for end in ("min", "max"))
    if not any(isinstance(bound, Reference) for bound in (lower, upper)):
        return None
    x = _floats(call, dtypes)
    if not all(isinstance(bound, Reference | int | float) for bound in (lower, upper)):
        raise UnsupportedOperationError(
            "uses arrays as the bounds of a clip; policytool does not convert this"
        )
    return builder.operation(
        "numpy.Maximum", (builder.operation("numpy.Minimum", (x, upper)), lower)
    )


def _like(op: str) -> Compose:
    """
    Return a function that composes a filled tensor of another dtype: a cast follows the operation,
    because Keras 3.11 moved the dtype from the operation's call to its config.
    """

    def compose(builder: OperationBuilder, call: Call, _dtypes: TensorDtypes) -> Reference | None:
        dtype = call.kwargs.get("dtype")
        if dtype is None:
            return None
        if not isinstance(dtype, str) or dtype not in names_of_dtypes.NAMES:
            raise UnsupportedOperationError(
                "creates a tensor with a dtype that Keras 3 does not support"
            )
        filled = builder.operation(f"numpy.{op}", (call.args[0],))
        return builder.operation("core.Cast", (filled,), {"dtype": dtype})

    return compose


def _einsum(_builder: OperationBuilder, _call: Call, _dtypes: TensorDtypes) -> Reference:
    """Reject an einsum, whose tensors Keras 2 files lack."""
    raise UnsupportedOperationError(
        "calls tf.einsum, but Keras 2 files do not contain its tensors; the release that wrote "
        "the file cannot load it either"
    )


def _pool(op: str, rank: str) -> Compose:
    """
    Return a function that composes pooling of images or other inputs with channels last.

    :param rank: the rank of the windows in the function's name, such as ``2d`` for images
    """
    axes = {"1d": (1, 3), "2d": (2, 4), "3d": (3, 5)}.get(rank, (1, 2, 4, 5))

    def compose(builder: OperationBuilder, call: Call, dtypes: TensorDtypes) -> Reference:
        x, padding = _floats(call, dtypes), call.kwargs.get("padding")
        order = call.kwargs.get("data_format") or "NHWC"
        if padding not in {"VALID", "SAME"} or not str(order).endswith("C"):
            raise UnsupportedOperationError(
                "pools with channels_first data or explicit padding, which "
                "policytool does not convert"
            )
        config: dict[str, Value] = {
            "pool_size": _windows(call.kwargs.get("ksize"), axes),
            "strides": _windows(call.kwargs.get("strides"), axes),
            "padding": str(padding).lower(),
            "data_format": "channels_last",
        }
        return builder.operation(f"nn.{op}", (x,), config)

    return compose


def _windows(sizes: Argument, ranks: tuple[int, ...]) -> Value:
    """
    Return the window sizes for the spatial axes, without those of the batch and the channels.

    :param ranks: the numbers of sizes for which the axes are known; three sizes can be those of all
        axes, or of the spatial axes
    """
    if isinstance(sizes, int):
        return sizes
    windows: list[Value] = []
    if isinstance(sizes, list):
        windows += [size for size in sizes if isinstance(size, int)]
    covers_all_axes = len(windows) > _SPACE or (len(windows) == _SPACE and ranks == (1, _SPACE))
    if len(windows) in ranks and covers_all_axes and windows[0] == windows[-1] == 1:
        windows = windows[1:-1]
    elif len(windows) not in ranks or covers_all_axes:
        windows = []
    if windows:
        return windows if len(windows) > 1 else windows[0]
    raise UnsupportedOperationError("uses pooling windows whose sizes do not match the axes")


COMPOSED: Final[Mapping[str, Compose]] = MappingProxyType(
    {
        "linalg.matmul": _matmul,
        "matmul": _matmul,
        "math.l2_normalize": _l2_normalize,
        "nn.l2_normalize": _l2_normalize,
        "norm": _norm,
        "compat.v1.norm": _norm,
        "math.squared_difference": _difference,
        "math.add_n": _add_n,
        "image.resize": _resize,
        "clip_by_value": _clip,
        **dict.fromkeys(("zeros_like", "compat.v1.zeros_like"), _like("ZerosLike")),
        **dict.fromkeys(("ones_like", "compat.v1.ones_like"), _like("OnesLike")),
        "einsum": _einsum,
        "linalg.einsum": _einsum,
        **{
            f"{prefix}nn.{kind}_pool{rank}": _pool(op, rank)
            for prefix in ("", "compat.v1.")
            for kind, op in (("avg", "AveragePool"), ("max", "MaxPool"))
            for rank in ("", "1d", "2d", "3d")
        },
    }
)
"""The composing functions, by TensorFlow function; if one returns None, the rows are used."""


def add_operations(
    builder: OperationBuilder, unit: Unit, call: Call, dtypes: TensorDtypes
) -> Reference:
    """
    Add the operations that compute one call of an op layer, and return the result.

    :raises UnsupportedOperationError: if no operations compute it
    """
    if unit.class_name == SLICING:
        return _building.add_keras3_slicing(builder, call)
    function = str(unit.config.get("function"))
    compose = COMPOSED.get(function)
    if compose is not None:
        result = compose(builder, call, dtypes)
        if result is not None:
            return result
    row = called_class(unit).row
    if row is None:
        raise UnsupportedOperationError(
            f"calls tf.{function}, for which no Keras 3 operation is known"
        )
    arguments = named_arguments_of_op_layer(row, call)
    if arguments is None:
        raise UnsupportedOperationError(
            f"calls tf.{function}, but the file does not contain its arguments"
        )
    return _call(builder, row, arguments, dtypes)


def _call(
    builder: OperationBuilder,
    row: OperationRow,
    arguments: dict[str, Argument],
    dtypes: TensorDtypes,
) -> Reference:
    """
    Add the operation for a row of the operation table, with a cast of its result, and return the
    result.
    """
    known = {pair.tf for pair in row.pairs} | {"name"}
    for key, value in arguments.items():
        if key not in known and value not in row.ignored.get(key, ()):
            raise UnsupportedOperationError(
                f"calls tf.{row.functions[0]} with {key}, which {row.op} in Keras 3 does not "
                "support"
            )
    dtype = promoted_dtype_of_tensors(row, arguments, dtypes.of)
    if row.floats and dtype not in names_of_dtypes.FLOATS:
        raise UnsupportedOperationError(
            f"calls tf.{row.functions[0]} on {dtype or 'tensors of unknown dtype'}, for which "
            f"{row.op} in Keras 3 returns different results"
        )
    args: list[Argument] = []
    kwargs: dict[str, Argument] = {}
    config: dict[str, Value] = {}
    for pair in row.pairs:
        value = arguments[pair.tf]
        if pair.place is Place.CONFIG:
            config[pair.keras3] = _plain(row, pair, value)
        elif pair.default is not REQUIRED and value == pair.default:
            continue
        elif len(args) == row.call_arguments.index(pair):
            args.append(_tensor(row, pair, value, dtype))
        else:
            kwargs[pair.keras3] = _tensor(row, pair, value, dtype)
    result = builder.operation(f"{row.module}.{row.op}", tuple(args), config, kwargs)
    if row.result3 is not None and row.result is not None:
        result = builder.operation("core.Cast", (result,), {"dtype": row.result})
    return result


def _plain(row: OperationRow, pair: Pair, value: Argument) -> Value:
    """Return an argument in the form of the operation's config."""
    if pair.kind is ParameterKind.SHAPE:
        return shape(value)
    if any(True for _ in tensors(value)):
        raise UnsupportedOperationError(
            f"calls tf.{row.functions[0]} with a tensor as {pair.tf}, which {row.op} in Keras 3 "
            "does not support"
        )
    if pair.kind is ParameterKind.SPLITS and isinstance(value, list):
        return _cuts(value)
    if pair.kind is ParameterKind.LIST and isinstance(value, int):
        return [value]
    if pair.kind is ParameterKind.MODE:
        return str(value).lower()
    if pair.kind is ParameterKind.AXES and isinstance(value, list) and len(value) == 1:
        return value[0]  # type: ignore[return-value]  # no tensors in it; Keras 3.3 takes no list
    if value is None and pair.default is None:
        return None
    if pair.kind is ParameterKind.DTYPE and not (
        isinstance(value, str) and value in names_of_dtypes.NAMES
    ):
        raise UnsupportedOperationError(
            f"calls tf.{row.functions[0]} with a dtype that Keras 3 does not support"
        )
    return value  # type: ignore[return-value]  # no tensors in it, and JSON otherwise


def shape(value: Argument) -> Value:
    """
    Return the target shape of a tensor, with -1 for a size that is a tensor, which follows from all
    other sizes.

    :raises UnsupportedOperationError: if more than one size is unknown
    """
    if not isinstance(value, list | tuple):
        raise UnsupportedOperationError(
            "computes its shape from a tensor, which Keras 3 configs cannot represent"
        )
    sizes = [item if isinstance(item, int) else -1 for item in value]
    if sizes.count(-1) > 1:
        raise UnsupportedOperationError(
            "computes its shape from several tensors, which Keras 3 configs cannot represent"
        )
    return list(sizes)


def _cuts(sizes: list[Argument]) -> Value:
    """Return the positions at which a tensor is split into parts of these sizes."""
    positions: list[Value] = []
    total = 0
    for size in sizes[:-1]:
        if not isinstance(size, int) or size < 0:
            raise UnsupportedOperationError(
                "splits by sizes that include -1, which Keras 3 does not support"
            )
        total += size
        positions.append(total)
    return positions


def _tensor(row: OperationRow, pair: Pair, value: Argument, dtype: str | None) -> Argument:
    """
    Return an argument of an operation's call: arrays get the dtype of the other tensors, as in
    TensorFlow.
    """
    value = _number(value)
    if pair.kind is ParameterKind.TENSORS and isinstance(value, list | tuple):
        return [_tensor(row, PLAIN, item, dtype) for item in value]
    if isinstance(value, Constant):
        value = value.value
    if isinstance(value, list | tuple):
        if any(True for _ in tensors(value)):
            raise UnsupportedOperationError(
                f"calls tf.{row.functions[0]} with a list of tensors as {pair.tf}, which "
                "policytool does not convert"
            )
        if pair.kind is ParameterKind.FREE:
            return Constant(value=list(value), dtype=_own(value))
        if dtype is None:
            raise UnsupportedOperationError(
                f"calls tf.{row.functions[0]} with an array and tensors of unknown dtype, which "
                "policytool does not convert"
            )
        return Constant(value=list(value), dtype=dtype)
    if not isinstance(value, Reference | bool | int | float):
        raise UnsupportedOperationError(
            f"calls tf.{row.functions[0]} with {pair.tf}, which is not a tensor"
        )
    return value


def _number(argument: Argument) -> Argument:
    """Return the number of a constant with a single number; other arguments are unchanged."""
    return (
        argument.value
        if isinstance(argument, Constant)
        and argument.dtype is None
        and isinstance(argument.value, bool | int | float | str)
        else argument
    )


def _own(value: Argument) -> str:
    """Return the dtype of a constant, according to its first number."""
    while isinstance(value, list | tuple):
        value = value[0] if value else 0
    return "bool" if isinstance(value, bool) else "int32" if isinstance(value, int) else "float32"


PLAIN: Final = Pair(tf="values", keras3="x", kind=ParameterKind.TENSOR, place=Place.CALL)
"""A tensor in a list of tensors."""
