"""
The child's report on devices, tested with a replacement for TensorFlow with GPUs, and the values
from its answers.
"""

from __future__ import annotations

import ctypes
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import pytest

from policytool.numerics.check_results import checks as values
from policytool.runtime import devices
from policytool.runtime.eager import EagerBackend
from policytool.runtime.library import Refused
from policytool.support.text import codec
from tests.helpers.marks import THOROUGH

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

OLD: Final = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC "
    "version:  gcc version 11.4.0\n"
)
OPEN: Final = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  "
    "(dvs-builder@U16)\n"
)

DETAILS: Final = {"device_name": "NVIDIA H200", "compute_capability": (9, 0)}


class Settings:
    """A replacement for ``tf.config`` with a number of GPUs."""

    def __init__(self, gpus: int, details: dict[str, Any] | None = None) -> None:
        self.gpus = gpus
        self.details = DETAILS if details is None else details
        self.set: list[tuple[str, Any]] = []
        self.soft = True
        self.tf32 = True
        self.experimental = self

    def list_physical_devices(self, kind: str) -> list[Any]:
        """Return the devices of a kind."""
        return [
            SimpleNamespace(name=f"/physical_device:{kind}:{number}")
            for number in range(self.gpus if kind == "GPU" else 1)
        ]

    get_visible_devices = list_physical_devices

    def list_logical_devices(self, kind: str) -> list[Any]:
        """Return the logical devices of a kind, on which ops are placed."""
        return [
            SimpleNamespace(name=f"/device:{kind}:{number}")
            for number in range(self.gpus if kind == "GPU" else 1)
        ]

    def set_memory_growth(self, device: Any, wanted: bool) -> None:  # noqa: FBT001  # as TensorFlow's
        """Record that memory growth of a device is enabled."""
        self.set.append((device.name, wanted))

    def set_soft_device_placement(self, wanted: bool) -> None:  # noqa: FBT001  # as TensorFlow's
        """Record whether soft placement is enabled."""
        self.soft = wanted

    def get_soft_device_placement(self) -> bool:
        """Return whether soft placement is enabled."""
        return self.soft

    def enable_tensor_float_32_execution(self, wanted: bool) -> None:  # noqa: FBT001  # as TensorFlow's
        """Record whether TF32 is enabled."""
        self.tf32 = wanted

    def tensor_float_32_execution_enabled(self) -> bool:
        """Return whether TF32 is enabled."""
        return self.tf32

    def get_device_details(self, _device: Any) -> dict[str, Any]:
        """Return the details of a GPU."""
        return self.details


def tensorflow(gpus: int, *, built: bool = True, details: dict[str, Any] | None = None) -> Any:
    """Return a replacement for TensorFlow with this number of GPUs."""
    info = {"cuda_version": "12.5.1", "cudnn_version": "9"}
    return SimpleNamespace(
        __version__="2.21.0",
        config=Settings(gpus, details),
        sysconfig=SimpleNamespace(get_build_info=lambda: info),
        test=SimpleNamespace(is_built_with_gpu_support=lambda: built),
    )


@pytest.mark.parametrize(
    ("gpus", "wanted", "names"),
    [
        (2, "auto", ["/device:GPU:0"]),
        (2, "all", ["/device:GPU:0", "/device:GPU:1"]),
        (2, "gpu", ["/device:GPU:0"]),
        (2, "gpu:1", ["/device:GPU:1"]),
        (2, "GPU:1", ["/device:GPU:1"]),
        (2, "cpu", ["/device:CPU:0"]),
        (0, "auto", ["/device:CPU:0"]),
        (0, "all", ["/device:CPU:0"]),
    ],
)
def test_devices_are_chosen_by_short_names(gpus: int, wanted: str, names: list[str]) -> None:
    """
    Devices are selected by short names: ``gpu`` is the first GPU, and ``all`` selects only GPUs.
    """
    assert devices.choose_devices(tensorflow(gpus), wanted) == names


@pytest.mark.parametrize(
    ("gpus", "built", "wanted", "sentence"),
    [
        (2, True, "gpu:2", "unknown device gpu:2; TensorFlow 2.21.0 detects cpu:0, gpu:0, gpu:1"),
        (2, True, "tpu:0", "unknown device tpu:0; TensorFlow 2.21.0 detects cpu:0, gpu:0, gpu:1"),
        (
            0,
            True,
            "gpu:0",
            (
                "detects cpu:0; it was built with GPU support, so either no GPU is visible or the "
                "GPU libraries were not found"
            ),
        ),
        (
            0,
            False,
            "gpu",
            (
                "detects cpu:0, because it was built without GPU support; to add it, run pip "
                "install 'tensorflow[and-cuda]'"
            ),
        ),
        (0, False, "cpu:1", "unknown device cpu:1; TensorFlow 2.21.0 detects cpu:0"),
    ],
)
def test_missing_device_is_an_error_that_lists_the_available_devices(
    gpus: int,
    built: bool,  # noqa: FBT001  # a case
    wanted: str,
    sentence: str,
) -> None:
    """
    A missing device is an error that lists the available devices and, if known, the reason for a
    missing GPU.
    """
    with pytest.raises(Refused) as refused:
        devices.choose_devices(tensorflow(gpus, built=built), wanted)
    assert refused.value.code == "no-device"
    assert str(refused.value).endswith(sentence)


def test_gpus_are_listed_with_driver_and_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """
    GPUs are listed with model and capability from TensorFlow, driver from the system, and memory
    from CUDA.
    """
    (tmp_path / "version").write_text(OPEN, encoding="utf-8")
    (tmp_path / "cpuinfo").write_text(
        "processor\t: 0\nmodel name\t: A Processor: fast\n", encoding="utf-8"
    )
    monkeypatch.setattr(devices, "DRIVER", str(tmp_path / "version"))
    monkeypatch.setattr(devices, "PROCESSOR", str(tmp_path / "cpuinfo"))
    monkeypatch.setattr(ctypes, "CDLL", lambda _: Cuda([40, 141]))
    cpu, first, second = (
        codec.read(values.TensorFlowDevice, item) for item in devices.list_devices(tensorflow(2))
    )
    assert (cpu.name, cpu.kind, cpu.model, cpu.driver, cpu.cuda) == (
        "cpu:0",
        "cpu",
        "A Processor: fast",
        None,
        None,
    )
    assert first == values.TensorFlowDevice(
        name="gpu:0",
        kind="gpu",
        model="NVIDIA H200",
        compute_capability="9.0",
        memory=40,
        driver="570.86.15",
        cuda="12.5.1",
        cudnn="9",
        matrix_precision="tensor_float_32_execution_enabled True",
    )
    assert (second.name, second.memory) == ("gpu:1", 141)


def test_unknown_properties_of_a_device_are_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """
    Unknown properties of a device are None: no NVIDIA driver, no system files, and no memory count.
    """

    def none(_: str) -> Any:
        raise OSError

    monkeypatch.setattr(devices, "DRIVER", str(tmp_path / "none"))
    monkeypatch.setattr(devices, "PROCESSOR", str(tmp_path / "none"))
    monkeypatch.setattr(ctypes, "CDLL", none)
    monkeypatch.setattr("os.sysconf", none)
    cpu, gpu = devices.list_devices(tensorflow(1, details={}))
    assert cpu["memory"] is None
    assert {
        name: gpu[name] for name in ("model", "compute_capability", "memory", "driver")
    } == dict.fromkeys(("model", "compute_capability", "memory", "driver"))


@pytest.mark.parametrize(
    ("text", "version"), [(OLD, "535.104.05"), (OPEN, "570.86.15"), ("something else\n", None)]
)
def test_the_driver_is_read_from_the_system(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, version: str | None
) -> None:
    """The driver version is read from the files of both NVIDIA kernel modules."""
    (tmp_path / "version").write_text(text, encoding="utf-8")
    monkeypatch.setattr(devices, "DRIVER", str(tmp_path / "version"))
    assert devices.list_devices(tensorflow(1))[1]["driver"] == version


def test_memory_grows_and_nothing_is_placed_or_rounded_silently() -> None:
    """Memory grows on each GPU, and soft placement and TF32 are off unless they are requested."""
    tf = tensorflow(2)
    devices.configure(tf, {})
    assert tf.config.set == [("/physical_device:GPU:0", True), ("/physical_device:GPU:1", True)]
    assert (tf.config.soft, tf.config.tf32) == (False, False)
    with devices.soft_placement(tf), devices.tf32(tf):
        assert (tf.config.soft, tf.config.tf32) == (True, True)
    assert (tf.config.soft, tf.config.tf32) == (False, False)


def test_determinism_is_rejected_in_a_release_without_support() -> None:
    """Determinism is an error in a release without it, with the first release that has it."""
    with pytest.raises(
        Refused,
        match=r"TensorFlow 2\.21\.0 does not support deterministic kernels, which need 2\.8 or "
        r"later",
    ):
        devices.configure(tensorflow(0), {"deterministic": True})


@pytest.mark.parametrize(
    ("capability", "reason"),
    [
        ((8, 0), None),
        ((9, 0), None),
        ((12, 0), None),
        (
            (7, 5),
            (
                "gpu:0 does not support TF32: its compute capability is 7.5, but TF32 needs 8.0 "
                "or higher"
            ),
        ),
        (
            None,
            ("gpu:0 does not report its compute capability, so TF32 support is unknown"),
        ),
    ],
)
def test_tf32_begins_with_a_compute_capability(
    capability: tuple[int, int] | None, reason: str | None
) -> None:
    """TF32 needs a compute capability, compared as a number; a CPU has none."""
    tf = tensorflow(1, details={"compute_capability": capability} if capability else {})
    cpu, gpu = devices.list_devices(tf)
    assert devices.without_tf32(tf, gpu) == reason
    assert str(devices.without_tf32(tf, cpu)).startswith("cpu:0 does not support TF32")


def torch_with_gpu() -> Any:
    """Return the backend torch with a replacement for torch that has a GPU."""
    properties = SimpleNamespace(name="NVIDIA H200", major=9, minor=0)
    counts = iter([100, 350])
    cuda = SimpleNamespace(
        device_count=lambda: 1,
        get_device_properties=lambda _: properties,
        reset_peak_memory_stats=lambda _: None,
        memory_allocated=lambda _: next(counts),
        max_memory_allocated=lambda _: next(counts),
    )
    cudnn = SimpleNamespace(version=lambda: 91002, allow_tf32=True)
    precision = ["high"]
    backend: Any = EagerBackend.__new__(EagerBackend)
    backend.name = "torch"
    backend.module = SimpleNamespace(
        cuda=cuda,
        version=SimpleNamespace(cuda="13.2"),
        backends=SimpleNamespace(cudnn=cudnn),
        get_float32_matmul_precision=lambda: precision[0],
        set_float32_matmul_precision=lambda name: precision.insert(0, name),
    )
    return backend


def test_gpu_of_torch_has_its_kernel_libraries_and_tf32_only_if_it_is_measured() -> None:
    backend = torch_with_gpu()
    devices.configure(backend, {})
    cpu, gpu = devices.list_devices(backend)
    assert (cpu["kind"], gpu["kind"], gpu["name"]) == ("cpu", "gpu", "gpu:0")
    assert (gpu["model"], gpu["compute_capability"]) == ("NVIDIA H200", "9.0")
    assert (gpu["cuda"], gpu["cudnn"], cpu["cuda"]) == ("13.2", "91002", None)
    assert gpu["matrix_precision"] == "float32_matmul_precision highest"
    assert devices.without_tf32(backend, gpu) is None
    assert str(devices.without_tf32(backend, cpu)).startswith("cpu:0 does not support TF32")
    allowed = backend.module.backends.cudnn
    assert not allowed.allow_tf32
    with devices.tf32(backend):
        assert backend.uses_tf32()
        assert allowed.allow_tf32
    assert not allowed.allow_tf32
    assert not backend.uses_tf32()


def test_peak_memory_of_torch_is_that_of_one_call() -> None:
    """Its allocator counts on GPUs only."""
    backend = torch_with_gpu()
    assert backend.peak_memory(lambda: None, "gpu:0") == 250
    assert backend.peak_memory(lambda: None, "cpu:0") is None


def test_side_by_side_prepares_in_turn_and_measures_at_once() -> None:
    """
    Devices are prepared in sequence and measured at the same time, and the results have the order
    of the devices.
    """
    prepared: list[str] = []
    together = threading.Barrier(3, timeout=10)

    def prepare(device: str) -> str:
        assert threading.current_thread() is threading.main_thread()
        prepared.append(device)
        return device.lower()

    def measure(device: str, made: str) -> tuple[str, str, str]:
        together.wait()
        return device, made, threading.current_thread().name

    names = [f"/device:GPU:{number}" for number in range(3)]
    assert devices.side_by_side(names, prepare, measure) == [
        (name, name.lower(), f"gpu:{number}") for number, name in enumerate(names)
    ]
    assert prepared == names


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (Refused("inputs", "no inputs"), "inputs", "gpu:1: no inputs"),
        (ValueError("what\nelse"), "failed", "gpu:1: ValueError: what"),
        (MemoryError(), "memory", "gpu:1: MemoryError"),
    ],
)
@pytest.mark.parametrize("preparing", [True, False])
def test_failure_names_the_device(
    error: Exception,
    code: str,
    sentence: str,
    preparing: bool,  # noqa: FBT001  # a case
) -> None:
    """A failure while preparing or measuring names its device, and the first cause is kept."""

    def fail(device: str) -> str:
        if device == "/device:GPU:1":
            raise error
        return device

    work = (
        (fail, lambda device, _: device)
        if preparing
        else (lambda device: device, lambda device, _: fail(device))
    )
    with pytest.raises(Refused) as refused:
        devices.side_by_side(["/device:GPU:0", "/device:GPU:1"], *work)
    assert (refused.value.code, str(refused.value)) == (code, sentence)
    assert refused.value.__cause__ is error


class Array:
    """A replacement for a tensor in a timing."""

    def __init__(self, shape: Sequence[int]) -> None:
        self.shape = shape
        self.copied = 0

    def __getitem__(self, _: slice) -> Array:
        return self

    def numpy(self) -> None:
        """Record that the first element was copied."""
        self.copied += 1


class Cuda:
    """A replacement for NVIDIA's driver library with GPUs of these sizes."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = sizes

    def cuInit(self, _flags: int) -> int:  # noqa: N802  # as the library's
        """Return success."""
        return 0

    def cuDeviceGet(self, handle: Any, number: int) -> int:  # noqa: N802  # as the library's
        """Write the handle of a GPU."""
        ctypes.cast(handle, ctypes.POINTER(ctypes.c_int))[0] = number
        return 0

    def cuDeviceTotalMem_v2(self, size: Any, handle: ctypes.c_int) -> int:  # noqa: N802  # as the library's
        """Write the memory size of a GPU."""
        ctypes.cast(size, ctypes.POINTER(ctypes.c_size_t))[0] = self.sizes[handle.value]
        return 0


@THOROUGH
@pytest.mark.parametrize("counts", [True, False])
def test_timing_waits_for_the_device_and_reads_its_peak_memory(
    counts: bool,  # noqa: FBT001  # a case
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    A timing waits for the last result of each call, and the peak memory is that of one call beyond
    the memory in use before, if the device counts it.
    """
    result, calls, asked = Array([4]), [0], list[str]()

    def function(_: Any) -> Array:
        calls[0] += 1
        return result

    def reset(name: str) -> None:
        asked.append(name)
        if not counts:
            raise ValueError("Allocator stats not available for device")

    memory = [{"current": 100, "peak": 100}, {"current": 120, "peak": 350}]
    tf = SimpleNamespace(
        device=lambda _: threading.Lock(),
        nest=SimpleNamespace(flatten=lambda made, **_: [made]),
        reshape=lambda tensor, _: tensor,
        config=SimpleNamespace(
            experimental=SimpleNamespace(
                reset_memory_stats=reset, get_memory_info=lambda _: memory.pop(0)
            )
        ),
    )
    clock = iter(range(100))
    monkeypatch.setattr(devices, "SECONDS", 1000)
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    outcome = codec.read(
        values.Timing,
        devices.time_calls(SimpleNamespace(tf=tf), function, Array([6, 2]), "/device:GPU:1", 3),  # type: ignore[arg-type]
    )  # the library's TensorFlow alone
    assert asked == ["GPU:1"]
    assert (outcome.peak_memory, outcome.how) == ((250, "device") if counts else (None, None))
    assert (outcome.latency, outcome.spread, outcome.throughput) == (1, (1, 1), 6)
    assert calls[0] == result.copied == (5 if counts else 4)


def test_answers_become_values() -> None:
    """The child's answers become values, including the message on a missing kernel."""
    actual = {
        "op": "model/pool/MaxPool3D",
        "type": "MaxPool3D",
        "dtype": "float16",
        "layer": "net/pool",
        "elsewhere": False,
        "in_float32": True,
    }
    result = codec.read(values.MissingKernel, actual)
    assert {name: getattr(result, name) for name in actual} == actual
