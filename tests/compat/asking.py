"""
Ask a library what it makes of files: one child process under its interpreter, and one more after
each file that ends it.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.helpers.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LOADER: Final = Path(__file__).with_name("loader.py")

SECONDS: Final = 900
"""
What all files of a library may take together, several times what they do; a load that hangs ends
much earlier by its own alarm.
"""

ENVIRONMENT: Final = {
    "KERAS_BACKEND": "tensorflow",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "-1",
    "PYTHONWARNINGS": "ignore",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A file to load."""

    format: str
    path: str
    policy: str | None = None
    """The global policy to load it under; None for the library's own."""

    sample: str | None = None
    """``RELEASE/CASE`` whose recorded inputs to call the model with; None not to call it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded:
    """What a library made of a file."""

    error: str | None
    """What it was refused with; None where it loaded."""

    layers: tuple[Mapping[str, Any], ...] = ()
    """What the live layers said of themselves, in the words of the fixtures' truth."""

    outputs: tuple[Mapping[str, Any], ...] = ()
    """What the model made of the sample: dtype, shape and bytes in hexadecimal."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answers:
    """What a library made of every job."""

    versions: Mapping[str, str]
    loaded: Mapping[Job, Loaded]


def run_script(
    python: Path | str, *arguments: object, seconds: int = SECONDS, **environment: str
) -> str:
    """Run a Python program in the root with the library's interpreter; return what it prints."""
    done = subprocess.run(
        [str(python), *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, **ENVIRONMENT, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def run_module(python: Path, name: str, *arguments: object, seconds: int = SECONDS) -> str:
    """Run a module of this package with the library's interpreter; return what it prints."""
    return run_script(python, "-m", f"tests.compat.{name}", *arguments, seconds=seconds)


def ask(python: Path, release: str, jobs: Sequence[Job]) -> Answers:
    """Return what the library, named as the fixtures name releases, made of the jobs."""
    versions: Mapping[str, str] = {}
    loaded: dict[Job, Loaded] = {}
    left = list(jobs)
    while left:
        events = _events(python, release, left)
        versions = events[0]["versions"]
        ended = [
            Loaded(
                error=event["error"],
                layers=tuple(event["layers"]),
                outputs=tuple(event.get("outputs", ())),
            )
            for event in events
            if "end" in event
        ]
        if "begin" in events[-1]:
            ended.append(Loaded(error="the process ended or the load never returned"))
        loaded.update(zip(left, ended, strict=False))
        left = left[len(ended) :]
    return Answers(versions=versions, loaded=loaded)


def _events(python: Path, release: str, jobs: Sequence[Job]) -> list[dict[str, Any]]:
    """Run one child; return what it wrote down before it came to its end."""
    with tempfile.TemporaryDirectory() as scratch:
        listed, results, messages = (
            Path(scratch, name) for name in ("jobs.json", "results.jsonl", "messages")
        )
        listed.write_text(
            json.dumps([(job.format, job.path, job.policy, job.sample) for job in jobs]),
            encoding="utf-8",
        )
        results.touch()
        with messages.open("w") as stream:
            done = subprocess.run(
                [python, LOADER, release, listed, results],
                stdout=stream,
                stderr=stream,
                check=False,
                timeout=SECONDS,
                env={**os.environ, **ENVIRONMENT, "KERAS_HOME": scratch},
            )
        events = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
        if done.returncode > 0 or len(events) < 2:
            raise RuntimeError(
                f"{release} does not run under "
                f"{python}:\n{messages.read_text(encoding='utf-8')[-2000:]}"
            )
        return events
