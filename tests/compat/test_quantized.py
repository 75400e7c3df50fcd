"""
``check`` and ``tune`` of models that the newest Keras quantizes: the planted layers stay
unquantized, and the written model loads and predicts as ``tune`` says.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

import policytool
from tests.compat.asking import run_script

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

pytestmark = [pytest.mark.compat, pytest.mark.slow]

SEEDS: Final = (1, 2)
PREDICT: Final = """
import sys
import keras, numpy as np
model_file, inputs, outputs, code = sys.argv[1:]
model = keras.models.load_model(model_file)
exec(code)
np.save(outputs, model.predict(np.load(inputs), verbose=0))
"""


@pytest.fixture(scope="module")
def place(compat_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of the models."""
    directory = tmp_path_factory.mktemp("quantized").resolve()
    seeds = [word for seed in SEEDS for word in ("--seed", str(seed))]
    run_script(compat_python, "-m", "tests.helpers.planted_quantizations", directory, *seeds)
    return directory


def truth_of(place: Path, seed: int) -> Mapping[str, Any]:
    """Return what is known of a model, with its paths."""
    truth = json.loads((place / f"quantized-{seed}.json").read_text(encoding="utf-8"))
    return {**truth, "model": place / truth["model"], "inputs": place / truth["inputs"]}


def predictions(python: Path, model: Path, truth: Mapping[str, Any], code: str = "") -> Any:
    """Return the predictions of a model in Keras, after code that may change the model."""
    outputs = model.with_suffix(".outputs.npy")
    run_script(python, "-c", PREDICT, model, truth["inputs"], outputs, code)
    return np.load(outputs)


@pytest.mark.parametrize("seed", SEEDS)
def test_planted_layers_stay_unquantized(compat_python: Path, place: Path, seed: int) -> None:
    """The file and the code for training predict as the trial of the set."""
    truth, written = truth_of(place, seed), place / f"written-{seed}.keras"
    python = str(compat_python)
    shared = {"inputs": truth["inputs"], "python": python, "batches": "x8"}
    result = policytool.tune(
        truth["model"], to="int8", tolerance=truth["tolerance"], output=written, **shared
    )
    assert sorted(result.kept) == truth["planted"]
    values = result.to_dict()["tuning"]
    reference = predictions(compat_python, truth["model"], truth)
    outputs = predictions(compat_python, written, truth)
    error = np.linalg.norm(outputs - reference) / np.linalg.norm(reference)
    assert error <= truth["tolerance"]
    assert error == pytest.approx(values["best"]["error"], rel=0.5)  # the larger one of both halves
    code = predictions(compat_python, truth["model"], truth, result.training_code or "")
    np.testing.assert_allclose(code, outputs, atol=1e-6)
    stored = {
        point["converted"]: point["bytes"]
        for point in values["curve"]
        if point["chosen"] or not point["converted"]
    }
    for count, path in ((0, truth["model"]), (max(stored), written)):
        layers = policytool.inspect(path).layers
        dtypes = [
            (variable.dtype, variable.parameters)
            for layer in layers
            for variable in layer.variables
        ]
        assert stored[count] == sum({"int8": 1}.get(dtype, 4) * size for dtype, size in dtypes)


def test_check_names_the_layer_that_quantization_breaks(compat_python: Path, place: Path) -> None:
    """It finds the answer without a search, and with the layer unquantized it is another one."""
    truth = truth_of(place, 1)
    shared = {"to": "int8", "inputs": truth["inputs"], "python": str(compat_python)}
    broken = policytool.check(truth["model"], **shared).to_dict()["check"]
    assert broken["candidate"]["policies"]["int8"] > len(truth["planted"])
    assert broken["runs"][0]["origin"]["path"] in truth["planted"]
    kept = dict.fromkeys(truth["planted"], "float32")
    repaired = policytool.check(truth["model"], set=kept, **shared).to_dict()["check"]
    assert repaired["runs"][0]["origin"] is None
