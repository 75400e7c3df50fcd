"""Functions of TensorFlow that several operations of Keras 3 compute together."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.architecture import Reference
from policytool.migration.convert.rewrites.operations._building import UnsayableError
from policytool.releases import dtypes as names_of_dtypes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from policytool.migration.convert.architecture import Argument, Call, Value
    from policytool.migration.convert.rewrites.operations._building import OperationBuilder
    from policytool.migration.convert.rewrites.operations._dtypes import Dtypes

    Compose = Callable[[OperationBuilder, Call, Dtypes], Reference | None]


def _floats(call: Call, dtypes: Dtypes) -> Reference:
    """Return the tensor that a function of one is called with."""
    first = call.args[0]
    if not isinstance(first, Reference) or dtypes.of(first) not in names_of_dtypes.FLOATS:
        raise UnsayableError(
            "calls a function of TensorFlow with something else than a tensor of floating-point "
            "numbers"
        )
    return first


def _matmul(builder: OperationBuilder, call: Call, dtypes: Dtypes) -> Reference | None:
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
        raise UnsayableError("multiplies matrices of which one is no tensor of the graph")
    swapped = {"axis1": -1, "axis2": -2}
    args = [
        builder.operation("numpy.Swapaxes", (side,), swapped) if flag else side
        for side, flag in zip(sides, flags, strict=True)
    ]
    return builder.operation("numpy.Matmul", tuple(args))


def _l2_normalize(builder: OperationBuilder, call: Call, dtypes: Dtypes) -> Reference:
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
    raise UnsayableError("calls a function of TensorFlow with an axis that is no number")


def _norm(builder: OperationBuilder, call: Call, dtypes: Dtypes) -> Reference:
    """Return the Euclidean norm."""
    if call.kwargs.get("ord", "euclidean") not in {"euclidean", 2}:
        raise UnsayableError("computes a norm that is not the Euclidean one")
    if call.kwargs.get("ord") == 2 and not isinstance(  # noqa: PLR2004  # the norm's order: of a matrix another thing
        call.kwargs.get("axis"), int
    ):
        raise UnsayableError("computes a norm of matrices")
    squares = builder.operation("numpy.Square", (_floats(call, dtypes),))
    total = builder.operation(
        "numpy.Sum",
        (squares,),
        {"axis": _axis(call), "keepdims": bool(call.kwargs.get("keepdims"))},
    )
    return builder.operation("numpy.Sqrt", (total,))


def _difference(builder: OperationBuilder, call: Call, dtypes: Dtypes) -> Reference:
    x = _floats(call, dtypes)
    y = call.kwargs.get("y")
    if not isinstance(y, Reference | int | float):
        raise UnsayableError("subtracts an array")
    return builder.operation("numpy.Square", (builder.operation("numpy.Subtract", (x, y)),))


def _add_n(builder: OperationBuilder, call: Call, dtypes: Dtypes) -> Reference:
    del dtypes
    terms = call.args[0]
    if isinstance(terms, Reference):
        terms = [terms]
    if not isinstance(terms, list) or not all(isinstance(term, Reference) for term in terms):
        raise UnsayableError("adds arrays that are no tensors of the graph")
    total: Argument = terms[0]
    if len(terms) == 1:
        return builder.operation("numpy.Copy", (total,))
    for term in terms[1:]:
        total = builder.operation("numpy.Add", (total, term))
    if not isinstance(total, Reference):
        raise UnsayableError("adds nothing")
    return total


_METHODS: Final = frozenset({"bilinear", "nearest", "bicubic", "lanczos3", "lanczos5"})


def _resize(builder: OperationBuilder, call: Call, dtypes: Dtypes) -> Reference:
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
        raise UnsayableError(f"resizes images by {method} or otherwise than Keras 3 can")
    if not isinstance(size, list) or not all(isinstance(item, int) for item in size):
        raise UnsayableError("resizes images to what a tensor says")
    if dtype != "float32" and method != "nearest":
        x = builder.operation("core.Cast", (x,), {"dtype": "float32"})
    config: dict[str, Value] = {
        "size": [item for item in size if isinstance(item, int)],
        "interpolation": str(method),
    }
    config |= {"antialias": bool(call.kwargs.get("antialias")), "data_format": "channels_last"}
    return builder.operation("image.Resize", (x,), config)


def _clip(builder: OperationBuilder, call: Call, dtypes: Dtypes) -> Reference | None:
    """Bounds that are tensors: ``tf.clip_by_value`` takes the smaller one first."""
    low, high = (call.kwargs.get(f"clip_value_{end}") for end in ("min", "max"))
    if not any(isinstance(bound, Reference) for bound in (low, high)):
        return None
    x = _floats(call, dtypes)
    if not all(isinstance(bound, Reference | int | float) for bound in (low, high)):
        raise UnsayableError("clips to arrays")
    return builder.operation("numpy.Maximum", (builder.operation("numpy.Minimum", (x, high)), low))


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
    }
)
"""By function; one that returns None leaves the call to the rows."""
