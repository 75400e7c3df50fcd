"""
The functions for ``--inputs`` that ``docs/how-to/check.md`` shows: each is a module as a user would
write it, and its batches come to a model.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

from tests.compat.asking import ENVIRONMENT, SECONDS
from tests.conftest import run
from tests.helpers.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.compat

PAGE: Final = (ROOT / "docs/how-to/check.md").read_text(encoding="utf-8")
# Modules define a function; the page also shows calls of one line.
MODULES: Final = [
    code
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    if re.search("^def ", code, re.MULTILINE)
]
*SNIPPETS, METRIC = MODULES
MODELS: Final = """
import keras, tensorflow as tf, pathlib
table = keras.Input((2,), name="features")
keras.Model(table, keras.layers.Dense(3)(table)).save("table.keras")
image = keras.Input((224, 224, 3), name="image")
pooled = keras.layers.GlobalAveragePooling2D()(keras.layers.Rescaling(1 / 255)(image))
keras.Model(image, keras.layers.Dense(3)(pooled)).save("image.keras")
pathlib.Path("validation").mkdir()
for number in range(40):
    pixels = tf.cast(tf.random.uniform((20 + number, 30, 3), 0, 256, tf.int32), tf.uint8)
    tf.io.write_file(f"validation/{number}.jpg", tf.io.encode_jpeg(pixels))
"""


@pytest.fixture(scope="module")
def folder(compat_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with two models and the data that they are fed with."""
    result = tmp_path_factory.mktemp("snippets")
    rows = "".join(f"{20 + number},{1000.5 * number}\n" for number in range(70))
    (result / "validation.csv").write_text(f"age,income\n{rows}", encoding="utf-8")
    environment = {**os.environ, **ENVIRONMENT, "KERAS_BACKEND": "tensorflow"}
    command = [str(compat_python), "-c", MODELS]
    subprocess.run(command, cwd=result, env=environment, check=True, timeout=SECONDS)
    for number, code in enumerate(SNIPPETS):
        (result / f"my_data_{number}.py").write_text(code, encoding="utf-8")
    return result


def test_snippets_have_at_most_ten_lines() -> None:
    """Only lines of code count."""
    lines = [len([line for line in code.splitlines() if line.strip()]) for code in MODULES]
    assert len(MODULES) == 3
    assert max(lines) <= 10


def test_top_5_metric_is_the_share_of_labels_among_the_five_largest() -> None:
    """In seven classes, the two classes with the lowest scores are not among the five largest."""
    names: dict[str, Any] = {}
    exec(METRIC, names)  # noqa: S102  # the snippet of the page
    scores = np.arange(7.0)[np.newaxis].repeat(4, axis=0)
    assert names["top_5"](np.array([0, 1, 2, 6]), scores) == 0.5


@pytest.mark.parametrize(
    ("model", "function", "batches"),
    [("table.keras", "my_data_0:rows", 3), ("image.keras", "my_data_1:images", 2)],
)
def test_snippets_feed_a_model(
    compat_python: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    model: str,
    function: str,
    batches: int,
) -> None:
    """Each snippet feeds all of its data, without ``--trust``."""
    monkeypatch.chdir(folder)
    options = ("--to", "mixed_bfloat16", "--python", str(compat_python), "--format", "json")
    result = run("check", model, "--inputs", function, *options)
    assert result.code in {0, 1, 5}, result.err
    (outcome,) = json.loads(result.out)["check"]["runs"]
    assert (outcome["inputs"]["kind"], outcome["inputs"]["batches"]) == ("given", batches)
    assert outcome["inputs"]["batch_size"] == 32
    assert outcome["inputs"]["notes"] == []
