"""Convolutions, with windows over one to three axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.random_models.steps import Step, window_length

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.random_models.drawing import Draw
    from tests.random_models.steps import Maker, Value


def _windows(draw: Draw, value: Value) -> tuple[int, int, str]:
    """Return a window, a stride and a padding that leave something of each known size."""
    known = [size for size in value.shape[:-1] if size is not None]
    smallest = min(known, default=3)
    window = draw.whole(1, min(3, smallest))
    padding = draw.pick(("same", "same", "valid"))
    if len(known) < value.rank - 1:
        padding = "same"
    return window, draw.pick((1, 1, 2)), padding


def _conv(draw: Draw, value: Value) -> Step | None:
    if value.rank not in {2, 3, 4} or value.channels is None:
        return None
    window, stride, padding = _windows(draw, value)
    filters = draw.units()
    config: dict[str, Any] = {
        "filters": filters,
        "kernel_size": window,
        "strides": stride,
        "padding": padding,
        "activation": draw.activation(),
        "use_bias": draw.chance(0.85),
        **draw.parts("kernel", "bias"),
    }
    if value.rank == 2 and padding == "same" and draw.chance(0.3):
        config["padding"] = "causal"
    if stride == 1 and padding == "same" and value.rank < 4 and draw.chance(0.2):
        config["dilation_rate"] = 2
    if value.rank == 3 and value.channels % 2 == 0 and filters % 2 == 0 and draw.chance(0.2):
        config["groups"] = 2
    shape = tuple(window_length(size, window, stride, padding) for size in value.shape[:-1])
    return Step(what=f"Conv{value.rank - 1}D", config=config, shape=(*shape, filters))


def _depthwise(draw: Draw, value: Value) -> Step | None:
    if value.rank not in {2, 3} or value.channels is None or value.channels > 16:
        return None
    window, stride, padding = _windows(draw, value)
    multiplier = draw.pick((1, 1, 2))
    config = {
        "kernel_size": window,
        "strides": stride,
        "padding": padding,
        "depth_multiplier": multiplier,
        "activation": draw.activation(),
        **draw.parts("depthwise", "bias"),
    }
    shape = tuple(window_length(size, window, stride, padding) for size in value.shape[:-1])
    return Step(
        what=f"DepthwiseConv{value.rank - 1}D",
        config=config,
        shape=(*shape, value.channels * multiplier),
    )


def _separable(draw: Draw, value: Value) -> Step | None:
    step = _depthwise(draw, value)
    if step is None:
        return None
    filters = draw.units()
    config = {**step.config, "filters": filters, **draw.parts("pointwise")}
    return Step(
        what=f"SeparableConv{value.rank - 1}D", config=config, shape=(*step.shape[:-1], filters)
    )


def _transpose(draw: Draw, value: Value) -> Step | None:
    if value.rank not in {2, 3, 4} or value.channels is None:
        return None
    filters, stride = draw.units(), draw.pick((1, 2))
    if any(size is not None and size > 12 for size in value.shape[:-1]):
        stride = 1
    config = {
        "filters": filters,
        "kernel_size": draw.whole(stride, 3),
        "strides": stride,
        "padding": "same",
        "activation": draw.activation(),
        "use_bias": draw.chance(0.85),
    }
    shape = tuple(size and size * stride for size in value.shape[:-1])
    return Step(what=f"Conv{value.rank - 1}DTranspose", config=config, shape=(*shape, filters))


MAKERS: Final[Mapping[str, Maker]] = {
    "Conv": _conv,
    "DepthwiseConv": _depthwise,
    "SeparableConv": _separable,
    "ConvTranspose": _transpose,
}
