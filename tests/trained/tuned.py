"""
Tunes each trained model with its first rows, and compares the promise with the change in the
others: ``python -m tests.trained.tuned DIRECTORY PYTHON [ROWS]``, with the interpreter that has
TensorFlow.

It prints a table for ``docs/evidence/benchmarks.md``. ``tests.trained.models`` writes the models.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import policytool
from tests.trained.pairs import POLICIES

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS: Final = 1024
"""Rows that ``tune`` gets, half of them for the search."""

HEADER: Final = (
    *("model", "policy", "candidates", "kept", "margin", "trials", "time"),
    *("answer", "promise", "fresh rows", "change"),
)


def main(arguments: list[str]) -> None:
    """Print a row for each model and policy."""
    directory, python = Path(arguments[0]), arguments[1]
    rows = int(arguments[2]) if len(arguments) > 2 else ROWS
    for row in (HEADER, ("---",) * len(HEADER)):
        print(f"| {' | '.join(row)} |", flush=True)
    for place in sorted(directory.iterdir()):
        for policy in POLICIES:
            print(f"| {' | '.join(tuned(place, policy, python, rows))} |", flush=True)


def tuned(place: Path, policy: str, python: str, rows: int) -> Iterator[str]:
    """Yield the cells of a model under a policy."""
    model = place / json.loads((place / "about.json").read_text(encoding="utf-8"))["model"]
    arrays = dict(np.load(place / "inputs.npz"))
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / model.name
        result = policytool.tune(
            model,
            to=policy,
            inputs={name: array[:rows] for name, array in arrays.items()},
            batches="x64",
            output=written,
            python=python,
        )
        values = result.to_dict()["tuning"]
        yield from (place.name, policy, str(len(result.layers)), str(len(result.kept)))
        yield from (str(values["margin"]), str(len(result.trials)), f"{values['seconds']:.0f} s")
        promise = (values["best"] or {}).get("promise") or {}
        yield str(result.answer)
        yield "" if promise.get("most") is None else f"{promise['most']:.3%}"
        if not written.exists():
            yield from ("", "")
            return
        fresh = {name: array[rows:] for name, array in arrays.items()}
        (run,) = policytool.check(
            model, written, inputs=fresh, batches="x64", python=python
        ).to_dict()["check"]["runs"]
        yield from change(run["outputs"])


def change(outputs: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the number of fresh rows, and the largest change of an output in them."""
    answers = [output["answer"] for output in outputs if output["answer"]["kinds"]]
    deciding = [answer["kinds"][0] for answer in answers]
    yield str(max((kind["samples"] for kind in deciding), default=0))
    yield f"{max((kind['change']['value'] for kind in deciding), default=0.0):.3%}"


if __name__ == "__main__":
    main(sys.argv[1:])
