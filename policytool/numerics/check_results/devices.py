"""
What a check tells of the devices that it ran on: which they are, the kernels that they lack, and
what a call took there.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorFlowDevice:
    """One device that TensorFlow sees; what it does not say is None."""

    name: str
    """``cpu:0`` or ``gpu:0``, as ``--device`` takes it."""

    kind: str
    """``cpu`` or ``gpu``."""

    model: str | None
    """What its maker calls it."""

    compute_capability: str | None
    """Of NVIDIA GPUs, such as ``9.0``."""

    memory: int | None
    """All bytes that it has."""

    driver: str | None
    """The version of the GPU's driver."""

    cuda: str | None
    """The version that TensorFlow was built for, of the GPU's libraries."""

    cudnn: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class MissingKernel:
    """An op of the traced graph that a kind of device has no kernel for."""

    op: str
    """Its name in the graph, after that of the op that calls the function it is in."""

    type: str
    """What it does, such as ``MaxPool3D``."""

    dtype: str | None
    """The dtype that no kernel takes, or the op's own where none alone is to blame."""

    layer: str | None
    """The path of the layer that it belongs to."""

    elsewhere: bool
    """Whether it runs on the CPU instead; where not, the graph cannot run."""

    in_float32: bool
    """Whether the device would have a kernel for it in float32."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """What calls of one model on one batch took."""

    latency: float
    """Seconds of one call, the median."""

    spread: tuple[float, float]
    """Seconds of the shortest and of the longest call."""

    throughput: float
    """Examples in a second, at the median."""

    peak_memory: int | None
    """
    Bytes that tensors took at most during a call, beyond those there before it; None where the
    device's allocator does not count.

    That of a CPU leaves out tensors of less than 256 KiB.
    """

    how: str | None
    """``device`` where its allocator counted them."""
