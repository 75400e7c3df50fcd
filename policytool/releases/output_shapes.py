"""
The shapes of what layers return, computed from their configs and the shapes of their inputs.

The property ``output_shape`` in ``data/layer_classes.json`` has an item for each axis: an argument,
or several sizes, which a function here computes. A size that depends on anything else is not known.
"""

from __future__ import annotations

import math
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from policytool.releases.layer_classes import layer_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from policytool.releases.layer_variables import Shape

    Inputs = Sequence[Shape | None]
    Config = Mapping[str, object]

_SEVERAL: Final = "*"
_FIRST: Final = "channels_first"
_EQUATION: Final = re.compile(r"(?P<left>[A-Za-z.]+),[A-Za-z]+->(?P<output>[A-Za-z.]+)")


def output_shape(class_name: str, config: Config, inputs: Inputs) -> Shape | None:
    """
    Return the shape of what a layer returns, the first tensor if it returns several; None if its
    rank is not known.

    :param inputs: the shapes of the tensors that it is called on, with the batch
    """
    items = layer_facts(class_name).output_shape
    if not items or not inputs:
        return None
    shape: list[int | None] = []
    for item in items:
        if item.startswith(_SEVERAL):
            sizes = _SEVERAL_SIZES[item.removeprefix(_SEVERAL)](config, inputs)
            if sizes is None:
                return None
            shape += sizes
        else:
            shape.append(_integer(config.get(item)))
    return tuple(shape)


def joined(shapes: Inputs, axis: int) -> Shape | None:
    """Return the shape of tensors that are joined along an axis."""
    known = [shape for shape in shapes if shape is not None]
    if not known or len(known) != len(shapes) or len({len(shape) for shape in known}) != 1:
        return None
    rank = len(known[0])
    if not -rank <= axis < rank:
        return None
    columns = list(zip(*known, strict=True))
    return tuple(
        _sum(sizes) if number == axis % rank else _common(sizes)
        for number, sizes in enumerate(columns)
    )


def _sum(sizes: Sequence[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def _common(sizes: Sequence[int | None]) -> int | None:
    """Return the one size of an axis that is the same in all tensors, None if they differ."""
    known = {size for size in sizes if size is not None}
    return known.pop() if len(known) == 1 else None


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _numbers(value: object, count: int) -> list[int] | None:
    """Return an argument with a number for each of some axes; None if it is something else."""
    listed = list(value) if isinstance(value, list | tuple) else [value] * count
    numbers = [number for item in listed if (number := _integer(item)) is not None]
    return numbers if len(numbers) == count == len(listed) else None


def _pairs(value: object, count: int) -> list[tuple[int, int]] | None:
    """Return an argument with two numbers for each of some axes, or one number for both."""
    if count == 1 and (numbers := _numbers(value, 2)) is not None:
        return [(numbers[0], numbers[1])]
    listed = list(value) if isinstance(value, list | tuple) else [value] * count
    pairs = [pair for item in listed if (pair := _numbers(item, 2)) is not None]
    return [(pair[0], pair[1]) for pair in pairs] if len(pairs) == count == len(listed) else None


def _first(inputs: Inputs) -> Shape | None:
    return inputs[0]


def _leading(_config: Config, inputs: Inputs) -> Shape | None:
    shape = _first(inputs)
    return shape[:-1] if shape else None


def _same(_config: Config, inputs: Inputs) -> Shape | None:
    return _first(inputs)


def _broadcast(_config: Config, inputs: Inputs) -> Shape | None:
    """Return the shape of an elementwise result; the axes of tensors are aligned at the end."""
    known = [shape for shape in inputs if shape is not None]
    if len(known) != len(inputs) or len({len(shape) for shape in known}) != 1:
        return None
    return tuple(_broadcast_size(sizes) for sizes in zip(*known, strict=True))


def _broadcast_size(sizes: Sequence[int | None]) -> int | None:
    larger = {size for size in sizes if size != 1}
    return 1 if not larger else larger.pop() if len(larger) == 1 else None


def _joined(config: Config, inputs: Inputs) -> Shape | None:
    axis = _integer(config.get("axis", -1))
    return None if axis is None else joined(inputs, axis)


def _split(config: Config, inputs: Inputs) -> tuple[Shape, int | None] | None:
    """Return the sizes of an image's axes and its number of channels; None if it has none."""
    shape, data_format = _first(inputs), config.get("data_format", "channels_last")
    if shape is None or len(shape) < 3 or data_format not in (_FIRST, "channels_last"):  # noqa: PLR2004
        return None
    return (shape[2:], shape[1]) if data_format == _FIRST else (shape[1:-1], shape[-1])


def _image(
    config: Config, inputs: Inputs, sizes: Sequence[int | None], channels: int | None
) -> Shape:
    shape = _first(inputs) or (None,)
    if config.get("data_format") == _FIRST:
        return (shape[0], channels, *sizes)
    return (shape[0], *sizes, channels)


def _window_counts(config: Config, sizes: Shape, window: str) -> list[int | None] | None:
    """Return how many windows each axis has, with padding, strides and dilation."""
    count = len(sizes)
    widths = _numbers(config.get(window), count)
    strides_value = config.get("strides")
    strides = _numbers(config.get(window) if strides_value is None else strides_value, count)
    dilation = _numbers(config.get("dilation_rate", 1), count)
    padding = config.get("padding")
    if widths is None or strides is None or dilation is None:
        return None
    if padding in ("same", "causal"):
        return [_divided_up(size, step) for size, step in zip(sizes, strides, strict=True)]
    if padding != "valid":
        return None
    spans = [rate * (width - 1) for width, rate in zip(widths, dilation, strict=True)]
    return [
        _divided_up(None if size is None else size - span, step)
        for size, span, step in zip(sizes, spans, strides, strict=True)
    ]


def _divided_up(size: int | None, step: int) -> int | None:
    return None if size is None or step < 1 else -(-size // step)


def _convolved(config: Config, inputs: Inputs) -> Shape | None:
    split = _split(config, inputs)
    counts = None if split is None else _window_counts(config, split[0], "kernel_size")
    if counts is None:
        return None
    return _image(config, inputs, counts, _integer(config.get("filters")))


def _convolved_each(config: Config, inputs: Inputs) -> Shape | None:
    """Return the shape that a depthwise convolution returns."""
    split = _split(config, inputs)
    counts = None if split is None else _window_counts(config, split[0], "kernel_size")
    multiplier = _integer(config.get("depth_multiplier"))
    if split is None or counts is None:
        return None
    channels = None if split[1] is None or multiplier is None else split[1] * multiplier
    return _image(config, inputs, counts, channels)


def _transposed(config: Config, inputs: Inputs) -> Shape | None:
    """Return the shape of a transposed convolution without output padding and dilation."""
    split = _split(config, inputs)
    if split is None:
        return None
    count = len(split[0])
    widths, strides = (_numbers(config.get(key), count) for key in ("kernel_size", "strides"))
    is_plain = config.get("output_padding") is None and set(
        _numbers(config.get("dilation_rate", 1), count) or (0,)
    ) == {1}
    sizes: list[int | None] = [None] * count
    if widths is not None and strides is not None and is_plain:
        extra = [
            max(width - step, 0) if config.get("padding") == "valid" else 0
            for width, step in zip(widths, strides, strict=True)
        ]
        sizes = [
            None if size is None else size * step + more
            for size, step, more in zip(split[0], strides, extra, strict=True)
        ]
    return _image(config, inputs, sizes, _integer(config.get("filters")))


def _pooled(config: Config, inputs: Inputs) -> Shape | None:
    split = _split(config, inputs)
    counts = None if split is None else _window_counts(config, split[0], "pool_size")
    return None if split is None or counts is None else _image(config, inputs, counts, split[1])


def _pooled_whole(config: Config, inputs: Inputs) -> Shape | None:
    split, shape = _split(config, inputs), _first(inputs)
    if split is None or shape is None:
        return None
    if config.get("keepdims") is True:
        return _image(config, inputs, [1] * len(split[0]), split[1])
    return (shape[0], split[1])


def _recurrent(config: Config, inputs: Inputs) -> Shape | None:
    shape = _first(inputs)
    if shape is None or len(shape) < 2 or config.get("time_major") is True:  # noqa: PLR2004
        return None
    steps = (shape[1],) if config.get("return_sequences") is True else ()
    if "filters" not in config:
        return (shape[0], *steps, _integer(config.get("units")))
    one_step = _convolved(config, [(shape[0], *shape[2:])])
    return None if one_step is None else (one_step[0], *steps, *one_step[1:])


def _flattened(_config: Config, inputs: Inputs) -> Shape | None:
    shape = _first(inputs)
    if not shape:
        return None
    return (shape[0], _product(shape[1:]))


def _product(sizes: Sequence[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return math.prod(known) if len(known) == len(sizes) else None


def _reshaped(config: Config, inputs: Inputs) -> Shape | None:
    shape, target = _first(inputs), config.get("target_shape")
    if not isinstance(target, list | tuple):
        return None
    sizes = [_integer(size) for size in target]
    known = [size for size in sizes if size is not None and size >= 0]
    total = None if shape is None else _product(shape[1:])
    rest = math.prod(known)
    missing = total // rest if total is not None and rest else None
    batch = shape[0] if shape else None
    return (batch, *(missing if size is None or size < 0 else size for size in sizes))


def _permuted(config: Config, inputs: Inputs) -> Shape | None:
    shape = _first(inputs)
    axes = _numbers(config.get("dims"), len(shape) - 1) if shape else None
    if shape is None or axes is None or not all(0 < axis < len(shape) for axis in axes):
        return None
    return (shape[0], *(shape[axis] for axis in axes))


def _repeated(config: Config, inputs: Inputs) -> Shape | None:
    shape = _first(inputs)
    return None if shape is None else (shape[0], _integer(config.get("n")), *shape[1:])


def _extended(config: Config, inputs: Inputs, key: str, sign: int) -> Shape | None:
    """Return the shape of an image with axes that have become longer or shorter at both ends."""
    split = _split(config, inputs)
    pairs = None if split is None else _pairs(config.get(key), len(split[0]))
    if split is None or pairs is None:
        return None
    sizes = [
        None if size is None else size + sign * sum(pair)
        for size, pair in zip(split[0], pairs, strict=True)
    ]
    return _image(config, inputs, sizes, split[1])


def _padded(config: Config, inputs: Inputs) -> Shape | None:
    return _extended(config, inputs, "padding", 1)


def _cropped(config: Config, inputs: Inputs) -> Shape | None:
    return _extended(config, inputs, "cropping", -1)


def _upsampled(config: Config, inputs: Inputs) -> Shape | None:
    split = _split(config, inputs)
    factors = None if split is None else _numbers(config.get("size"), len(split[0]))
    if split is None or factors is None:
        return None
    sizes = [
        None if size is None else size * factor
        for size, factor in zip(split[0], factors, strict=True)
    ]
    return _image(config, inputs, sizes, split[1])


def _resized(config: Config, inputs: Inputs) -> Shape | None:
    split = _split(config, inputs)
    if split is None or len(split[0]) != 2:  # noqa: PLR2004  # an image has two axes
        return None
    return _image(config, inputs, [_integer(config.get(k)) for k in ("height", "width")], split[1])


def _contracted(config: Config, inputs: Inputs) -> Shape | None:
    """Return the shape that an EinsumDense returns."""
    equation, shape = config.get("equation"), _first(inputs)
    match = _EQUATION.fullmatch(equation.replace(" ", "")) if isinstance(equation, str) else None
    if match is None or shape is None:
        return None
    left, output = match["left"], match["output"]
    sizes = config.get("output_shape")
    listed = list(sizes) if isinstance(sizes, list | tuple) else [sizes]
    plain = output.replace("...", "")
    if ("..." in output) != ("..." in left) or len(listed) > len(plain):
        return None
    before, _, after = left.partition("...")
    if len(before) + len(after) > len(shape) or ("..." not in left and len(before) != len(shape)):
        return None
    end = len(shape) - len(after)
    known = dict(zip(before, shape, strict=False)) | dict(zip(after, shape[end:], strict=True))
    for letter, size in zip(plain[len(plain) - len(listed) :], listed, strict=True):
        known[letter] = known.get(letter) if _integer(size) is None else _integer(size)
    start, _, rest = output.partition("...")
    middle = shape[len(before) : end] if "..." in left else ()
    return (*(known.get(letter) for letter in start), *middle, *(known.get(x) for x in rest))


def _projected(config: Config, inputs: Inputs) -> Shape | None:
    """Return the shape that multi-head attention returns: that of the queries, by default."""
    shape, sizes = _first(inputs), config.get("output_shape")
    if shape is None or sizes is None:
        return shape
    numbers = _numbers(sizes, len(sizes) if isinstance(sizes, list | tuple) else 1)
    return None if numbers is None else (*shape[:-1], *numbers)


def _attended(_config: Config, inputs: Inputs) -> Shape | None:
    """Return the shape that dot-product attention returns."""
    if len(inputs) < 2:  # noqa: PLR2004  # queries and values
        return None
    query, value = inputs[:2]
    return None if not query or not value else (*query[:-1], value[-1])


_SEVERAL_SIZES: Final[Mapping[str, Callable[[Config, Inputs], Sequence[int | None] | None]]] = (
    MappingProxyType(
        {
            "attended": _attended,
            "broadcast": _broadcast,
            "contracted": _contracted,
            "convolved": _convolved,
            "convolved_each": _convolved_each,
            "cropped": _cropped,
            "flattened": _flattened,
            "joined": _joined,
            "leading": _leading,
            "padded": _padded,
            "permuted": _permuted,
            "pooled": _pooled,
            "pooled_whole": _pooled_whole,
            "projected": _projected,
            "recurrent": _recurrent,
            "repeated": _repeated,
            "reshaped": _reshaped,
            "resized": _resized,
            "same": _same,
            "transposed": _transposed,
            "upsampled": _upsampled,
        }
    )
)
