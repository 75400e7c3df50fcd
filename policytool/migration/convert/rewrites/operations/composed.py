"""Functions of TensorFlow that several operations of Keras 3 compute together."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.rewrites.operations._building import UnsayableError
from policytool.model.calls import Reference
from policytool.releases import dtypes as names_of_dtypes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from policytool.migration.convert.architecture import Value
    from policytool.migration.convert.rewrites.operations._building import OperationBuilder
    from policytool.migration.convert.tensor_dtypes import TensorDtypes
    from policytool.model.calls import Argument, Call

    Compose = Callable[[OperationBuilder, Call, TensorDtypes], Reference | None]


_EUCLIDEAN: Final = "euclidean"


def _floats(call: Call, dtypes: TensorDtypes) -> Reference:
    """Return the tensor that a function of one is called with."""
    first = call.args[0]
    if not isinstance(first, Reference) or dtypes.of(first) not in names_of_dtypes.FLOATS:
        raise UnsayableError(
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
        raise UnsayableError(
            "multiplies a matrix that is not a tensor in the graph, which "
            "policytool does not convert"
        )
    swapped = {"axis1": -1, "axis2": -2}
    args = [
        builder.operation("numpy.Swapaxes", (side,), swapped) if flag else side
        for side, flag in zip(sides, flags, strict=True)
    ]
    return builder.operation("numpy.Matmul", tuple(args))


def _l2_normalize(builder: OperationBuilder, call: Call, dtypes: TensorDtypes) -> Reference:
    """
    ``tf.math.l2_normalize``: times the reciprocal root of the sum of squares, which is at least
    ``epsilon``.
    """
    x = _floats(call, dtypes)
    epsilon = call.kwargs.get("epsilon", 1e-12)
    squares = builder.operation("numpy.Square", (x,))
    total = builder.operation("numpy.Sum", (squares,), {"axis": _axis(call), "keepdims": True})
    least = builder.operation("numpy.Maximum", (total, epsilon))
    return builder.operation("numpy.Multiply", (x, builder.operation("math.Rsqrt", (least,))))


def _axis(call: Call) -> Value:
    axis = call.kwargs.get("axis")
    if axis is None or isinstance(axis, int):
        return axis
    if isinstance(axis, list) and all(isinstance(item, int) for item in axis):
        return [item for item in axis if isinstance(item, int)]
    raise UnsayableError(
        "calls a TensorFlow function with an axis that is not a number, which "
        "policytool does not convert"
    )


def _norm(builder: OperationBuilder, call: Call, dtypes: TensorDtypes) -> Reference:
    """Return a norm of vectors, or the Euclidean one of several axes as one vector."""
    order = call.kwargs.get("ord") or _EUCLIDEAN
    if order != _EUCLIDEAN and isinstance(call.kwargs.get("axis"), list | tuple):
        raise UnsayableError("computes a matrix norm; policytool does not convert this")
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
        raise UnsayableError(f"computes a norm of order {order}; policytool does not convert this")
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
        raise UnsayableError("subtracts an array; policytool does not convert this")
    return builder.operation("numpy.Square", (builder.operation("numpy.Subtract", (x, y)),))


def _add_n(builder: OperationBuilder, call: Call, dtypes: TensorDtypes) -> Reference:
    del dtypes
    terms = call.args[0]
    if isinstance(terms, Reference):
        terms = [terms]
    if not isinstance(terms, list) or not all(isinstance(term, Reference) for term in terms):
        raise UnsayableError(
            "adds arrays that are not tensors in the graph; policytool does not convert this"
        )
    total: Argument = terms[0]
    if len(terms) == 1:
        return builder.operation("numpy.Copy", (total,))
    for term in terms[1:]:
        total = builder.operation("numpy.Add", (total, term))
    if not isinstance(total, Reference):
        raise UnsayableError("adds an empty list of tensors")
    return total


_SPACE: Final = 3
"""The most axes that windows have beside those of examples and channels."""

_METHODS: Final = frozenset({"bilinear", "nearest", "bicubic", "lanczos3", "lanczos5"})


def _resize(builder: OperationBuilder, call: Call, dtypes: TensorDtypes) -> Reference:
    """
    ``tf.image.resize`` gives float32 whatever it takes, but for the nearest pixels; Keras 3 gives
    what it takes.
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
        raise UnsayableError(
            f"resizes images by {method} or with options that Keras 3 does not have"
        )
    if not isinstance(size, list) or not all(isinstance(item, int) for item in size):
        raise UnsayableError(
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
    """Bounds that are tensors: ``tf.clip_by_value`` takes the smaller one first."""
    low, high = (call.kwargs.get(f"clip_value_{end}") for end in ("min", "max"))
    if not any(isinstance(bound, Reference) for bound in (low, high)):
        return None
    x = _floats(call, dtypes)
    if not all(isinstance(bound, Reference | int | float) for bound in (low, high)):
        raise UnsayableError(
            "uses arrays as the bounds of a clip; policytool does not convert this"
        )
    return builder.operation("numpy.Maximum", (builder.operation("numpy.Minimum", (x, high)), low))


def _like(op: str) -> Compose:
    """
    Return what fills a tensor of another dtype: a cast behind it, because Keras 3.11 moved the
    dtype from the operation's call into its config.
    """

    def compose(builder: OperationBuilder, call: Call, dtypes: TensorDtypes) -> Reference | None:
        del dtypes
        dtype = call.kwargs.get("dtype")
        if dtype is None:
            return None
        if not isinstance(dtype, str) or dtype not in names_of_dtypes.NAMES:
            raise UnsayableError("creates a tensor with a dtype that Keras 3 does not support")
        filled = builder.operation(f"numpy.{op}", (call.args[0],))
        return builder.operation("core.Cast", (filled,), {"dtype": dtype})

    return compose


def _einsum(builder: OperationBuilder, call: Call, dtypes: TensorDtypes) -> Reference:
    del builder, call, dtypes
    raise UnsayableError(
        "calls tf.einsum, but Keras 2 files do not contain its tensors; the release that wrote "
        "the file cannot load it either"
    )


def _pool(op: str, rank: str) -> Compose:
    """
    Return what pools windows of images, or of whatever has channels last.

    :param rank: what the function's name says of its windows, ``2d`` for those of images
    """
    axes = {"1d": (1, 3), "2d": (2, 4), "3d": (3, 5)}.get(rank, (1, 2, 4, 5))

    def compose(builder: OperationBuilder, call: Call, dtypes: TensorDtypes) -> Reference:
        x, padding = _floats(call, dtypes), call.kwargs.get("padding")
        order = call.kwargs.get("data_format") or "NHWC"
        if padding not in {"VALID", "SAME"} or not str(order).endswith("C"):
            raise UnsayableError(
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
    Return the sizes of an image's axes, without those of its examples and channels.

    :param ranks: how many sizes say which axes they are of; three can be all, or those of space
    """
    if isinstance(sizes, int):
        return sizes
    found: list[Value] = []
    if isinstance(sizes, list):
        found += [size for size in sizes if isinstance(size, int)]
    whole = len(found) > _SPACE or (len(found) == _SPACE and ranks == (1, _SPACE))
    if len(found) in ranks and whole and found[0] == found[-1] == 1:
        found = found[1:-1]
    elif len(found) not in ranks or whole:
        found = []
    if found:
        return found if len(found) > 1 else found[0]
    raise UnsayableError("uses pooling windows whose sizes do not match the axes")


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
"""By function; one that returns None leaves the call to the rows."""
