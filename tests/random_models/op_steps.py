"""Steps that are ops on tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.random_models.steps import Step, static

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.random_models.description import Shape
    from tests.random_models.drawing import Draw
    from tests.random_models.steps import Maker, Value


def _op(name: str, shape: Shape, **config: Any) -> Step:
    return Step(what=name, kind="op", shape=shape, config=config)


def _arithmetic(draw: Draw, value: Value) -> Step:
    name = draw.pick(("add_number", "multiply_number", "number_minus", "divide_number", "negative"))
    config = {} if name == "negative" else {"number": draw.number_between(0.3, 3)}
    return _op(name, value.shape, **config)


_ELEMENTWISE: Final = (
    *("relu", "sigmoid", "tanh", "softplus", "abs", "square", "exp_negative_square", "clip"),
    *("log1p_abs", "sqrt_abs", "rsqrt", "reciprocal", "sin", "cos", "atan", "erf", "sign"),
    *("elu", "selu", "gelu", "leaky_relu", "silu", "log_sigmoid", "softsign", "relu6", "power"),
    *("where_positive", "at_least", "stop_gradient", "cast_there_and_back", "floor", "ones_like"),
)


def _elementwise(draw: Draw, value: Value) -> Step:
    return _op(draw.pick(_ELEMENTWISE), value.shape)


def _along_last(draw: Draw, value: Value) -> Step | None:
    name = draw.pick(("softmax", "softmax", "log_softmax", "cumsum", "flip", "sort", "roll"))
    return _op(name, value.shape) if value.rank else None


def _reduction(draw: Draw, value: Value) -> Step | None:
    if value.rank < 2:
        return None
    name = draw.pick(("mean", "sum", "max", "min", "std", "variance", "logsumexp", "prod"))
    axis = draw.whole(1, value.rank - 1)
    keeps = draw.chance(0.4)
    middle = (1,) if keeps else ()
    return _op(
        name,
        (*value.shape[: axis - 1], *middle, *value.shape[axis:]),
        axis=axis,
        keepdims=keeps,
    )


def _slice(draw: Draw, value: Value) -> Step | None:
    """Return an index for each axis: all, a range, a number; with an ellipsis, or a new axis."""
    sizes = static(value.shape)
    if not sizes:
        return None
    index: list[Any] = ["all"]
    shape: list[int] = []
    for size in sizes[:-1]:
        one, left = _axis_index(draw, size)
        index.append(one)
        shape += left
    last = sizes[-1]
    if last > 1 and draw.chance(0.5):
        last = draw.whole(1, last - 1)
        index.append([None, last, None])
    else:
        index.append("all")
    if draw.chance(0.3):
        kept = index[-1]
        index, shape = ["ellipsis", kept], [*sizes[:-1]]
    elif draw.chance(0.1) and index[-1] == "all":
        index[-1:] = ["new", "all"]
        shape.append(1)
    return _op("slice", (*shape, last), index=index)


def _axis_index(draw: Draw, size: int) -> tuple[Any, list[int]]:
    chance = draw.random.random()
    if chance < 0.3:
        return draw.pick((0, -1)), []
    if chance < 0.6 and size > 1:
        start = draw.whole(0, size - 1)
        return [start, None, None], [size - start]
    if chance < 0.7:
        return [None, None, 2], [-(-size // 2)]
    return "all", [size]


def _reshape(_: Draw, value: Value) -> Step | None:
    sizes = static(value.shape)
    if sizes is None or value.rank < 2:
        return None
    return _op(
        "reshape", (sizes[0] * sizes[1], *sizes[2:]), sizes=[-1, sizes[0] * sizes[1], *sizes[2:]]
    )


def _transpose(_: Draw, value: Value) -> Step | None:
    if value.rank < 2 or static(value.shape) is None:
        return None
    first, second, *others = value.shape
    order = [0, 2, 1, *range(3, value.rank + 1)]
    return _op("transpose", (second, first, *others), order=order)


def _expand(draw: Draw, value: Value) -> Step | None:
    if not value.rank or value.rank > 3:
        return None
    axis = draw.pick((1, value.rank))
    return _op("expand", (*value.shape[: axis - 1], 1, *value.shape[axis - 1 :]), axis=axis)


def _squeeze(_: Draw, value: Value) -> Step | None:
    axes = [axis for axis, size in enumerate(value.shape[:-1]) if size == 1]
    if not axes:
        return None
    shape = (*value.shape[: axes[0]], *value.shape[axes[0] + 1 :])
    return _op("squeeze", shape, axis=axes[0] + 1)


def _normalize(draw: Draw, value: Value) -> Step | None:
    if draw.keras3 and draw.chance(0.9):  # seldom used there
        return None
    return _op("normalize", value.shape) if value.rank else None


def _resized(draw: Draw, value: Value) -> Step | None:
    """Return an op that makes the last axis longer or shorter."""
    size = value.channels
    if size is None or size > _LONGEST:
        return None
    found = {"tile": 2 * size, "repeat": 2 * size, "pad": size + 3, "take": 2}
    if size % 2 == 0:
        found["split"] = size // 2
    if size > 1:
        found["top_k"] = 2
    name = draw.pick(sorted(found))
    return _op(name, (*value.shape[:-1], found[name]), rank=value.rank)


def _stacked(draw: Draw, value: Value) -> Step | None:
    """Return an op that adds an axis of a known size, or takes one away."""
    if value.rank not in {1, 2} or value.channels is None:
        return None
    name = draw.pick(("stack_twice", "one_hot", "unstack"))
    if name == "stack_twice":
        return _op(name, (2, *value.shape))
    if name == "one_hot":
        return _op(name, value.shape, depth=value.channels)
    if value.rank == 1 or static(value.shape) is None:
        return None
    return _op(name, (value.shape[-1],), number=value.shape[0])


def _product(_: Draw, value: Value) -> Step | None:
    """Return the product of a sequence with itself."""
    if value.rank != 2 or static(value.shape) is None:
        return None
    return _op("product", (value.shape[0], value.shape[0]))


def _image(draw: Draw, value: Value) -> Step | None:
    """Return an op on images."""
    sizes = static(value.shape)
    if sizes is None or value.rank != 3:
        return None
    height, width, channels = sizes
    found = {"resize": (5, 4, channels), "global_pool": (1, 1, channels)}
    if height % 2 == 0 == width % 2 and channels < _LONGEST:
        found["space_to_depth"] = (height // 2, width // 2, 4 * channels)
    if channels % 4 == 0:
        found["depth_to_space"] = (2 * height, 2 * width, channels // 4)
    name = draw.pick(sorted(found))
    return _op(name, found[name])


_LONGEST: Final = 16

MAKERS: Final[Mapping[str, Maker]] = {
    "op.arithmetic": _arithmetic,
    "op.elementwise": _elementwise,
    "op.along_last": _along_last,
    "op.resized": _resized,
    "op.stacked": _stacked,
    "op.product": _product,
    "op.image": _image,
    "op.reduction": _reduction,
    "op.slice": _slice,
    "op.reshape": _reshape,
    "op.transpose": _transpose,
    "op.expand": _expand,
    "op.squeeze": _squeeze,
    "op.normalize": _normalize,
}
