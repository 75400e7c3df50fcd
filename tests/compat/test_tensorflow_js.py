"""
Models that ``migrate --target tfjs`` writes load in TensorFlow.js, in Node.js, and predict what
they did in the library that wrote them. Keras models that ``migrate`` makes of them do so too.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from functools import cache
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

import policytool
from policytool.commands.migrate import Status
from tests.compat.asking import SECONDS, run_module
from tests.compat.tfjs_models import MODELS
from tests.helpers.paths import FIXTURES, ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.compat

PREDICT: Final = ROOT / "tests/tfjs/predict.js"
NEAR: Final = 2e-6
"""Of the largest value; TensorFlow.js has kernels of its own."""


def run_node(*arguments: Path) -> str:
    """Run TensorFlow.js, which ``make tests/tfjs/node_modules`` installs; return what it prints."""
    node = shutil.which("node")
    assert node is not None
    command = [node, str(PREDICT), *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=SECONDS, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def converted(
    compat_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """Return a function that gives a folder with the models of a library, after TensorFlow.js."""

    @cache
    def folder_of(library: str) -> Path:
        folder = tmp_path_factory.mktemp(library)
        run_module(compat_python, "tfjs_models", library, folder)
        for place in sorted(folder.iterdir()):
            (original,) = place.glob("original.*")
            done = policytool.migrate(original, target="tfjs", output=place / "model", verify=False)
            assert done.status is Status.WRITTEN, (place.name, done.plan.refusals)
        run_node(*sorted(folder.iterdir()))
        return folder

    return folder_of


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("library", ["keras", "tf_keras"])
def test_predictions_are_equal(converted: Callable[[str], Path], library: str, name: str) -> None:
    """The predictions of each output agree."""
    place = converted(library) / name
    error = place / "error.txt"
    assert not error.exists(), error.read_text(encoding="utf-8")
    outputs = json.loads((place / "outputs.json").read_text(encoding="utf-8"))
    expected = list(np.load(place / "expected.npz").values())
    assert len(outputs) == len(expected)
    for output, values in zip(outputs, expected, strict=True):
        result = np.array(output["values"], "float32").reshape(output["shape"])
        assert result.shape == values.shape
        assert np.max(np.abs(result - values)) <= NEAR * max(1.0, float(np.max(np.abs(values))))


@pytest.mark.parametrize("library", ["keras", "tf_keras"])
def test_keras_predicts_as_tensorflow_js(
    converted: Callable[[str], Path], compat_python: Path, library: str
) -> None:
    folder = converted("keras")
    target, suffix = ("keras3", "keras") if library == "keras" else ("tf_keras", "h5")
    for place in sorted(folder.iterdir()):
        source, output = place / "model/model.json", place / f"converted.{suffix}"
        done = policytool.migrate(source, target=target, output=output, verify=False)
        assert done.status is Status.WRITTEN, (place.name, done.plan.refusals)
    run_module(compat_python, "tfjs_models", library, folder, "predict")
    for place in sorted(folder.iterdir()):
        outputs = json.loads((place / "outputs.json").read_text(encoding="utf-8"))
        for output, values in zip(outputs, np.load(place / f"{library}.npz").values(), strict=True):
            expected = np.array(output["values"], "float32").reshape(output["shape"])
            difference = np.max(np.abs(expected - values))
            assert difference <= NEAR * max(1.0, float(np.max(np.abs(values)))), place.name


def test_the_table_has_the_names_that_tensorflow_js_knows() -> None:
    """The table is of the release that the lock file names."""
    table = json.loads(
        (ROOT / "policytool/releases/data/tfjs_layers.json").read_text(encoding="utf-8")
    )
    assert json.loads(run_node()) == table["names"]


def test_audit_agrees_with_tensorflow_js(tmp_path: Path) -> None:
    """TensorFlow.js loads the layers models of the fixtures in which PT507 finds nothing."""
    folders = []
    for file in sorted(FIXTURES.glob("tfjs4.22/*/model.json")):
        if file.parent.name != "graph_model":
            folder = tmp_path / file.parent.name
            shutil.copytree(file.parent, folder / "model")
            (folder / "inputs.json").write_text("[]", encoding="utf-8")
            folders.append(folder)
    run_node(*folders)
    for folder in folders:
        findings = policytool.audit(folder / "model/model.json").findings
        fails = "PT507" in {finding.rule for finding in findings}
        assert fails == (folder / "error.txt").exists(), folder.name
