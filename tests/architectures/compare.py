"""
Record each architecture in one place, and run it in another: ``python -m
tests.architectures.compare DIRECTORY FIRST SECOND [--record]``, with places such as
``tensorflow:cpu=PYTHON``.

Models have float32 or a mixed policy. The tables have the first layer whose values differ by more
than rounding explains, and the largest difference of a layer. With ``--device-checks``, the second
place also measures TF32, times and memory, must find a planted overflow, and tunes two models.
What was done is kept in the directory; ``--record`` adds the tables to ``record.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import policytool
from policytool.commands import check as checks
from policytool.commands.check_options import CheckOptions
from policytool.formats import discovery
from policytool.migration.planning.options import Options
from policytool.numerics.tensorflow_run import TensorFlowTools
from policytool.numerics.workers import Interpreter, Worker
from tests.helpers.paths import ROOT
from tests.helpers.planted_failures import BFLOAT16, FLOAT16
from tests.trained import backends

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from policytool.numerics.check_results.checks import Check, CheckRun

RECORD: Final = Path(__file__).with_name("record.json")
NAMES: Final = ("MobileNetV2", "ResNet50", "EfficientNetV2B0", "transformer", "LSTM")
TUNED: Final = ("MobileNetV2", "transformer")
POLICIES: Final = ("float32", FLOAT16, BFLOAT16)
SIZE: Final = 96
TRIALS: Final = 12
OVERFLOW: Final = "overflow"


@dataclass(frozen=True)
class Place:
    """An interpreter with a backend, and one of its devices."""

    backend: str
    device: str
    python: str

    @classmethod
    def parsed(cls, text: str) -> Place:
        """Return the place of an argument."""
        name, _, python = text.partition("=")
        backend, _, device = name.partition(":")
        return cls(backend, device or "auto", python)

    @property
    def name(self) -> str:
        """The backend and the device."""
        return f"{self.backend}:{self.device}"


class Runs:
    """Runs models in two places."""

    def __init__(self, directory: Path, places: tuple[Place, Place], stack: ExitStack) -> None:
        self.directory = directory
        self.first, self.second = places
        self._tools = {}
        for place in places:
            interpreter = Interpreter(python=place.python, timeout=600, backend=place.backend)
            worker = stack.enter_context(Worker(interpreter))
            self._tools[place] = TensorFlowTools(worker=worker)

    def check(self, path: Path, place: Place, **options: Any) -> Check:
        """Return the check of a model in a place."""
        (model,) = discovery.inputs([str(path)])
        request = CheckOptions(**options, device=place.device)
        return checks.check(model, None, request, self._tools[place])

    def model(self, name: str, policy: str = "float32") -> Path:
        """Return a model with a policy."""
        path = self.directory / f"{name}.keras"
        if policy == "float32":
            return path
        output = path.with_name(f"{name}-{policy}.keras")
        if not output.exists():
            policytool.migrate(path, to=policy, output=output, verify=False)
        return output

    def compared(self, name: str, policy: str) -> dict[str, Any]:
        """Return how the values of layers differ between the places."""
        path = self.model(name, policy)
        file = path.with_suffix(".run.h5")
        inputs = self.directory / f"{name}.npy"
        if not file.exists():
            self.check(path, self.first, inputs=inputs, record=file)
        result = self.check(path, self.second, against=file)
        (run,) = result.runs
        return {
            "model": name,
            "policy": policy,
            "layers": len(run.calls),
            "departs": run.origin.path if run.origin is not None else None,
            "largest": _largest(run, "accumulated"),
            "output": max(
                (output.accumulated.relative or 0.0)
                for output in run.outputs
                if output.accumulated is not None
            ),
            "versions": dict(result.versions),
            "hardware": run.device.model,
        }

    def measured(self, name: str, policy: str) -> dict[str, Any]:
        """Return the effect of TF32, and the time and memory of both policies, in one place."""
        inputs = self.directory / f"{name}.npy"
        options = {"inputs": inputs, "candidate": Options(to=policy)}
        (run,) = self.check(self.model(name), self.second, **options, timing=True, tf32=True).runs
        return {
            "model": name,
            "policy": policy,
            "tf32": _largest(run, "tf32"),
            "timings": {
                side: {"latency": timing.latency, "peak_memory": timing.peak_memory}
                for side, timing in run.timings.items()
            },
        }

    def tuned(self, name: str) -> dict[str, Any]:
        """Return what ``tune`` keeps in float32 in the second place."""
        result = policytool.tune(
            self.model(name),
            to=FLOAT16,
            inputs=self.directory / f"{name}.npy",
            budget=TRIALS,
            preview=True,
            python=self.second.python,
            backend=self.second.backend,  # type: ignore[arg-type]  # any name
            device=self.second.device,
        )
        return {"model": name, "kept": len(result.kept), "candidates": len(result.layers)}

    def planted(self) -> dict[str, Any]:
        """Return whether a planted overflow is found in the second place."""
        python, backend = self.second.python, self.second.backend
        pairs = list(backends.planted(self.directory, python, backend, 1, OVERFLOW))
        backends.predict(pairs, python, backend)
        worker = self._tools[self.second].worker
        found = [backends.compare(pair, worker, self.second.device) for pair in pairs]
        return {
            "pairs": len(found),
            "wrong": sum((one["harmful"], one["answer"]) in backends.WRONG for one in found),
            "named": sum(bool(one["origin"]) for one in found),
        }


def _largest(run: CheckRun, kind: str) -> float | None:
    """Return the largest relative error of one kind in a run; None if it was not measured."""
    errors = (getattr(output, kind) for call in run.calls for output in call.outputs)
    return max((error.relative or 0.0 for error in errors if error is not None), default=None)


def results(
    runs: Runs, names: Sequence[str], policies: Sequence[str], *, device_checks: bool
) -> Iterator[Any]:
    """Yield a table's name and a row of it."""
    for policy in policies:
        for name in names:
            yield "compared", runs.compared(name, policy)
            if device_checks and policy != "float32":
                yield "measured", runs.measured(name, policy)
    if device_checks:
        yield "planted", runs.planted()
        for name in TUNED:
            if name in names:
                yield "tuned", runs.tuned(name)


def record(key: str, table: str, row: Mapping[str, Any]) -> None:
    """Add a row to a table, instead of an earlier one of the same model and policy."""
    known = json.loads(RECORD.read_text(encoding="utf-8"))
    names = ("model", "policy")
    others = [
        other
        for other in known.setdefault(key, {}).get(table, [])
        if any(other.get(name) != row.get(name) for name in names)
    ]
    known[key][table] = [*others, row]
    RECORD.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


def write_models(directory: Path, place: Place, size: int, names: tuple[str, ...]) -> None:
    """Let a place write the models that are not there."""
    directory.mkdir(parents=True, exist_ok=True)
    wanted = [name for name in names if not (directory / f"{name}.npy").exists()]
    if wanted:
        environment = {**os.environ, "KERAS_BACKEND": place.backend}
        command = [place.python, "-m", "tests.architectures.models", directory, size, *wanted]
        subprocess.run(list(map(str, command)), check=True, cwd=ROOT, env=environment)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Compare architectures in two places.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("places", type=Place.parsed, nargs=2, metavar="BACKEND:DEVICE=PYTHON")
    parser.add_argument("--name", action="append", choices=NAMES, help="default: all")
    parser.add_argument("--policy", action="append", choices=POLICIES, help="default: all")
    parser.add_argument("--size", type=int, default=SIZE, help="the width of images")
    parser.add_argument("--device-checks", action="store_true")
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    names = tuple(given.name or NAMES)
    directory: Path = given.directory.resolve()
    write_models(directory, given.places[0], given.size, names)
    key = " ".join(place.name for place in given.places)
    with ExitStack() as stack:
        runs = Runs(directory, tuple(given.places), stack)
        policies = given.policy or POLICIES
        for table, row in results(runs, names, policies, device_checks=given.device_checks):
            print(table, json.dumps(row), flush=True)
            if given.record:
                record(key, table, row)


if __name__ == "__main__":
    main()
