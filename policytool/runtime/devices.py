"""
The devices that TensorFlow computes on: which there are, how they are set up, which of them a check
uses, the same work on several of them side by side, and how long a function takes on one.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import platform
import re
import statistics
import threading
import time
from typing import TYPE_CHECKING

from .library import KERAS2, KERAS3, TENSORFLOW, Library, Refused, installed_backend, sentence
from .tensors import is_eager, to_array

if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, Mapping, Sequence


DRIVER = "/proc/driver/nvidia/version"
PROCESSOR = "/proc/cpuinfo"
CUDA = "libcuda.so.1"
"""
NVIDIA's driver library: it is there wherever TensorFlow sees a GPU of theirs, and counts devices as
TensorFlow does.
"""

FIRST_TF32 = (8, 0)
"""The compute capability from which on GPUs multiply float32 matrices in TF32 (Ampere)."""


def run(job: Mapping[str, Any], step: Callable[[str], None]) -> dict[str, Any]:
    """Return the available devices, for the job ``devices``."""
    backend = installed_backend(job["backends"])
    step("importing {}".format(backend))
    tf = Library(KERAS2 if backend == TENSORFLOW else KERAS3, [backend]).tf
    configure(tf, job)
    return {backend: tf.__version__, "devices": list_devices(tf)}


def configure(tf: Any, options: Mapping[str, Any]) -> None:
    """
    Set up the devices for a check. Call it directly after TensorFlow is imported, before its first
    op.

    GPUs allocate memory as it is needed, so that checks can run in parallel. TF32 is off, and so is
    soft placement: an op runs on its device, or fails. ``options["deterministic"]`` makes every op
    deterministic, and sets the random seed, which is then required. ``options["logical"]`` is the
    number of CPU devices into which this machine is divided, for tests; None leaves it unchanged.
    Another job in the same process may change determinism, but not the number of devices, which the
    first job sets. JAX and torch also multiply float32 in float32.
    """
    if is_eager(tf):
        tf.configure(options.get("logical"))
        if options.get("deterministic"):
            text = "deterministic kernels can be requested only with the TensorFlow backend, not {}"
            raise Refused("deterministic", text.format(tf.name))
        return
    try:
        for device in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(device, True)
        if options.get("logical"):
            _divide(tf, options["logical"])
    except RuntimeError as error:  # the devices are in use and cannot change
        count = len(tf.config.list_logical_devices("CPU"))
        if options.get("logical") not in (None, count):
            text = "{} CPU devices were requested, but this process was started with {}"
            raise Refused("devices", text.format(options["logical"], count)) from error
    _set_determinism(tf, bool(options.get("deterministic")))
    tf.config.set_soft_device_placement(False)
    if hasattr(
        tf.config.experimental, "enable_tensor_float_32_execution"
    ):  # TF 2.4, the first one built for CUDA 11; earlier ones never use TF32
        tf.config.experimental.enable_tensor_float_32_execution(False)


def soft_placement(tf: Any) -> Any:
    """
    Within the context, run ops on the CPU if their device has no kernel for them, such as tables of
    strings.

    The setting applies to the whole process, so it must be changed outside of threads.
    """
    if is_eager(tf):
        return contextlib.nullcontext()
    get_setting, set_setting = (
        tf.config.get_soft_device_placement,
        tf.config.set_soft_device_placement,
    )
    return _change_setting(get_setting, set_setting, value=True)


def unoptimized(tf: Any) -> Any:
    """
    Within the context, run each op separately, as it was traced.

    Grappler's remapper makes one op of a product, its bias and its activation where nothing else
    takes what is between them. On CPUs that op makes 0 of the NaN that a ReLU takes (measured with
    TensorFlow 2.21, float32 and bfloat16), and hides it. The other passes cost more than they save
    in a graph that runs a few times: a tenth of the time of a check of MobileNetV2.
    """
    if is_eager(tf):
        return contextlib.nullcontext()
    optimizer = tf.config.optimizer
    return _change_setting(
        lambda: {
            "remapping": True,
            "disable_meta_optimizer": False,
            **{
                name: value
                for name, value in optimizer.get_experimental_options().items()
                if name in ("remapping", "disable_meta_optimizer")
            },
        },
        optimizer.set_experimental_options,
        value={"remapping": False, "disable_meta_optimizer": True},
    )


def tf32(tf: Any) -> Any:
    """
    Within the context, multiply float32 matrices in TF32, on devices for which ``without_tf32``
    returns None.

    The setting applies to the whole process, and would also affect other threads.
    """
    if is_eager(tf):
        return _change_setting(tf.uses_tf32, tf.set_tf32, value=True)
    config = tf.config.experimental
    get_setting, set_setting = (
        config.tensor_float_32_execution_enabled,
        config.enable_tensor_float_32_execution,
    )
    return _change_setting(get_setting, set_setting, value=True)


@contextlib.contextmanager
def _change_setting(
    get_setting: Callable[[], Any], set_setting: Callable[[Any], None], value: Any
) -> Iterator[None]:
    """Change a setting of the process within the context."""
    before = get_setting()
    set_setting(value)
    try:
        yield
    finally:
        set_setting(before)


def without_tf32(tf: Any, device: Mapping[str, Any]) -> str | None:
    """
    Return the reason why TF32 cannot be measured on a device, as a sentence; None if it can.
    """
    capability = device["compute_capability"]
    if device["kind"] != "gpu":
        return (
            "{} does not support TF32, which needs an NVIDIA GPU of compute capability 8.0 or "
            "higher"
        ).format(device["name"])
    if capability is None:
        return ("{} does not report its compute capability, so TF32 support is unknown").format(
            device["name"]
        )
    if tuple(int(part) for part in capability.split(".")) < FIRST_TF32:
        return (
            "{} does not support TF32: its compute capability is {}, but TF32 needs 8.0 or higher"
        ).format(device["name"], capability)
    if not is_eager(tf) and not hasattr(tf.config.experimental, "enable_tensor_float_32_execution"):
        return "TensorFlow {} does not support TF32, which needs 2.4 or later".format(
            tf.__version__
        )
    return None


def list_devices(tf: Any) -> list[dict[str, Any]]:
    """
    Return the available devices, CPUs first.

    ``name`` is ``cpu:0`` or ``gpu:0``; ``memory`` is the memory of the device in bytes; ``driver``,
    ``cuda`` and ``cudnn`` are versions, the last two those for which TensorFlow was built. Unknown
    facts are None.
    """
    cpu = {
        "kind": "cpu",
        "model": _processor(),
        "compute_capability": None,
        "memory": _memory(),
        "driver": None,
        "cuda": None,
        "cudnn": None,
        "matrix_precision": _matrix_precision(tf),
    }
    if is_eager(tf):
        return [
            {
                "name": name,
                **cpu,
                **({} if kind == "cpu" else _gpu_facts(name, details)),
            }
            for kind, name, details in tf.devices()
        ]
    devices = [
        {"name": short_name(device.name), **cpu} for device in tf.config.list_logical_devices("CPU")
    ]
    physical = tf.config.get_visible_devices("GPU")
    for place, device in enumerate(tf.config.list_logical_devices("GPU")):
        details = _details(tf, physical[place]) if place < len(physical) else {}
        capability = details.get("compute_capability")
        devices.append(
            {
                "name": short_name(device.name),
                "kind": "gpu",
                "model": details.get("device_name"),
                "compute_capability": ".".join(str(part) for part in capability)
                if capability
                else None,
                "memory": _device_memory(place),
                "driver": _driver(),
                "matrix_precision": cpu["matrix_precision"],
                **_built_for(tf),
            }
        )
    return devices


def _gpu_facts(name: str, details: Mapping[str, Any]) -> dict[str, Any]:
    """Return what JAX or torch, and the driver, know of a GPU."""
    number = int(name.partition(":")[2])
    return {"kind": "gpu", "memory": _device_memory(number), "driver": _driver(), **details}


def _matrix_precision(tf: Any) -> str | None:
    """Return the setting for products of float32 matrices, with its name in the backend."""
    if is_eager(tf):
        return str(tf.matrix_precision)
    reads = getattr(tf.config.experimental, "tensor_float_32_execution_enabled", None)
    return None if reads is None else "tensor_float_32_execution_enabled {}".format(reads())


def choose_devices(tf: Any, choice: str) -> list[str]:
    """
    Return TensorFlow's names of the chosen devices: ``["/device:GPU:0"]``.

    ``auto`` is the first GPU, or the CPU if there is no GPU; ``cpu``, ``gpu``, ``cpu:N`` and
    ``gpu:N`` are one device; ``all`` is every GPU, or every CPU device if there is no GPU.

    :raises Refused: if a device does not exist; the message lists the available ones.
    """
    names_by_kind = _names_by_kind(tf)
    best = names_by_kind["GPU"] or names_by_kind["CPU"]
    if choice in ("auto", "all"):
        return best if choice == "all" else best[:1]
    kind, _, number = choice.partition(":")
    names = {short_name(name): name for name in names_by_kind["CPU"] + names_by_kind["GPU"]}
    name = "{}:{}".format(kind.lower(), number or 0)
    if name not in names:
        text = "unknown device {}; {} {} detects {}{}"
        raise Refused(
            "no-device",
            text.format(
                choice,
                tf.name if is_eager(tf) else "TensorFlow",
                tf.__version__,
                ", ".join(names),
                ""
                if names_by_kind["GPU"] or kind.lower() != "gpu" or is_eager(tf)
                else _why_no_gpu(tf),
            ),
        )
    return [names[name]]


def _names_by_kind(tf: Any) -> dict[str, list[str]]:
    """Return the names of the devices of each kind."""
    if is_eager(tf):
        return {
            kind: [name for own_kind, name, _ in tf.devices() if own_kind.upper() == kind]
            for kind in ("CPU", "GPU")
        }
    return {
        kind: [device.name for device in tf.config.list_logical_devices(kind)]
        for kind in ("CPU", "GPU")
    }


def short_name(name: str) -> str:
    """
    Return the short name of a device: ``gpu:0`` for ``/device:GPU:0``, and for the longer names of
    tensors' devices.
    """
    return ":".join(name.split(":")[-2:]).lower()


def _divide(tf: Any, count: int) -> None:
    """Divide the CPU of this machine into several devices, for tests."""
    configuration = (
        getattr(tf.config, "LogicalDeviceConfiguration", None)
        or tf.config.experimental.VirtualDeviceConfiguration
    )
    divide = (
        getattr(tf.config, "set_logical_device_configuration", None)
        or tf.config.experimental.set_virtual_device_configuration
    )
    divide(tf.config.list_physical_devices("CPU")[0], [configuration()] * count)


def _set_determinism(tf: Any, deterministic: bool) -> None:  # noqa: FBT001  # a setting, as TensorFlow has it
    """Make ops deterministic and set the seed, if this release supports it."""
    has_setting = hasattr(tf.config.experimental, "enable_op_determinism")
    if deterministic and not has_setting:
        raise Refused(
            "deterministic",
            (
                "TensorFlow {} does not support deterministic kernels, which need 2.8 or later"
            ).format(tf.__version__),
        )
    if deterministic:
        tf.random.set_seed(1)
        tf.config.experimental.enable_op_determinism()
    elif has_setting:
        from tensorflow.python.framework import config

        getattr(config, "disable_op_determinism", int)()  # not public, so it may be gone


def _why_no_gpu(tf: Any) -> str:
    """Return why TensorFlow has no GPU, as the end of a sentence."""
    if not tf.test.is_built_with_gpu_support():
        return (
            ", because it was built without GPU support; to add it, run pip install "
            "'tensorflow[and-cuda]'"
        )
    return (
        "; it was built with GPU support, so either no GPU is visible or the GPU libraries "
        "were not found"
    )


def _built_for(tf: Any) -> dict[str, Any]:
    info = (
        tf.sysconfig.get_build_info() if hasattr(tf.sysconfig, "get_build_info") else {}
    )  # TF 2.3
    return {"cuda": info.get("cuda_version"), "cudnn": info.get("cudnn_version")}


def _details(tf: Any, device: Any) -> Mapping[str, Any]:
    reads = getattr(tf.config.experimental, "get_device_details", None)  # TF 2.3
    return reads(device) or {} if reads is not None else {}


def _lines(path: str) -> Sequence[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read(1 << 20).splitlines()
    except OSError:  # not a Linux, or no such driver
        return ()


def _driver() -> str | None:
    """
    Return the version of NVIDIA's kernel module: ``Kernel Module 535.104.05`` or ``Open Kernel
    Module for x86_64 545.23.08``.
    """
    matches = [
        re.search(r"Kernel Module(?: for \S+)?\s+(\d[\d.]*)", line) for line in _lines(DRIVER)
    ]
    return next((match.group(1) for match in matches if match), None)


def _processor() -> str | None:
    named = [
        line.partition(":")[2].strip()
        for line in _lines(PROCESSOR)
        if line.startswith("model name")
    ]
    return next(iter(named), None) or platform.processor() or platform.machine() or None


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not a POSIX system, or one that does not tell
        return None


def _device_memory(number: int) -> int | None:
    """Return the memory of a GPU that NVIDIA's driver counts; TensorFlow reports only its own."""
    try:
        cuda = ctypes.CDLL(CUDA)
    except OSError:  # a GPU of another maker
        return None
    device, size = ctypes.c_int(), ctypes.c_size_t()
    completed = (
        cuda.cuInit(0) == 0
        and cuda.cuDeviceGet(ctypes.byref(device), number) == 0
        and cuda.cuDeviceTotalMem_v2(ctypes.byref(size), device) == 0
    )
    return size.value if completed else None


TRACING = threading.RLock()
"""
The lock for tracing or building with Keras while other threads run, because Keras' scopes apply to
the whole process.
"""


def side_by_side(
    devices: Sequence[str], prepare: Callable[[str], Any], measure: Callable[[str, Any], Any]
) -> list[Any]:
    """
    Return the result of ``measure`` for each device, in their order.

    ``prepare`` is called with one device after the other, because Keras cannot trace in two threads
    at once. ``measure`` is then called with each device and what was prepared for it, in a separate
    thread for each device, at the same time: TensorFlow does not hold a lock of Python while it
    computes. Settings of the whole process (soft placement, TF32) are made around the call of this
    function, not in ``measure``. Code in ``measure`` that still has to trace holds ``TRACING``.

    :raises Refused: when all threads have ended, for the first device on which one failed, which
        the message names; for a single device, its own exception.
    """
    if len(devices) == 1:  # nothing to tell apart
        return [measure(devices[0], prepare(devices[0]))]
    prepared = [_done(prepare, device) for device in devices]
    results: list[Any] = [None] * len(devices)
    failures: dict[int, BaseException] = {}

    def work(place: int) -> None:
        try:
            results[place] = measure(devices[place], prepared[place])
        except BaseException as error:  # raised again below, in the thread that asked
            failures[place] = error

    threads = [
        threading.Thread(target=work, args=(place,), name=short_name(device))
        for place, device in enumerate(devices)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for place, device in enumerate(devices):
        if place in failures:
            raise _error_of_device(device, failures[place]) from failures[place]
    return results


def _done(prepare: Callable[[str], Any], device: str) -> Any:
    try:
        return prepare(device)
    except Exception as error:
        raise _error_of_device(device, error) from error


def _error_of_device(device: str, error: BaseException) -> Refused:
    """Return the error of a device, with its name."""
    if isinstance(error, Refused):
        return Refused(error.code, "{}: {}".format(short_name(device), error))
    lacked_memory = (
        isinstance(error, MemoryError) or type(error).__name__ == "ResourceExhaustedError"
    )
    return Refused(
        "memory" if lacked_memory else "failed",
        "{}: {}".format(short_name(device), sentence(error)),
    )


SECONDS = 2.0
"""The seconds after which no more calls are started; at least one call is timed."""


def time_calls(
    library: Library, function: Callable[[Any], Any], batch: Any, device: str, repeats: int
) -> dict[str, Any]:
    """
    Return the time and memory of calls of a function on one batch.

    ``latency`` is the median of the seconds of one call, ``spread`` the shortest and the longest,
    ``throughput`` the examples in a second at that latency; the batch's first dimension counts the
    examples. ``peak_memory`` is the most bytes that tensors took during a call beyond those that
    were there before it, so without weights; ``how`` is ``device``, whose allocator counted them.
    Both are None where none counts: before TF 2.6, on CPUs without oneDNN, of tensors of less than
    256 KiB on CPUs, and by torch on CPUs. JAX plans the memory when it compiles the call.

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
        peak = (
            function.peak_memory()
            if hasattr(function, "peak_memory")
            else _peak(tf, lambda: _wait(tf, function(batch)), device)
        )
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
    if tensors and is_eager(tf):
        to_array(tensors[-1])
    elif tensors:
        tf.reshape(tensors[-1], [-1])[:1].numpy()


def _examples(tf: Any, batch: Any) -> int:
    shape = tf.nest.flatten(batch, expand_composites=True)[0].shape
    return int(shape[0]) if len(shape) else 1


def _peak(tf: Any, call: Callable[[], None], device: str) -> int | None:
    """
    Return the peak number of bytes that a call needs in addition to those in use before it.

    The device's allocator counts them, and that of the CPU too where it is oneDNN's, but for
    tensors of less than 256 KiB, which it leaves to another; None where there was nothing to count.
    What the process has says little: allocators keep what was freed.
    """
    if is_eager(tf):
        return tf.peak_memory(call, device)  # type: ignore[no-any-return]  # counted in bytes
    counts, name = tf.config.experimental, short_name(device).upper()
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
