"""
Models that the guard lets through, loaded by the real libraries under strace: ``python -m
tests.fuzz SECONDS loaded``, with ``POLICYTOOL_COMPAT``.

Beside the models lie a canary that none may open and a place for a marker that none may make;
files, programs and addresses that are neither the libraries' nor the models' own are what such a
run must not touch.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from tests.compat.asking import ENVIRONMENT, SECONDS
from tests.conftest import COMPAT
from tests.fuzz import hostile, hostile_configs, hostile_graphs, processes, volume
from tests.fuzz.hostile_names import CANARY, MARKER, Paths

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CHILD: Final = Path(__file__).with_name("loading_child.py")
BATCH: Final = 60
"""Models of one process; TensorFlow takes some seconds to start."""

_JOB: Final = re.compile(r'/job-(\d+):"')
_TOUCHING: Final = re.compile(
    r"(?:\d+ "
    r"+)?(open\w*|creat|unlink\w*|rename\w*|link\w*|symlink\w*|mkdir\w*|rmdir|exec\w+|truncate)\("
)
_NAMED: Final = re.compile(f"{MARKER}|{CANARY}")
_MOSTLY_ODD: Final = 0.8


@dataclass
class Loaded:
    """What became of models."""

    ended: list[dict[str, str]] = field(default_factory=list)
    """By library, for each model."""

    touched: dict[int, list[str]] = field(default_factory=dict)
    """What a model did that it must not, by its number: calls of the system."""


def allowed(rng: Random, folder: Path, count: int) -> Iterator[tuple[Path, str]]:
    """
    Draw models, hostile and odd, until so many are let through by the guard; yield their paths with
    what they are.
    """
    found = 0
    while found < count:
        directory = folder / "models" / str(found)
        directory.mkdir(parents=True)
        path, result = _drawn(rng, Paths(folder=folder), directory)
        if hostile.refusal(path) is None:
            yield path, result
            found += 1
        else:
            shutil.rmtree(directory)


def _drawn(rng: Random, paths: Paths, directory: Path) -> tuple[Path, str]:
    is_hostile = rng.random() > _MOSTLY_ODD
    if rng.random() < 0.4:
        return hostile_graphs.write(rng, paths, directory, hostile=is_hostile, odd=rng.randrange(3))
    drawn = hostile_configs.draw(rng, paths, hostile=is_hostile, odd=rng.randrange(3))
    return hostile.write(drawn, rng, directory), drawn.hostile


def load(python: str, models: Sequence[Path], folder: Path) -> Loaded:
    """
    Load models under strace, in one process and one more after each model that ends it; the working
    directory is empty, and below ``folder``.
    """
    (folder / CANARY).write_text("word\n", encoding="utf-8")
    found = Loaded()
    while len(found.ended) < len(models):
        first = len(found.ended)
        log = _traced(python, first, models[first:], folder, found)
        parts = _JOB.split(log)
        if len(parts) == 1:
            raise AssertionError(found.ended[-1])
        for number, part in zip(parts[1::2], parts[2::2], strict=True):
            if broken := _broken(part, (folder / "models", folder / "cwd", folder / "tmp")):
                found.touched[int(number)] = broken
    if (folder / MARKER).exists() or (folder / CANARY).read_text(encoding="utf-8") != "word\n":
        found.touched.setdefault(-1, []).append("the marker or the canary was written")
    return found


def _traced(python: str, first: int, models: Sequence[Path], folder: Path, found: Loaded) -> str:
    """Run one process over models, add how they ended, and return what strace wrote."""
    for name in ("cwd", "tmp"):
        (folder / name).mkdir(exist_ok=True)
    jobs, answers, log = folder / "jobs.json", folder / "answers", folder / "strace.log"
    jobs.write_text(
        json.dumps([str(folder), first, [str(path) for path in models]]), encoding="utf-8"
    )
    answers.write_text("", encoding="utf-8")
    traced = [
        processes.STRACE,
        "-f",
        "-qq",
        "--seccomp-bpf",
        "-s",
        "4096",
        "-e",
        "trace=file,network,process",
        "-e",
        "signal=none",
        "-o",
        str(log),
    ]
    environment = {
        **os.environ,
        **ENVIRONMENT,
        "TMPDIR": str(folder / "tmp"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [*traced, python, str(CHILD), str(jobs), str(answers)]
    done = subprocess.run(
        command,
        cwd=folder / "cwd",
        env=environment,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=SECONDS,
    )
    lines = answers.read_text(encoding="utf-8").splitlines()
    found.ended += [json.loads(line) for line in lines]
    if len(lines) < len(models):
        found.ended.append({"process": f"ended by {done.returncode}: {done.stderr[-300:]}"})
    return log.read_text(encoding="utf-8", errors="replace")


def _broken(part: str, own: Sequence[Path]) -> list[str]:
    """
    Return the calls of the system that a model must not make; the first line is the rest of the one
    that names the job.
    """
    lines = part.partition("\n")[2]
    named = [line for line in lines.splitlines() if _TOUCHING.match(line) and _NAMED.search(line)]
    return [*named, *processes.touched(lines, own)]


def loop(seconds: float) -> volume.Tally:
    """Draw and load models for so many seconds."""
    tally, began = volume.Tally(), time.time()
    assert COMPAT is not None
    while time.time() - began < seconds:
        seed = time.time_ns() % 2**40
        with tempfile.TemporaryDirectory() as name:
            batch(Random(seed), str(Path(COMPAT).absolute()), Path(name).resolve(), tally)
    tally.seconds = time.time() - began
    return tally


def batch(
    rng: Random, python: str, folder: Path, tally: volume.Tally, count: int = BATCH
) -> Loaded:
    """Draw and load as many models as one process gets, and count what became of them."""
    models = list(allowed(rng, folder, count))
    result = load(python, [path for path, _ in models], folder)
    for ended in result.ended:
        for library, outcome in ended.items():
            tally.saw(f"{library} {'loaded' if outcome == 'loaded' else 'refused'}")
    tally.executions += len(result.ended)
    for number, lines in result.touched.items():
        tally.crashes += 1
        path = models[number][0] if number >= 0 else folder
        data = (
            (path / "saved_model.pb" if (path / "saved_model.pb").exists() else path).read_bytes()
            if path != folder
            else b""
        )
        volume.keep("loaded", data, f"{lines[0][:60]}: {path.name}: {lines[:5]}")
    return result
