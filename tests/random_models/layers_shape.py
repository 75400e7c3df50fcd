"""Layers that pool, crop, pad, repeat and reorder."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Final

from tests.random_models.steps import Step, static, window_length

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.random_models.description import Shape
    from tests.random_models.drawing import Draw
    from tests.random_models.steps import Maker, Value

_LARGEST: Final = 400
"""How many numbers a value may have for each example, so that models stay small."""


def _pooling(draw: Draw, value: Value) -> Step | None:
    if value.rank not in {2, 3, 4}:
        return None
    known = [size for size in value.shape[:-1] if size is not None]
    window = draw.whole(1, min(3, *known, 3))
    stride = draw.pick((None, 1, 2))
    padding = draw.pick(("same", "valid")) if len(known) == value.rank - 1 else "same"
    shape = tuple(
        window_length(size, window, stride or window, padding) for size in value.shape[:-1]
    )
    what = f"{draw.pick(('Max', 'Average'))}Pooling{value.rank - 1}D"
    config = {"pool_size": window, "strides": stride, "padding": padding}
    return Step(what=what, config=config, shape=(*shape, value.channels))


def _global_pooling(draw: Draw, value: Value) -> Step | None:
    if value.rank not in {2, 3, 4} or value.channels is None:
        return None
    keeps = draw.chance(0.2)
    what = f"Global{draw.pick(('Max', 'Average'))}Pooling{value.rank - 1}D"
    ones = (1,) * (value.rank - 1) if keeps else ()
    return Step(what=what, config={"keepdims": keeps}, shape=(*ones, value.channels))


def _cropping(draw: Draw, value: Value) -> Step | None:
    if value.rank not in {2, 3, 4}:
        return None
    pairs = [[draw.whole(0, 1), draw.whole(0, 1)] for _ in value.shape[:-1]]
    if any(size is not None and size <= sum(pair) for size, pair in _zip(value.shape, pairs)):
        return None
    shape = tuple(size and size - sum(pair) for size, pair in _zip(value.shape, pairs))
    what = f"Cropping{value.rank - 1}D"
    return Step(what=what, config={"cropping": _option(pairs)}, shape=(*shape, value.channels))


def _padding(draw: Draw, value: Value) -> Step | None:
    if value.rank not in {2, 3, 4} or prod(size or 4 for size in value.shape) > _LARGEST:
        return None
    pairs = [[draw.whole(0, 2), draw.whole(0, 2)] for _ in value.shape[:-1]]
    shape = tuple(size and size + sum(pair) for size, pair in _zip(value.shape, pairs))
    what = f"ZeroPadding{value.rank - 1}D"
    return Step(what=what, config={"padding": _option(pairs)}, shape=(*shape, value.channels))


def _zip(shape: Shape, pairs: list[list[int]]) -> list[tuple[int | None, list[int]]]:
    return list(zip(shape[:-1], pairs, strict=True))


def _option(pairs: list[list[int]]) -> Any:
    return pairs[0] if len(pairs) == 1 else pairs


def _upsampling(draw: Draw, value: Value) -> Step | None:
    if value.rank not in {2, 3, 4} or prod(size or 4 for size in value.shape) > _LARGEST:
        return None
    shape = tuple(size and size * 2 for size in value.shape[:-1])
    config: dict[str, Any] = {"size": 2 if value.rank == 2 else [2] * (value.rank - 1)}
    if value.rank == 3:
        config["interpolation"] = draw.pick(("nearest", "bilinear"))
    what = f"UpSampling{value.rank - 1}D"
    return Step(what=what, config=config, shape=(*shape, value.channels))


def _flatten(_: Draw, value: Value) -> Step | None:
    sizes = static(value.shape)
    if sizes is None or value.rank < 2:
        return None
    return Step(what="Flatten", shape=(prod(sizes),))


def _reshape(draw: Draw, value: Value) -> Step | None:
    sizes = static(value.shape)
    if sizes is None or not sizes:
        return None
    total = prod(sizes)
    first = draw.pick([size for size in range(1, total + 1) if total % size == 0])
    target: list[int] = draw.pick(([first, total // first], [total], [1, first, total // first]))
    result = [-1, *target[1:]] if draw.chance(0.3) else target
    return Step(what="Reshape", config={"target_shape": result}, shape=tuple(target))


def _permute(draw: Draw, value: Value) -> Step | None:
    if value.rank < 2 or static(value.shape) is None:
        return None
    order = list(range(value.rank))
    draw.random.shuffle(order)
    return Step(
        what="Permute",
        config={"dims": [axis + 1 for axis in order]},
        shape=tuple(value.shape[axis] for axis in order),
    )


def _repeat(draw: Draw, value: Value) -> Step | None:
    if value.rank != 1:
        return None
    times = draw.whole(2, 5)
    return Step(what="RepeatVector", config={"n": times}, shape=(times, *value.shape))


def _identity(_: Draw, value: Value) -> Step:
    return Step(what="Identity", shape=value.shape)


MAKERS: Final[Mapping[str, Maker]] = {
    "Pooling": _pooling,
    "GlobalPooling": _global_pooling,
    "Cropping": _cropping,
    "ZeroPadding": _padding,
    "UpSampling": _upsampling,
    "Flatten": _flatten,
    "Reshape": _reshape,
    "Permute": _permute,
    "RepeatVector": _repeat,
    "Identity": _identity,
}
