"""
Fixtures that ``migrate --target`` converts from one of the newest libraries to the other: they load, keep their policies, and predict what they did.

``fixtures/conversions.py`` converts, asks and judges; here it is given a spread of the fixtures, in which each case, format and release occurs, and with
``POLICYTOOL_COMPAT_TARGETS=all`` every fixture for both libraries. The table at the end of the run says what came of them.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import policytool
from policytool.operations.migration import Status
from tests.compat.asking import ENVIRONMENT, SECONDS
from tests.compat.cases import LIBRARIES, RELEASES
from tests.conftest import FIXTURES

if TYPE_CHECKING:
    from tests.compat.converting import Converted

pytestmark = pytest.mark.compat

CONFIGS: Final = Path(__file__).with_name("configs.py")
THERE_AND_BACK: Final = {
    "keras": tuple(f"keras3.15/{case}.keras" for case in ("global_mixed_float16", "wrappers", "rnn_mixed", "nested_models", "bidirectional_mixed")),
    "tf_keras": tuple(
        f"tf_keras2.21/{file}" for file in ("global_mixed_float16.h5", "wrappers.h5", "nested_models.h5", "default_float32.keras", "mha_mixed.h5")
    ),
}
"""A library to files of it, which go to the other library and back."""

OTHER: Final = {"keras": "tf_keras", "tf_keras": "keras3"}
OWN: Final = {"keras": "keras3", "tf_keras": "tf_keras"}


@pytest.mark.parametrize("release", RELEASES)
def test_converted_models_load_and_predict_the_same(conversions: tuple[Converted, ...], release: str) -> None:
    """Or are refused with a code and a reason; none fails."""
    found = [one for one in conversions if one.release == release]
    assert found
    assert not [f"{one.name} for {one.target}: {one.outcome}" for one in found if one.word == "failed"]
    assert not [one.outcome for one in found if one.word == "refused" and len(one.outcome.split()) < 6]


@pytest.mark.parametrize("library", LIBRARIES)
def test_most_are_converted(conversions: tuple[Converted, ...], library: str) -> None:
    """Although a spread has each of the odd ones that cannot be, and of the plain ones few."""
    words = [one.word for one in conversions if one.target == library]
    assert sum(word in {"same", "near", "loads"} for word in words) > 0.6 * len(words)


@pytest.mark.parametrize("library", THERE_AND_BACK)
def test_there_and_back_is_an_equal_model(compat_python: Path, tmp_path: Path, library: str) -> None:
    """The source's library loads what came back to a config equal to the original's, with the same weights."""
    paths: list[str] = []
    for name in THERE_AND_BACK[library]:
        source = FIXTURES / name
        there = tmp_path / f"{source.stem}.there{'.h5' if library == 'keras' else '.keras'}"
        back = tmp_path / f"{source.stem}.back{source.suffix}"
        for path, target, output in ((source, OTHER[library], there), (there, OWN[library], back)):
            done = policytool.migrate(path, target=target, allow_weight_rewrite=True, output=output)
            assert done.status is Status.WRITTEN, (name, target, done.plan.refusals)
        paths += [str(source), str(back)]
    found = _loaded(compat_python, library, paths, tmp_path)
    for name, before, after in zip(THERE_AND_BACK[library], found[::2], found[1::2], strict=True):
        assert _said(after["config"]) == _said(before["config"]), name
        assert after["weights"] == before["weights"], name


def _said(config: Any) -> Any:  # JSON of any shape
    """
    Return a config without what says nothing of the model.

    Input shapes of layers within models, beside those of their input layers, which have ``sparse``; and that the second layer of a Bidirectional is called
    ``backward_lstm``, which Keras 3 takes as its config has it, and Keras 2 always puts before the name.
    """
    if isinstance(config, list):
        return [_said(item) for item in config]
    if isinstance(config, str):
        return config.removeprefix("backward_")
    if not isinstance(config, dict):
        return config
    return {key: _said(item) for key, item in config.items() if key != "batch_input_shape" or "sparse" in config}


def _loaded(python: Path, library: str, paths: list[str], scratch: Path) -> list[dict[str, Any]]:
    """Return what a library says of the models in files."""
    listed, results = scratch / "paths.json", scratch / "results.json"
    listed.write_text(json.dumps(paths), encoding="utf-8")
    command = [str(python), str(CONFIGS), library, str(listed), str(results)]
    done = subprocess.run(command, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[dict[str, Any]] = json.loads(results.read_text(encoding="utf-8"))
    return found
