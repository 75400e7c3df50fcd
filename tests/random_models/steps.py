"""One step of a random graph: a layer or an op, and the shape of its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tests.random_models.description import Shape
    from tests.random_models.drawing import Draw


@dataclass(frozen=True, kw_only=True, slots=True)
class Value:
    """A tensor of floats while a graph is made."""

    ref: str
    shape: Shape
    origin: str = ""
    """Values of one origin have the same sizes where their shapes say None."""

    @property
    def rank(self) -> int:
        """How many axes there are beside the batch."""
        return len(self.shape)

    @property
    def channels(self) -> int | None:
        """The size of the last axis."""
        return self.shape[-1] if self.shape else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """What follows a value."""

    what: str
    shape: Shape
    config: Mapping[str, Any] = field(default_factory=dict)
    call: Mapping[str, Any] = field(default_factory=dict)
    kind: str = "layer"
    copies: int = 1
    """How often the layer takes its input: query, key and value."""

    spread: bool = False
    several: int = 1
    """How many outputs the layer has; the first one has the shape."""


Maker = Callable[["Draw", Value], "Step | None"]
"""Returns a step from a value; None if the value's shape does not allow it."""


_RESIZING: Final = ("Conv", "Depthwise", "Separable", "Max", "Average", "Crop", "Zero", "UpS")
"""How the names begin of layers that change the sizes of axes."""


def step_result(step: Step, value: Value, ref: str) -> Value:
    """Return the value that a step makes of another one."""
    resizes = step.what.startswith(_RESIZING) or step.kind == "op"
    origin = ref if resizes and None in step.shape else value.origin
    return Value(ref=ref, shape=step.shape, origin=origin)


def static(shape: Shape) -> tuple[int, ...] | None:
    """Return a shape without an unknown axis; None if it has one."""
    sizes = tuple(size for size in shape if size is not None)
    return sizes if len(sizes) == len(shape) else None


def window_length(size: int | None, window: int, stride: int, padding: str) -> int | None:
    """Return what a window makes of a size."""
    if size is None:
        return None
    return -(-size // stride) if padding != "valid" else (size - window) // stride + 1
