"""
The shapes of what layers return, computed from their configs and the shapes of their inputs.

The property ``output_shape`` in ``data/layer_classes.json`` has an item for each axis: an argument,
or several sizes, which a function here computes. A size that depends on anything else is not known.
"""

from __future__ import annotations

import math
import re
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from policytool.releases.layer_classes import layer_facts

Shape: TypeAlias = "tuple[int | None, ...]"
"""The sizes of a tensor, None for a size that is not known."""

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Inputs = Sequence[Shape | None]
    Config = Mapping[str, object]

    Sizes = Sequence[int | None]

Known = TypeVar("Known")

SEVERAL: Final = "*"
"""The prefix of an item that stands for several sizes."""

_FIRST: Final = "channels_first"
_EQUATION: Final = re.compile(r"(?P<left>[A-Za-z.]+),(?P<kernel>[A-Za-z]+)->(?P<output>[A-Za-z.]+)")


def output_shape(class_name: str, config: Config, inputs: Inputs) -> Shape | None:
    """
    Return the shape of a layer's output, or of its first output; None if its rank is unknown.

    :param inputs: the shapes of the tensors on which the layer is called, with the batch
    """
    items = layer_facts(class_name).output_shape
    if not items or not inputs:
        return None
    return concatenated(
        _SEVERAL_SIZES[item.removeprefix(SEVERAL)](config, inputs)
        if item.startswith(SEVERAL)
        else (integer(config.get(item)),)
        for item in items
    )


def concatenated(parts: Iterable[Sizes | None]) -> Shape | None:
    """Return the concatenation of partial shapes; None if one is unknown."""
    known = all_known(parts)
    return None if known is None else tuple(chain.from_iterable(known))


def all_known(values: Iterable[Known | None]) -> list[Known] | None:
    """Return the values if all are known; otherwise None."""
    listed = list(values)
    known = [value for value in listed if value is not None]
    return known if len(known) == len(listed) else None


def joined(shapes: Inputs, axis: int) -> Shape | None:
    """Return the shape of tensors that are joined along an axis."""
    known = all_known(shapes)
    if not known or len({len(shape) for shape in known}) != 1:
        return None
    rank = len(known[0])
    if not -rank <= axis < rank:
        return None
    columns = list(zip(*known, strict=True))
    return tuple(
        _sum(sizes) if number == axis % rank else _common(sizes)
        for number, sizes in enumerate(columns)
    )


def _sum(sizes: Sizes) -> int | None:
    known = all_known(sizes)
    return None if known is None else sum(known)


def product(sizes: Sizes) -> int | None:
    """Return a product; None if a factor is not known."""
    known = all_known(sizes)
    return None if known is None else math.prod(known)


def _common(sizes: Sizes) -> int | None:
    """Return the size of an axis that is equal in all tensors; None if the sizes differ."""
    known = {size for size in sizes if size is not None}
    return known.pop() if len(known) == 1 else None


def integer(value: object) -> int | None:
    """Return a value that is a whole number; None for any other."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _numbers(value: object, count: int) -> list[int] | None:
    """Return a number for each of some axes from an argument; None if it has another form."""
    listed = list(value) if isinstance(value, list | tuple) else [value] * count
    return all_known(map(integer, listed)) if len(listed) == count else None


def _pairs(value: object, count: int) -> list[tuple[int, int]] | None:
    """
    Return two numbers for each axis from an argument, which may also have one number for both ends.
    """
    if count == 1 and (numbers := _numbers(value, 2)) is not None:
        return [(numbers[0], numbers[1])]
    listed = list(value) if isinstance(value, list | tuple) else [value] * count
    pairs = all_known(_numbers(item, 2) for item in listed) if len(listed) == count else None
    return None if pairs is None else [(pair[0], pair[1]) for pair in pairs]


def _leading(_config: Config, inputs: Inputs) -> Shape | None:
    shape = inputs[0]
    return shape[:-1] if shape else None


def _same(_config: Config, inputs: Inputs) -> Shape | None:
    return inputs[0]


def _broadcast(_config: Config, inputs: Inputs) -> Shape | None:
    """Return the shape of an elementwise result; the axes of tensors are aligned at the end."""
    known = all_known(inputs)
    if known is None or len({len(shape) for shape in known}) != 1:
        return None
    return tuple(_broadcast_size(sizes) for sizes in zip(*known, strict=True))


def _broadcast_size(sizes: Sizes) -> int | None:
    larger = {size for size in sizes if size != 1}
    return 1 if not larger else larger.pop() if len(larger) == 1 else None


def _joined(config: Config, inputs: Inputs) -> Shape | None:
    axis = integer(config.get("axis", -1))
    return None if axis is None else joined(inputs, axis)


def split_image(config: Config, shape: Sizes | None) -> tuple[Sizes, int | None] | None:
    """Return the sizes of an image's axes and its number of channels; None if it has none."""
    data_format = config.get("data_format", "channels_last")
    if shape is None or len(shape) < 3 or data_format not in (_FIRST, "channels_last"):  # noqa: PLR2004
        return None
    return (shape[2:], shape[1]) if data_format == _FIRST else (shape[1:-1], shape[-1])


def _image(config: Config, inputs: Inputs, sizes: Sizes, channels: int | None) -> Shape:
    shape = inputs[0] or (None,)
    if config.get("data_format") == _FIRST:
        return (shape[0], channels, *sizes)
    return (shape[0], *sizes, channels)


def window_counts(config: Config, sizes: Sizes, window: str) -> list[int | None] | None:
    """
    Return the number of windows along each axis, with padding, strides and dilation
    (``conv_output_length`` in tf_keras/src/utils/conv_utils.py).
    """
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


def _counted(
    config: Config, inputs: Inputs, window: str
) -> tuple[list[int | None], int | None] | None:
    """Return the number of windows along each axis of an image, and its number of channels."""
    split = split_image(config, inputs[0])
    counts = None if split is None else window_counts(config, split[0], window)
    return None if split is None or counts is None else (counts, split[1])


def _convolved(config: Config, inputs: Inputs) -> Shape | None:
    counted = _counted(config, inputs, "kernel_size")
    if counted is None:
        return None
    return _image(config, inputs, counted[0], integer(config.get("filters")))


def _convolved_each(config: Config, inputs: Inputs) -> Shape | None:
    """Return the shape that a depthwise convolution returns."""
    counted = _counted(config, inputs, "kernel_size")
    if counted is None:
        return None
    channels = product((counted[1], integer(config.get("depth_multiplier"))))
    return _image(config, inputs, counted[0], channels)


def _transposed(config: Config, inputs: Inputs) -> Shape | None:
    """Return the shape of a transposed convolution without output padding and dilation."""
    split = split_image(config, inputs[0])
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
            None if size is None else size * step + extra_size
            for size, step, extra_size in zip(split[0], strides, extra, strict=True)
        ]
    return _image(config, inputs, sizes, integer(config.get("filters")))


def _pooled(config: Config, inputs: Inputs) -> Shape | None:
    counted = _counted(config, inputs, "pool_size")
    return None if counted is None else _image(config, inputs, *counted)


def _pooled_globally(config: Config, inputs: Inputs) -> Shape | None:
    split, shape = split_image(config, inputs[0]), inputs[0]
    if split is None or shape is None:
        return None
    if config.get("keepdims") is True:
        return _image(config, inputs, [1] * len(split[0]), split[1])
    return (shape[0], split[1])


def _recurrent(config: Config, inputs: Inputs) -> Shape | None:
    shape = inputs[0]
    if shape is None or len(shape) < 2 or config.get("time_major") is True:  # noqa: PLR2004
        return None
    steps = (shape[1],) if config.get("return_sequences") is True else ()
    if "filters" not in config:
        return (shape[0], *steps, integer(config.get("units")))
    one_step = _convolved(config, [(shape[0], *shape[2:])])
    return None if one_step is None else (one_step[0], *steps, *one_step[1:])


def _flattened(_config: Config, inputs: Inputs) -> Shape | None:
    shape = inputs[0]
    if not shape:
        return None
    return (shape[0], product(shape[1:]))


def _reshaped(config: Config, inputs: Inputs) -> Shape | None:
    shape, target = inputs[0], config.get("target_shape")
    if not isinstance(target, list | tuple):
        return None
    sizes = [integer(size) for size in target]
    known = [size for size in sizes if size is not None and size >= 0]
    total = None if shape is None else product(shape[1:])
    known_size = math.prod(known)
    missing = total // known_size if total is not None and known_size else None
    batch = shape[0] if shape else None
    return (batch, *(missing if size is None or size < 0 else size for size in sizes))


def _permuted(config: Config, inputs: Inputs) -> Shape | None:
    shape = inputs[0]
    axes = _numbers(config.get("dims"), len(shape) - 1) if shape else None
    if shape is None or axes is None or not all(0 < axis < len(shape) for axis in axes):
        return None
    return (shape[0], *(shape[axis] for axis in axes))


def _repeated(config: Config, inputs: Inputs) -> Shape | None:
    shape = inputs[0]
    return None if shape is None else (shape[0], integer(config.get("n")), *shape[1:])


def _extended(config: Config, inputs: Inputs, key: str, sign: int) -> Shape | None:
    """Return the shape of an image with axes that have become longer or shorter at both ends."""
    split = split_image(config, inputs[0])
    pairs = None if split is None else _pairs(config.get(key), len(split[0]))
    if split is None or pairs is None:
        return None
    sizes = [
        None if size is None else size + sign * sum(pair)
        for size, pair in zip(split[0], pairs, strict=True)
    ]
    return _image(config, inputs, sizes, split[1])


def _upsampled(config: Config, inputs: Inputs) -> Shape | None:
    split = split_image(config, inputs[0])
    factors = None if split is None else _numbers(config.get("size"), len(split[0]))
    if split is None or factors is None:
        return None
    sizes = [
        None if size is None else size * factor
        for size, factor in zip(split[0], factors, strict=True)
    ]
    return _image(config, inputs, sizes, split[1])


def _resized(config: Config, inputs: Inputs) -> Shape | None:
    split = split_image(config, inputs[0])
    if split is None or len(split[0]) != 2:  # noqa: PLR2004  # an image has two axes
        return None
    return _image(config, inputs, [integer(config.get(k)) for k in ("height", "width")], split[1])


def _contracted(config: Config, inputs: Inputs) -> Shape | None:
    """Return the shape that an EinsumDense returns."""
    shape, equation = inputs[0], equation_of(config)
    operand = None if shape is None or equation is None else _aligned(equation["left"], shape)
    stated = None if equation is None else _stated_sizes(config, equation)
    if equation is None or operand is None or stated is None:
        return None
    known, middle = {**operand[0], **stated}, operand[1]
    start, ellipsis, end = equation["output"].partition("...")
    if bool(ellipsis) != (middle is not None):
        return None
    return (*map(known.get, start), *(middle or ()), *map(known.get, end))


def equation_of(config: Config) -> re.Match[str] | None:
    """Return the operands of an EinsumDense, and its output."""
    equation = config.get("equation")
    return _EQUATION.fullmatch(equation.replace(" ", "")) if isinstance(equation, str) else None


def equation_sizes(config: Config, shape: Sizes | None) -> dict[str, int | None]:
    """Return the known sizes of the letters in the equation of an EinsumDense."""
    equation = equation_of(config)
    if equation is None:
        return {}
    operand = None if shape is None else _aligned(equation["left"], shape)
    known = {} if operand is None else operand[0]
    return {**known, **(_stated_sizes(config, equation) or {})}


def _stated_sizes(config: Config, equation: re.Match[str]) -> dict[str, int] | None:
    """
    Return the sizes that ``output_shape`` contains for letters of the output. The first letter or
    the ellipsis, which is the batch, is left out. None if there are more sizes than letters.
    """
    sizes, letters = config.get("output_shape"), equation["output"].replace("...", "")
    listed = list(sizes) if isinstance(sizes, list | tuple) else [sizes]
    if len(listed) > len(letters):
        return None
    pairs = zip(letters[len(letters) - len(listed) :], listed, strict=True)
    return {letter: size for letter, item in pairs if (size := integer(item)) is not None}


def _aligned(letters: str, shape: Sizes) -> tuple[dict[str, int | None], Sizes | None] | None:
    """
    Return the size of each letter of an operand, and the sizes of the axes of the ellipsis (None
    without an ellipsis); None if the operand has another rank.
    """
    before, ellipsis, after = letters.partition("...")
    if len(before) + len(after) > len(shape) or (not ellipsis and len(before) != len(shape)):
        return None
    end = len(shape) - len(after)
    known = dict(zip(before, shape, strict=False)) | dict(zip(after, shape[end:], strict=True))
    return known, shape[len(before) : end] if ellipsis else None


def _projected(config: Config, inputs: Inputs) -> Shape | None:
    """Return the shape that multi-head attention returns: that of the queries, by default."""
    shape, sizes = inputs[0], config.get("output_shape")
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


_SEVERAL_SIZES: Final[Mapping[str, Callable[[Config, Inputs], Sizes | None]]] = MappingProxyType(
    {
        "attended": _attended,
        "broadcast": _broadcast,
        "contracted": _contracted,
        "convolved": _convolved,
        "convolved_each": _convolved_each,
        "cropped": partial(_extended, key="cropping", sign=-1),
        "flattened": _flattened,
        "joined": _joined,
        "leading": _leading,
        "padded": partial(_extended, key="padding", sign=1),
        "permuted": _permuted,
        "pooled": _pooled,
        "pooled_whole": _pooled_globally,
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
