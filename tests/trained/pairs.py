"""
Migrates each trained model to both mixed policies and predicts with the files that are written:
``python -m tests.trained.pairs DIRECTORY PYTHON``, with the interpreter that has TensorFlow.

The predictions of a model and of each candidate are in ``reference.npz`` and ``POLICY.npz`` beside
it; ``POLICY.json`` says why there is none.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.conftest import run

POLICIES: Final = ("mixed_float16", "mixed_bfloat16")


def main(arguments: list[str]) -> None:
    """Make what is not there."""
    directory, python = Path(arguments[0]), arguments[1]
    waiting: dict[str, list[str]] = {}
    for place in sorted(directory.iterdir()):
        if not (place / "about.json").exists():
            continue
        if not (place / "jobs.json").exists():
            migrate(place)
        names = json.loads((place / "jobs.json").read_text(encoding="utf-8"))
        if any(not (place / f"{name}.npz").exists() for name in names):
            waiting.setdefault(place.name.rpartition("-")[2], []).append(str(place))
    for library, places in waiting.items():
        subprocess.run(
            [python, "-m", "tests.trained.predictions", library, *places],
            check=True,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"},
        )


def migrate(place: Path) -> None:
    """Write the candidates of a model, and the files to predict with, by name."""
    model = place / json.loads((place / "about.json").read_text(encoding="utf-8"))["model"]
    jobs = {"reference": str(model)}
    for policy in POLICIES:
        path = place / f"{policy}{model.suffix}"
        ended = run("migrate", model, "--to", policy, "-o", path, "--existing=replace")
        if path.exists():
            jobs[policy] = str(path)
        else:
            text = json.dumps({"code": ended.code, "why": ended.out + ended.err})
            (place / f"{policy}.json").write_text(text, encoding="utf-8")
    (place / "jobs.json").write_text(json.dumps(jobs), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
