"""
Compares the answers of ``check`` on a backend of Keras 3 with the truth on the same backend:
``python -m tests.trained.backends DIRECTORY --backend NAME --python PYTHON [--seed N...]
[--trained MODELS]``.

The models are those of ``tests.helpers.planted_failures`` and ``tests.compat.residual_models``, and
the models of Keras 3 in a directory of ``tests.trained.models``. Plain Keras loads the reference
and the candidate that ``migrate`` writes, and predicts. ``tests.trained.truth`` says whether a
candidate of a trained model is harmful. Another candidate is harmful if it returns new NaN or
infinity, if more than 1 % of the rows change their largest value, or if the error of numbers is
more than 1 % of the spread of their channel. What was done is kept in the directory, and all
backends share its models. ``--record`` adds the answers to ``backends.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import policytool
from policytool.commands import check as checks
from policytool.commands import check_run
from policytool.commands.check_options import CheckOptions
from policytool.formats import discovery
from policytool.migration.planning.options import Options
from policytool.numerics.tensorflow_run import TensorFlowTools
from policytool.numerics.workers import Interpreter, Worker
from tests.compat import residual_models
from tests.helpers.paths import ROOT
from tests.helpers.planted_failures import BFLOAT16, FLOAT16
from tests.trained import truth

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

RECORD: Final = Path(__file__).with_name("backends.json")
LIMIT: Final = 0.01
STREAMS: Final = ("one", "some", "all", "offset", "plain")
TRUTHS: Final = ("harmful", "harmless")
WRONG: Final = {(True, "safe"), (False, "not-safe")}
ROWS: Final = 1000
"""The first rows of a trained model, which the check sees."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A model, its candidate and the inputs."""

    name: str
    backend: str
    model: Path
    inputs: Path
    to: str | None
    """The policy of the candidate; None if the file has it."""

    module: str | None = None
    trust: bool = False
    places: tuple[str, ...] = ()
    """The layers that may be named as the origin; empty if none is known."""

    task: Path | None = None
    """The directory of a trained model, with all rows and their labels."""

    models: str = "planted"
    """The kind of the model: ``planted``, ``streams`` or ``trained``."""

    @property
    def place(self) -> Path:
        """
        The directory of the predictions and of the answer. Its parent has no name of a module,
        because the directory of the model may be searched for modules.
        """
        return self.model.parent / f"on-{self.backend}" / self.name

    def files(self) -> Mapping[str, str]:
        """Write the other side, and return the files to predict with."""
        path = self.model.with_name(f"{self.name}-{self.to or 'float32'}.keras")
        options = {"to": self.to} if self.to else {"to": "float32", "include": ["exceptions"]}
        if not path.exists():
            policytool.migrate(self.model, output=path, verify=False, trust=self.trust, **options)
        first, second = (self.model, path) if self.to else (path, self.model)
        return {"reference": str(first), "candidate": str(second)}


def python_of(python: str, backend: str, *arguments: object) -> None:
    """Run Python with a backend in the root of the repository."""
    devices = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    settings = {"KERAS_BACKEND": backend, "CUDA_VISIBLE_DEVICES": devices}
    settings["TF_CPP_MIN_LOG_LEVEL"] = "3"
    path = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    environment = {**os.environ, **settings, "PYTHONPATH": path}
    subprocess.run([python, *map(str, arguments)], check=True, env=environment, cwd=ROOT)


def planted(directory: Path, python: str, backend: str, seed: int, *only: str) -> Iterator[Pair]:
    """Yield the planted failures of a seed, all or those of the names given, and write them."""
    place = directory / f"planted-{seed}"
    if not (place / "cases.json").exists():
        script = "tests/helpers/planted_failures.py"
        names = [f"--only={name}" for name in only]
        python_of(python, backend, script, place, "--library", "keras", "--seed", seed, *names)
    for case in json.loads((place / "cases.json").read_text(encoding="utf-8")):
        arguments = case["arguments"]
        yield Pair(
            name=f"{case['name']}-{seed}",
            backend=backend,
            model=place / case["model"],
            inputs=place / case["inputs"],
            to=case["to"],
            module=arguments[1] if len(arguments) > 1 else None,
            trust="--trust" in arguments,
            places=(case["place"], *case["also"]) if case["fails"] else (),
        )


def streams(directory: Path, python: str, backend: str) -> Iterator[Pair]:
    """Yield residual streams, which are written if they are not there."""
    place = directory / "streams"
    place.mkdir(exist_ok=True)
    if not (place / f"{STREAMS[-1]}.keras").exists():
        python_of(python, backend, "-m", residual_models.__name__, place, *STREAMS)
    for name in STREAMS:
        for policy in (FLOAT16, BFLOAT16):
            yield Pair(
                name=f"{name}-{policy}",
                backend=backend,
                model=place / f"{name}.keras",
                inputs=place / "inputs.npz",
                to=policy,
                models="streams",
            )


def trained(directory: Path, models: Path, backend: str) -> Iterator[Pair]:
    """Yield the trained models of a directory, with both policies."""
    folder = directory / "trained"
    folder.mkdir(exist_ok=True)
    for task in sorted(models.resolve().glob("*-keras")):
        with np.load(task / "inputs.npz") as file:
            rows = {name: array[:ROWS] for name, array in file.items()}
        model = folder / f"{task.name}.keras"
        if not model.exists():
            np.savez(model.with_suffix(".npz"), **rows)
            model.symlink_to(task / "model.keras")
        for policy in (FLOAT16, BFLOAT16):
            yield Pair(
                name=f"{task.name}-{policy}",
                backend=backend,
                model=model,
                inputs=model.with_suffix(".npz"),
                to=policy,
                task=task,
                models="trained",
            )


def predict(pairs: Sequence[Pair], python: str, backend: str) -> None:
    """Predict with both sides of each pair that runs in plain Keras."""
    places = []
    for pair in pairs:
        place = pair.place
        place.mkdir(parents=True, exist_ok=True)
        if not (place / "candidate.npz").exists():
            (place / "jobs.json").write_text(json.dumps(pair.files()), encoding="utf-8")
            with suppress(FileExistsError):
                rows = pair.inputs if pair.task is None else pair.task / "inputs.npz"
                (place / "inputs.npz").symlink_to(rows)
            places.append(place)
    if not places:
        return
    modules = sorted({pair.module for pair in pairs if pair.module})
    homes = sorted({str(pair.model.parent) for pair in pairs if pair.module})
    before, os.environ["PYTHONPATH"] = os.environ.get("PYTHONPATH", ""), os.pathsep.join(homes)
    try:
        named = ",".join(["keras", *modules])
        with suppress(subprocess.CalledProcessError):  # it names the models that do not run
            python_of(python, backend, "-m", "tests.trained.predictions", named, *places)
    finally:
        os.environ["PYTHONPATH"] = before


def is_harmful(pair: Pair) -> bool:
    """Return whether predictions change, or whether they are worse by labels, by plain rules."""
    place = pair.place
    before, after = (dict(np.load(place / f"{side}.npz")) for side in ("reference", "candidate"))
    if pair.task is not None:
        about = json.loads((pair.task / "about.json").read_text(encoding="utf-8"))
        labels = dict(np.load(pair.task / "labels.npz"))
        return bool(truth.harms(before, after, labels, about["metrics"]))
    facts = json.loads((place / "facts.json").read_text(encoding="utf-8"))
    names = {fact["name"]: fact["activation"] for fact in facts}
    return any(_differs(before[name], after[name], names[name]) for name in names)


def _differs(before: Any, after: Any, activation: str | None) -> bool:
    before, after = before.astype("float64"), after.astype("float64")
    known = np.isfinite(before)
    if (known & ~np.isfinite(after)).any():
        return True
    if not known.all():
        return False
    changed = float((before.argmax(-1) != after.argmax(-1)).mean())
    if activation == "softmax":
        return changed > LIMIT
    axes = tuple(range(before.ndim - 1))
    spread, error = before.std(axes), np.sqrt(((before - after) ** 2).mean(axes))
    if not spread.any():
        return False
    spread = np.where(spread > 0, spread, spread.max())  # of a constant channel, that of others
    return bool((error / spread > LIMIT).any())


def compare(pair: Pair, worker: Worker, device: str = "auto") -> dict[str, Any]:
    """
    Return the truth about a pair, and the answer of check. Only for planted failures does check
    also look for the origin, which runs models many times.
    """
    (model,) = discovery.inputs([str(pair.model)])
    tools = TensorFlowTools(
        worker=worker,
        trust=pair.trust,
        custom_objects=(pair.module,) if pair.module else (),
        path=(str(pair.model.parent),),
    )
    is_planted = pair.models == "planted"
    options = CheckOptions(
        candidate=Options(to=pair.to), inputs=pair.inputs, isolated=is_planted, device=device
    )
    if is_planted:
        result = checks.check(model, None, options, tools)
    else:
        with tools.hand_over() as copies:
            result = check_run.measure(model, None, options, tools, copies).check
    origin = result.runs[0].origin
    path = origin.path if origin is not None else None
    return {
        "name": pair.name,
        "harmful": is_harmful(pair),
        "answer": result.answer.value,
        "origin": path.partition(" (call")[0] in pair.places if path and pair.places else None,
        "planted": bool(pair.places),
        "versions": dict(result.versions),
    }


def record(backend: str, result: Mapping[str, Any]) -> None:
    """Add an answer of a backend to those with the same versions."""
    known = json.loads(RECORD.read_text(encoding="utf-8"))
    entry = known.setdefault(backend, {})
    if entry.get("versions") != result["versions"]:
        entry.clear()
    entry["versions"] = result["versions"]
    name, truths = result["name"], entry.setdefault(result["models"], {})
    for word in TRUTHS:
        truths.setdefault(word, {}).pop(name, None)
    truths[TRUTHS[not result["harmful"]]][name] = result["answer"]
    if result["planted"]:
        entry.setdefault("origins", {})[name] = bool(result["origin"])
    text = json.dumps(known, indent=1, sort_keys=True)
    RECORD.write_text(text + "\n", encoding="utf-8")


def main() -> None:
    """Compare, and print each pair."""
    parser = argparse.ArgumentParser(description="Compare check on a backend with the truth.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--backend", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--seed", type=int, action="append", default=[])
    parser.add_argument("--streams", action="store_true", help="also residual streams")
    parser.add_argument("--trained", type=Path, help="models of tests.trained.models")
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    directory: Path = given.directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    pairs = list(streams(directory, given.python, given.backend)) if given.streams else []
    for seed in given.seed:
        pairs += planted(directory, given.python, given.backend, seed)
    if given.trained is not None:
        pairs += trained(directory, given.trained, given.backend)
    predict(pairs, given.python, given.backend)
    interpreter = Interpreter(python=given.python, timeout=600, backend=given.backend)
    with Worker(interpreter) as worker:
        for pair in pairs:
            path = pair.place / "answer.json"
            if not path.with_name("candidate.npz").exists():
                print(f"{pair.name} does not run", flush=True)
                continue
            if not path.exists():
                path.write_text(json.dumps(compare(pair, worker)), encoding="utf-8")
            one = json.loads(path.read_text(encoding="utf-8"))
            one["harmful"] = is_harmful(pair)  # also if the rule has changed
            one["models"] = pair.models
            wrong = "WRONG " if (one["harmful"], one["answer"]) in WRONG else ""
            truth = TRUTHS[not one["harmful"]]
            print(
                f"{wrong}{pair.name}: {one['answer']}; {truth}; origin {one['origin']}", flush=True
            )
            if given.record:
                record(given.backend, one)


if __name__ == "__main__":
    main()
