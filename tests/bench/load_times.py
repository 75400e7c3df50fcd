"""
Measure ``policytool.load`` beside ``load_model``: ``python load_times.py TF2.15 KERAS3``.

The arguments are interpreters: one writes the models, the other loads them. The packages of this
interpreter must fit the second one, because that one imports policytool from here.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.bench.sections import write_table
from tests.helpers.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

HEADING: Final = "## Time of load"
REPEATS: Final = 3
SHARE: Final = 1.2
SECONDS: Final = 0.5

MODELS: Final = {
    "2 layers": "layers.Dense(4)(inputs)",
    "400 layers": "deep(inputs)",
    "MobileNetV2": "apps.MobileNetV2(weights=None)",
    "ResNet50": "apps.ResNet50(weights=None)",
    "EfficientNetV2-L": "apps.EfficientNetV2L(weights=None)",
}
"""Outputs of the input, or whole models."""

WRITE: Final = """
import sys, tensorflow as tf
from tensorflow.keras import layers, applications as apps, Model
tf.keras.mixed_precision.set_global_policy("mixed_float16")
def deep(x):
    for _ in range(200):
        x = layers.BatchNormalization()(layers.Dense(16, activation="relu")(x))
    return x
inputs = layers.Input((16,))
made = eval(sys.argv[1])
(made if isinstance(made, Model) else Model(inputs, made)).save(sys.argv[2])
"""

LOAD: Final = """
import sys, time
import keras
keras.ops.zeros(1)
sys.path[:0], sys.path[len(sys.path):] = [sys.argv[1]], [sys.argv[2]]
start = time.process_time()
if sys.argv[3] == "load_model":
    keras.models.load_model(sys.argv[4])
else:
    import policytool
    policytool.load(sys.argv[4])
print(time.process_time() - start)
"""

COLUMNS: Final = ("model", "load_model of the converted file", "load", "times", "allowed")

ABOUT: Final = f"""\
`tests/bench/load_times.py` writes this section: processor time of `policytool.load` on HDF5 files
in mixed_float16 of TF 2.15, which Keras 3 cannot load, and of `load_model` on the converted file;
the medians of {REPEATS} processes each, in turn. Keras is imported before; policytool is imported
within the time. The goal is {SHARE} times `load_model` and {SECONDS} s."""


def run(*words: str | Path) -> str:
    """Return the output of a Python process on the CPU."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    command = [str(word) for word in words]
    return subprocess.run(
        command, check=True, env=environment, stdout=subprocess.PIPE, text=True
    ).stdout


def rows(writer: Path, loader: Path, folder: Path) -> Iterator[tuple[str, ...]]:
    """Yield the lines of the table."""
    packages = sysconfig.get_path("purelib")
    for name, text in MODELS.items():
        source, converted = folder / "model.h5", folder / "converted.keras"
        run(writer, "-c", WRITE, text, source)
        options = ("--target", "keras3", "--no-verify", "--existing", "replace", "-o", converted)
        run(sys.executable, "-m", "policytool", "migrate", source, *options)
        taken: dict[str, list[float]] = {"load_model": [], "load": []}
        for _ in range(REPEATS):
            for function, path in (("load_model", converted), ("load", source)):
                printed = run(loader, "-c", LOAD, ROOT, packages, function, path)
                taken[function].append(float(printed.split()[-1]))
        plain, load = (statistics.median(seconds) for seconds in taken.values())
        allowed = SHARE * plain + SECONDS
        yield name, f"{plain:.2f} s", f"{load:.2f} s", f"{load / plain:.2f}", f"{allowed:.2f} s"


def main() -> None:
    """Print the section, or write it into a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("writer", type=Path, help="Python with TF 2.15")
    parser.add_argument("loader", type=Path, help="Python with the newest Keras 3")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the section into a page")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table = rows(arguments.writer, arguments.loader, Path(folder))
        write_table(arguments.write, HEADING, COLUMNS, table, ABOUT)


if __name__ == "__main__":
    main()
