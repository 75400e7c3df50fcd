"""
Measure what a check costs as a whole process: ``python check_cost.py --keras PYTHON [--pairs N]``.

Runs ``bare_check.py``, which loads, clones and predicts, and ``policytool check`` with the same
batch in alternation, on MobileNetV2 with random weights, written by Keras 3 and by tf_keras. CPU
seconds are those of all processes, and memory is the sum of the peaks of all processes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE: Final = Path(__file__).parent
ENVIRONMENT: Final = {
    **{name: value for name, value in os.environ.items() if not name.startswith("POLICYTOOL_")},
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "-1",
}
MAXIMUM: Final = {"CPU": 1.6, "wall": 1.6, "memory": 1.3}
"""How many times what the bare script takes."""

TICK: Final = 0.05
"""Seconds between looks at the peaks of processes, which are gone when they end."""

MAKE: Final = """
import importlib, sys
import numpy as np
for name, suffix in (("keras", ".keras"), ("tf_keras", ".h5")):
    keras = importlib.import_module(name)
    keras.utils.set_random_seed(1)
    model = keras.applications.MobileNetV2(weights=None)
    layers = [one for one in model.layers if isinstance(one, keras.layers.BatchNormalization)]
    momentum = [layer.momentum for layer in layers]
    for layer in layers:
        layer.momentum = 0.0
    model(np.random.default_rng(1).random((32, 224, 224, 3), "float32"), training=True)
    for layer, value in zip(layers, momentum):
        layer.momentum = value
    model.save(sys.argv[1] + suffix)
np.save(sys.argv[1] + ".npy", np.random.default_rng(1).random((8, 224, 224, 3), "float32"))
"""
"""
Statistics of a batch stand in for those of training: with the initial ones, activations of random
weights are too small for float16.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """What a command took, with all processes that it started."""

    cpu: float
    wall: float
    peak: int
    """Bytes."""


def measure(command: Sequence[str]) -> Cost:
    """Run a command that has to succeed."""
    start = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT
    )
    peaks: dict[int, int] = {}
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(TICK):
            for pid in family(process.pid):
                peaks[pid] = max(peaks.get(pid, 0), peak(pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    ended.set()
    watcher.join()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"status {process.returncode} from: {' '.join(command)}")
    return Cost(cpu=usage.ru_utime + usage.ru_stime, wall=wall, peak=sum(peaks.values()))


def family(pid: int) -> list[int]:
    """Return a process with all below it; those of one that has ended are gone."""
    try:
        tasks = [int(one.name) for one in Path(f"/proc/{pid}/task").iterdir()]
        below = [
            int(child)
            for task in tasks
            for child in Path(f"/proc/{pid}/task/{task}/children").read_text("utf-8").split()
        ]
    except OSError:
        return []
    return [pid, *(one for child in below for one in family(child))]


def peak(pid: int) -> int:
    """Return the most memory that a process had, in bytes; 0 for one that has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


def compare(keras: str, model: Path, pairs: int) -> bool:
    """Print how the two commands compare, and return whether the check stays within its limits."""
    check = (sys.executable, "-m", "policytool", "check", str(model), "--to", "mixed_float16")
    commands = (
        (keras, str(HERE / "bare_check.py"), str(model)),
        (
            *check,
            "--inputs",
            str(model.with_suffix(".npy")),
            "--accept-undecided",
            "--python",
            keras,
        ),
    )
    runs = [tuple(measure(command) for command in commands) for _ in range(pairs)]
    found = {
        "CPU": ([one.cpu for one, _ in runs], [one.cpu for _, one in runs], "s"),
        "wall": ([one.wall for one, _ in runs], [one.wall for _, one in runs], "s"),
        "memory": (
            [one.peak / 2**20 for one, _ in runs],
            [one.peak / 2**20 for _, one in runs],
            "MiB",
        ),
    }
    met = True
    for what, (bare, ours, unit) in found.items():
        ratio = statistics.median(one / other for one, other in zip(ours, bare, strict=True))
        most = MAXIMUM.get(what)
        met = met and (most is None or ratio <= most)
        limit = f" (at most {most})" if most is not None else ""
        medians = f"{statistics.median(bare):8.1f} {statistics.median(ours):8.1f} {unit:3}"
        sys.stdout.write(f"{model.name:16} {what:6} {medians} {ratio:.2f}{limit}\n")
    return met


def main() -> None:
    """Run the command line; status 1 where a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keras", required=True, metavar="PYTHON")
    parser.add_argument("--pairs", type=int, default=3, metavar="N")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="policytool-bench-") as name:
        stem = str(Path(name) / "mobilenetv2")
        subprocess.run(
            [arguments.keras, "-c", MAKE, stem], check=True, env=ENVIRONMENT, capture_output=True
        )
        met = [
            compare(arguments.keras, Path(stem + suffix), arguments.pairs)
            for suffix in (".keras", ".h5")
        ]
    sys.exit(not all(met))


if __name__ == "__main__":
    main()
