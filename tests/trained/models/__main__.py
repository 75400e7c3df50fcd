"""
Trains models: ``python -m tests.trained.models DIRECTORY LIBRARY [GROUP | NAME...]``.

It runs in an interpreter with TensorFlow. ``LIBRARY`` is ``keras`` or ``tf_keras``. Each model gets
a directory with the model, ``inputs.npz``, ``labels.npz`` (of each output with labels) and
``about.json``.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from tests.trained.models import design, measured
from tests.trained.models.tasks import MODELS, ONLY_KERAS3, ONLY_TF_KERAS

GROUPS = {"design": design, "measured": measured, "after": measured.after_the_change}
"""By the name that stands for all of their models; ``after`` is a part of ``measured``."""


def save(name: str, library: str, directory: Path) -> None:
    """Train one model, and save it with what it is judged on."""
    keras = import_module(library)
    keras.utils.set_random_seed(sum(map(ord, name)))
    task = MODELS[name](keras)
    directory.mkdir(parents=True)
    path = directory / ("model.keras" if library == "keras" else "model.h5")
    task.model.save(path)
    np.savez(directory / "inputs.npz", **task.inputs)
    np.savez(directory / "labels.npz", **task.labels)
    about = {"model": path.name, "metrics": task.metrics, "outputs": list(task.model.output_names)}
    (directory / "about.json").write_text(json.dumps(about), encoding="utf-8")


def names_in(given: str) -> list[str]:
    """Return the models of a group, or the one that is named."""
    if given not in GROUPS:
        return [given]
    package = GROUPS[given].__name__
    return [name for name, build in MODELS.items() if build.__module__.startswith(package)]


def main(arguments: list[str]) -> None:
    """Train what is given and not there yet, as far as the library can have it."""
    directory, library, *names = arguments
    for name in [item for given in names or GROUPS for item in names_in(given)]:
        place = Path(directory) / f"{name}-{library}"
        other = ONLY_TF_KERAS if library == "keras" else ONLY_KERAS3
        if not place.exists() and name not in other:
            save(name, library, place)
            print(place.name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
