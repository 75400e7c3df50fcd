"""
How long a function takes on a device, how many examples it does in a second, and how much memory
one call takes.
"""

from __future__ import annotations

import gc
import statistics
import time
from typing import TYPE_CHECKING

from .available import short
from .parallel_devices import TRACING

if TYPE_CHECKING:
    from typing import Any, Callable

    from ..library import Library

SECONDS = 2.0
"""After which no more calls are begun; the first is never left out."""


def time_calls(
    library: Library, function: Callable[[Any], Any], batch: Any, device: str, repeats: int
) -> dict[str, Any]:
    """
    Return what calls of a function on one batch take.

    ``latency`` is the median of the seconds of one call, ``spread`` the shortest and the longest,
    ``throughput`` the examples in a second at that latency; the batch's first dimension counts the
    examples. ``peak_memory`` is the most bytes that tensors took during a call beyond those that
    were there before it, so without weights; ``how`` is ``device``, whose allocator counted them.
    Both are None where none counts: before TF 2.6, on CPUs without oneDNN, and of tensors of less
    than 256 KiB on CPUs.

    ``device`` is TensorFlow's name. The first call, which traces and chooses kernels, is not
    counted. At most ``repeats`` calls are, in about two seconds.
    """
    tf = library.tf
    with tf.device(device):
        with TRACING:
            _wait(tf, function(batch))
        seconds: list[float] = []
        end = time.perf_counter() + SECONDS
        while not seconds or (len(seconds) < repeats and time.perf_counter() < end):
            start = time.perf_counter()
            _wait(tf, function(batch))
            seconds.append(time.perf_counter() - start)
        peak = _peak(tf, lambda: _wait(tf, function(batch)), device)
    latency = statistics.median(seconds)
    return {
        "latency": latency,
        "spread": [min(seconds), max(seconds)],
        "throughput": _examples(tf, batch) / latency,
        "peak_memory": peak,
        "how": "device" if peak is not None else None,
    }


def _wait(tf: Any, results: Any) -> None:
    """
    Wait until the device is done: a GPU works in order, so the first element of the last result is
    available only after all other results.
    """
    tensors = tf.nest.flatten(results, expand_composites=True)
    if tensors:
        tf.reshape(tensors[-1], [-1])[:1].numpy()


def _examples(tf: Any, batch: Any) -> int:
    shape = tf.nest.flatten(batch, expand_composites=True)[0].shape
    return int(shape[0]) if len(shape) else 1


def _peak(tf: Any, call: Callable[[], None], device: str) -> int | None:
    """
    Return how many bytes a call needs at once beyond those that are in use before it.

    The device's allocator counts them, and that of the CPU too where it is oneDNN's, but for
    tensors of less than 256 KiB, which it leaves to another; None where there was nothing to count.
    What the process has says little: allocators keep what was freed.
    """
    counts, name = tf.config.experimental, short(device).upper()
    if not hasattr(
        counts, "reset_memory_stats"
    ):  # before TF 2.6 a peak is that of the process' whole life
        return None
    gc.collect()
    try:
        counts.reset_memory_stats(name)
    except ValueError:  # "Allocator stats not available for device"
        return None
    before = counts.get_memory_info(name)["current"]
    call()
    return int(counts.get_memory_info(name)["peak"] - before) or None
