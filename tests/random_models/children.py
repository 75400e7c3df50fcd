"""
Child processes in a library: each goes through a list of jobs and writes a line for each.

A child that ends or hangs costs one job; another one goes on behind it.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.compat.asking import ENVIRONMENT
from tests.helpers.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SECONDS_PER_JOB: Final = 120
_BEGINNING: Final = 2
"""How many children may fail without a result before the library is taken for broken."""

_THREADS: Final = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
"""Small models are faster so, and so they are where others use the processors."""

Json = dict[str, Any]


def answers(
    python: Path, module: str, library: str, jobs: Sequence[Mapping[str, Any]]
) -> list[Json]:
    """Return what a child of a library says of each job."""
    found: list[Json] = []
    failures = 0
    with tempfile.TemporaryDirectory() as scratch:
        while len(found) < len(jobs):
            lines, end = _run(python, module, library, jobs[len(found) :], Path(scratch))
            found += lines
            if len(found) < len(jobs):
                failures = 0 if lines else failures + 1
                if failures > _BEGINNING and not found:
                    raise RuntimeError(f"{module} does not run: {end}")
                found.append({"error": f"the process ended: {end[-300:]}"})
    return found


def _run(
    python: Path, module: str, library: str, jobs: Sequence[Mapping[str, Any]], scratch: Path
) -> tuple[list[Json], str]:
    listed, results, messages = (scratch / name for name in ("jobs", "results", "messages"))
    listed.write_text(json.dumps(list(jobs)), encoding="utf-8")
    results.write_text("", encoding="utf-8")
    command = [
        str(python),
        "-m",
        f"tests.random_models.{module}",
        library,
        str(listed),
        str(results),
    ]
    with messages.open("w") as stream:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={
                **os.environ,
                **ENVIRONMENT,
                "KERAS_HOME": str(scratch),
                "TF_USE_LEGACY_KERAS": "",
                **_THREADS,
            },
            stdout=stream,
            stderr=stream,
        )
        _await_end(process, results)
    text = results.read_text(encoding="utf-8")
    complete = text[: text.rfind("\n") + 1]
    end = messages.read_text(encoding="utf-8", errors="replace")
    return [json.loads(line) for line in complete.splitlines()], end


def _await_end(process: subprocess.Popen[bytes], results: Path) -> None:
    """Wait as long as the child gets on."""
    size = -1
    while True:
        try:
            process.wait(SECONDS_PER_JOB)
        except subprocess.TimeoutExpired:
            if results.stat().st_size == size:
                process.kill()
                process.wait()
                return
            size = results.stat().st_size
        else:
            return
