"""
Computes the tasks' own metrics as ``policytool check --labels --metric`` does: ``python -m
tests.trained.labelled DIRECTORY FILE ROWS...``, in an interpreter with TensorFlow.

``FILE`` gets what the metric of each output is, by model, policy, rows and output. Outputs whose
metric the libraries do not have are left out. Each output is measured alone, as by a run for each
metric, because a run has one metric.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np

from policytool.runtime.engine.task_metrics import Task
from policytool.runtime.library import KERAS2, KERAS3, Library

POLICIES: Final = ("mixed_float16", "mixed_bfloat16")
BATCH: Final = 8
"""Rows of a batch unless ``--batches xSIZE`` is set: blocks of rows are whole batches."""

METRICS: Final = {
    "auc": "auc",
    "mae": "mean_absolute_error",
    "mse": "mean_squared_error",
    "poisson": "poisson",
    "nll": "binary_crossentropy",
}
"""The names of the metrics that mean the same in the libraries, besides the accuracy."""


def metric_name(metric: str, labels: Any, found: Any) -> str | None:
    """Return the library's name of a metric; None if it has none that fits these outputs."""
    if metric == "accuracy":
        is_labels = labels.shape == found.shape and found.shape[-1] > 1
        return "binary_accuracy" if is_labels else "accuracy"
    if metric == "auc" and not (found.min() >= 0 and found.max() <= 1):
        return None
    return METRICS.get(metric)


def measure(library: Library, name: str, labels: Path, output: str, sides: list[Any]) -> Any:
    """Return what the metric of the rows of a reference and a candidate is, as JSON."""
    expected = {"name": name, "function": None, "labels": str(labels), "directory": None}
    result = Task(library, expected).metrics([output])
    tensors = [library.tf.constant(side) for side in sides]
    for start in range(0, len(sides[0]), BATCH):
        result.update(*([tensor[start : start + BATCH]] for tensor in tensors))
    return result.to_json()


def main(arguments: list[str]) -> None:
    """Measure every pair whose candidate is finite."""
    directory, path, counts = Path(arguments[0]), Path(arguments[1]), list(map(int, arguments[2:]))
    libraries = {"keras": Library(KERAS3), "tf_keras": Library(KERAS2)}
    measured = {}
    part = path.with_suffix(".npz")
    for place in sorted(directory.iterdir()):
        about = json.loads((place / "about.json").read_text(encoding="utf-8"))
        labels = dict(np.load(place / "labels.npz"))
        library = libraries[place.name.rpartition("-")[2]]
        for policy in POLICIES:
            if not (place / f"{policy}.npz").exists():
                continue
            before, after = (dict(np.load(place / f"{name}.npz")) for name in ("reference", policy))
            for output, metric in about["metrics"].items():
                if output not in labels or not np.isfinite(after[output]).all():
                    continue
                name = metric_name(metric, labels[output], before[output])
                if name is None:
                    continue
                for rows in counts:
                    np.savez(part, **{output: labels[output][:rows]})
                    sides = [side[output][:rows] for side in (before, after)]
                    key = f"{place.name} {policy} {rows} {output}"
                    measured[key] = measure(library, name, part, output, sides)
        print(place.name, flush=True)
    part.unlink()
    path.write_text(json.dumps(measured, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
