"""
The shapes of what layers return, computed from their configs and the shapes of their inputs.

The property ``output_shape`` in ``data/layer_classes.json`` has an item for each axis: an argument,
or several sizes, which a function here computes. A size that depends on anything else is not known.
"""

from __future__ import annotations

import math
import re
from contextlib import suppress
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


class UnknownShapeError(Exception):
    """A shape whose rank does not follow from a config and the shapes of inputs."""


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


def concatenated(parts: Iterable[Sizes]) -> Shape | None:
    """Return the concatenation of partial shapes; None if one raises UnknownShapeError."""
    try:
        return tuple(chain.from_iterable(parts))
    except UnknownShapeError:
        return None


def known(value: Known | None) -> Known:
    """
    Return a value that is known.

    :raises UnknownShapeError: for None
    """
    if value is None:
        raise UnknownShapeError
    return value


def all_known(values: Iterable[Known | None]) -> list[Known] | None:
    """Return the values if all are known; otherwise None."""
    listed = list(values)
    known_values = [value for value in listed if value is not None]
    return known_values if len(known_values) == len(listed) else None


def joined(shapes: Inputs, axis: int) -> Shape:
    """
    Return the shape of tensors that are joined along an axis.

    :raises UnknownShapeError: if a rank is unknown, or if the ranks differ
    """
    columns = _columns(shapes)
    if not -len(columns) <= axis < len(columns):
        raise UnknownShapeError
    return tuple(
        _sum(sizes) if number == axis % len(columns) else _common(sizes)
        for number, sizes in enumerate(columns)
    )


def _columns(shapes: Inputs) -> list[Sizes]:
    """Return the sizes of tensors of one rank, by axis."""
    known_shapes = [known(shape) for shape in shapes]
    if len({len(shape) for shape in known_shapes}) != 1:
        raise UnknownShapeError
    return list(zip(*known_shapes, strict=True))


def _sum(sizes: Sizes) -> int | None:
    known_sizes = all_known(sizes)
    return None if known_sizes is None else sum(known_sizes)


def product(sizes: Sizes) -> int | None:
    """Return a product; None if a factor is not known."""
    factors = all_known(sizes)
    return None if factors is None else math.prod(factors)


def _common(sizes: Sizes) -> int | None:
    """Return the size of an axis that is equal in all tensors; None if the sizes differ."""
    different = {size for size in sizes if size is not None}
    return different.pop() if len(different) == 1 else None


def integer(value: object) -> int | None:
    """Return a value that is a whole number; None for any other."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _listed(value: object, count: int) -> list[object]:
    """Return the values of an argument for each of some axes, which one value may be for all."""
    listed = list(value) if isinstance(value, list | tuple) else [value] * count
    if len(listed) != count:
        raise UnknownShapeError
    return listed


def _numbers(value: object, count: int) -> list[int]:
    """Return a number for each of some axes from an argument."""
    return [known(integer(item)) for item in _listed(value, count)]


def _pairs(value: object, count: int) -> list[list[int]]:
    """
    Return two numbers for each axis from an argument, which may also have one number for both ends.
    """
    if count == 1:
        with suppress(UnknownShapeError):
            return [_numbers(value, 2)]
    return [_numbers(item, 2) for item in _listed(value, count)]


def _leading(_config: Config, inputs: Inputs) -> Shape:
    return known(inputs[0] or None)[:-1]


def _same(_config: Config, inputs: Inputs) -> Shape:
    return known(inputs[0])


def _broadcast(_config: Config, inputs: Inputs) -> Shape:
    """Return the shape of an elementwise result; the axes of tensors are aligned at the end."""
    return tuple(map(_broadcast_size, _columns(inputs)))


def _broadcast_size(sizes: Sizes) -> int | None:
    larger = {size for size in sizes if size != 1}
    return 1 if not larger else larger.pop() if len(larger) == 1 else None


def _joined(config: Config, inputs: Inputs) -> Shape:
    return joined(inputs, known(integer(config.get("axis", -1))))


def split_image(config: Config, shape: Sizes | None) -> tuple[Sizes, int | None]:
    """
    Return the sizes of an image's axes and its number of channels.

    :raises UnknownShapeError: if it has none
    """
    data_format = config.get("data_format", "channels_last")
    if shape is None or len(shape) < 3 or data_format not in (_FIRST, "channels_last"):  # noqa: PLR2004
        raise UnknownShapeError
    return (shape[2:], shape[1]) if data_format == _FIRST else (shape[1:-1], shape[-1])


def _image(config: Config, inputs: Inputs, sizes: Sizes, channels: int | None) -> Shape:
    shape = inputs[0] or (None,)
    if config.get("data_format") == _FIRST:
        return (shape[0], channels, *sizes)
    return (shape[0], *sizes, channels)


def window_counts(config: Config, sizes: Sizes, window: str) -> list[int | None]:
    """
    Return the number of windows along each axis, with padding, strides and dilation
    (``conv_output_length`` in tf_keras/src/utils/conv_utils.py).

    :raises UnknownShapeError: if an argument has another form
    """
    count = len(sizes)
    widths = _numbers(config.get(window), count)
    strides_value = config.get("strides")
    strides = _numbers(config.get(window) if strides_value is None else strides_value, count)
    dilation = _numbers(config.get("dilation_rate", 1), count)
    padding = config.get("padding")
    if padding in ("same", "causal"):
        return [_divided_up(size, step) for size, step in zip(sizes, strides, strict=True)]
    if padding != "valid":
        raise UnknownShapeError
    spans = [rate * (width - 1) for width, rate in zip(widths, dilation, strict=True)]
    return [
        _divided_up(None if size is None else size - span, step)
        for size, span, step in zip(sizes, spans, strides, strict=True)
    ]


def _divided_up(size: int | None, step: int) -> int | None:
    return None if size is None or step < 1 else -(-size // step)


def _counted(config: Config, inputs: Inputs, window: str) -> tuple[list[int | None], int | None]:
    """Return the number of windows along each axis of an image, and its number of channels."""
    sizes, channels = split_image(config, inputs[0])
    return window_counts(config, sizes, window), channels


def _convolved(config: Config, inputs: Inputs) -> Shape:
    counts, _ = _counted(config, inputs, "kernel_size")
    return _image(config, inputs, counts, integer(config.get("filters")))


def _convolved_each(config: Config, inputs: Inputs) -> Shape:
    """Return the shape that a depthwise convolution returns."""
    counts, channels = _counted(config, inputs, "kernel_size")
    multiplier = integer(config.get("depth_multiplier"))
    return _image(config, inputs, counts, product((channels, multiplier)))


def _transposed(config: Config, inputs: Inputs) -> Shape:
    """Return the shape of a transposed convolution without output padding and dilation."""
    sizes, _ = split_image(config, inputs[0])
    new_sizes: Sizes = [None] * len(sizes)
    with suppress(UnknownShapeError):
        new_sizes = _widened(config, sizes)
    return _image(config, inputs, new_sizes, integer(config.get("filters")))


def _widened(config: Config, sizes: Sizes) -> Sizes:
    widths, strides, dilation = (
        _numbers(value, len(sizes))
        for value in (
            config.get("kernel_size"),
            config.get("strides"),
            config.get("dilation_rate", 1),
        )
    )
    if config.get("output_padding") is not None or set(dilation) != {1}:
        raise UnknownShapeError
    is_valid = config.get("padding") == "valid"
    return [
        None if size is None else size * step + (max(width - step, 0) if is_valid else 0)
        for size, step, width in zip(sizes, strides, widths, strict=True)
    ]


def _pooled(config: Config, inputs: Inputs) -> Shape:
    return _image(config, inputs, *_counted(config, inputs, "pool_size"))


def _pooled_globally(config: Config, inputs: Inputs) -> Shape:
    sizes, channels = split_image(config, inputs[0])
    if config.get("keepdims") is True:
        return _image(config, inputs, [1] * len(sizes), channels)
    return (known(inputs[0])[0], channels)


def _recurrent(config: Config, inputs: Inputs) -> Shape:
    shape = known(inputs[0])
    if len(shape) < 2 or config.get("time_major") is True:  # noqa: PLR2004
        raise UnknownShapeError
    steps = (shape[1],) if config.get("return_sequences") is True else ()
    if "filters" not in config:
        return (shape[0], *steps, integer(config.get("units")))
    one_step = _convolved(config, [(shape[0], *shape[2:])])
    return (one_step[0], *steps, *one_step[1:])


def _flattened(_config: Config, inputs: Inputs) -> Shape:
    shape = known(inputs[0] or None)
    return (shape[0], product(shape[1:]))


def _reshaped(config: Config, inputs: Inputs) -> Shape:
    shape, target = inputs[0], config.get("target_shape")
    if not isinstance(target, list | tuple):
        raise UnknownShapeError
    sizes = [integer(size) for size in target]
    total = None if shape is None else product(shape[1:])
    known_size = math.prod(size for size in sizes if size is not None and size >= 0)
    missing = total // known_size if total is not None and known_size else None
    batch = shape[0] if shape else None
    return (batch, *(missing if size is None or size < 0 else size for size in sizes))


def _permuted(config: Config, inputs: Inputs) -> Shape:
    shape = known(inputs[0] or None)
    axes = _numbers(config.get("dims"), len(shape) - 1)
    if not all(0 < axis < len(shape) for axis in axes):
        raise UnknownShapeError
    return (shape[0], *(shape[axis] for axis in axes))


def _repeated(config: Config, inputs: Inputs) -> Shape:
    shape = known(inputs[0])
    return (shape[0], integer(config.get("n")), *shape[1:])


def _extended(config: Config, inputs: Inputs, key: str, sign: int) -> Shape:
    """Return the shape of an image with axes that have become longer or shorter at both ends."""
    sizes, channels = split_image(config, inputs[0])
    pairs = _pairs(config.get(key), len(sizes))
    new_sizes = [
        None if size is None else size + sign * sum(pair)
        for size, pair in zip(sizes, pairs, strict=True)
    ]
    return _image(config, inputs, new_sizes, channels)


def _upsampled(config: Config, inputs: Inputs) -> Shape:
    sizes, channels = split_image(config, inputs[0])
    factors = _numbers(config.get("size"), len(sizes))
    new_sizes = list(map(product, zip(sizes, factors, strict=True)))
    return _image(config, inputs, new_sizes, channels)


def _resized(config: Config, inputs: Inputs) -> Shape:
    sizes, channels = split_image(config, inputs[0])
    if len(sizes) != 2:  # noqa: PLR2004  # an image has two axes
        raise UnknownShapeError
    return _image(config, inputs, [integer(config.get(k)) for k in ("height", "width")], channels)


def _contracted(config: Config, inputs: Inputs) -> Shape:
    """Return the shape that an EinsumDense returns."""
    equation = known(equation_of(config))
    sizes, middle = _aligned(equation["left"], known(inputs[0]))
    sizes |= _stated_sizes(config, equation)
    start, ellipsis, end = equation["output"].partition("...")
    if bool(ellipsis) != (middle is not None):
        raise UnknownShapeError
    return (*map(sizes.get, start), *(middle or ()), *map(sizes.get, end))


def equation_of(config: Config) -> re.Match[str] | None:
    """Return the operands of an EinsumDense, and its output."""
    equation = config.get("equation")
    return _EQUATION.fullmatch(equation.replace(" ", "")) if isinstance(equation, str) else None


def equation_sizes(config: Config, shape: Sizes | None) -> dict[str, int | None]:
    """Return the known sizes of the letters in the equation of an EinsumDense."""
    equation, sizes = equation_of(config), dict[str, int | None]()
    if equation is not None:
        with suppress(UnknownShapeError):
            sizes |= _aligned(equation["left"], known(shape))[0]
        with suppress(UnknownShapeError):
            sizes |= _stated_sizes(config, equation)
    return sizes


def _stated_sizes(config: Config, equation: re.Match[str]) -> dict[str, int]:
    """
    Return the sizes that ``output_shape`` contains for letters of the output. The first letter or
    the ellipsis, which is the batch, is left out.

    :raises UnknownShapeError: if there are more sizes than letters
    """
    sizes, letters = config.get("output_shape"), equation["output"].replace("...", "")
    listed = list(sizes) if isinstance(sizes, list | tuple) else [sizes]
    if len(listed) > len(letters):
        raise UnknownShapeError
    pairs = zip(letters[len(letters) - len(listed) :], listed, strict=True)
    return {letter: size for letter, item in pairs if (size := integer(item)) is not None}


def _aligned(letters: str, shape: Sizes) -> tuple[dict[str, int | None], Sizes | None]:
    """
    Return the size of each letter of an operand, and the sizes of the axes of the ellipsis (None
    without an ellipsis).

    :raises UnknownShapeError: if the operand has another rank
    """
    before, ellipsis, after = letters.partition("...")
    if len(before) + len(after) > len(shape) or (not ellipsis and len(before) != len(shape)):
        raise UnknownShapeError
    end = len(shape) - len(after)
    sizes = dict(zip(before, shape, strict=False)) | dict(zip(after, shape[end:], strict=True))
    return sizes, shape[len(before) : end] if ellipsis else None


def _projected(config: Config, inputs: Inputs) -> Shape:
    """Return the shape that multi-head attention returns: that of the queries, by default."""
    shape, sizes = known(inputs[0]), config.get("output_shape")
    if sizes is None:
        return shape
    count = len(sizes) if isinstance(sizes, list | tuple) else 1
    return (*shape[:-1], *_numbers(sizes, count))


def _attended(_config: Config, inputs: Inputs) -> Shape:
    """Return the shape that dot-product attention returns."""
    if len(inputs) < 2:  # noqa: PLR2004  # queries and values
        raise UnknownShapeError
    query, value = (known(shape or None) for shape in inputs[:2])
    return (*query[:-1], value[-1])


_SEVERAL_SIZES: Final[Mapping[str, Callable[[Config, Inputs], Sizes]]] = MappingProxyType(
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
