"""
How much memory TensorFlow may take to compare predictions, if nobody said: what a model of its size
needs, and never more than a share of the machine.

The limit counts from what the process has once TensorFlow has started (0.3 GiB with TensorFlow 2.21
on two cores), because that depends on cores and devices and not on the model. It holds on Linux,
where the system says what a process has.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from policytool.support import limits
from policytool.support.files import opening

GIBIBYTE: Final = 2**30

LEAST: Final = 2 * GIBIBYTE
"""
For inputs and what layers return.

Of the models of ``keras.applications``, NASNetLarge needs most besides its weights, measured with
Keras 3.15 and TensorFlow 2.21: 1 GiB for each row. A comparison that does not fit is repeated with
3 rows and with 1.
"""

TIMES_WEIGHTS: Final = 6
"""
VGG19 has 548 MiB of weights and takes 3.3 GiB with Keras 3.15 and 4.2 GiB with tf_keras 2.21,
inputs and outputs of 16 rows included: loaders hold weights as they are read, as arrays and as
variables.
"""

_SHARE: Final = 2
"""The part of the machine's memory that is left to everything else."""

_CGROUP: Final = Path("/sys/fs/cgroup/memory.max")
"""What a container may have, with control groups of version 2; ``max`` for everything."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryLimit:
    """A limit for one job."""

    bytes: int
    """Beyond what the process has once TensorFlow has started."""

    most: int
    """In all."""


def memory_limit(weights: int) -> MemoryLimit | None:
    """
    Return the limit for a model with so many bytes of weights; None where the system has none.
    """
    machine = machine_memory()
    return limit_of(weights, machine) if machine is not None else None


def limit_of(weights: int, machine: int) -> MemoryLimit:
    """Return the same for a machine with so many bytes of memory."""
    most = machine // _SHARE
    return MemoryLimit(bytes=min(LEAST + TIMES_WEIGHTS * weights, most), most=most)


def machine_memory() -> int | None:
    """Return the memory of this machine or container in bytes; None if limits have no effect."""
    if sys.platform != "linux":
        return None
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        cgroup_limit = opening.read_bounded(_CGROUP, limits.JSON_BYTES).strip()
    except OSError:  # other control groups, or none
        return machine
    return min(machine, int(cgroup_limit)) if cgroup_limit.isdigit() else machine


def shown_size(count: int) -> str:
    """Return a number of bytes as sentences have it."""
    return f"{count / GIBIBYTE:.1f} GiB"
