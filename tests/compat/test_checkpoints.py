"""
Checkpoints hold for policytool what they hold for TensorFlow, and a SavedModel's variables have the
tensors that its loader gives them.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final

import pytest

from policytool.formats.checkpoint.bundle import Bundle, open_bundle
from tests.compat.asking import run_script
from tests.formats.checkpoint.bundle.test_reading import RECORDED, SAVED_MODELS, WRITTEN, summary
from tests.helpers import bundles

pytestmark = pytest.mark.compat

READER: Final = Path(__file__).with_name("checkpoints.py")
Answer = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def answers(compat_python: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answer]:
    """Return what TensorFlow made of every checkpoint and SavedModel of the fixtures."""
    scratch = tmp_path_factory.mktemp("checkpoints")
    paths, results = scratch / "paths.json", scratch / "results.json"
    paths.write_text(
        json.dumps([*(str(WRITTEN / name) for name in RECORDED), *map(str, SAVED_MODELS)]),
        encoding="utf-8",
    )
    run_script(compat_python, READER, paths, results)
    result: dict[str, Answer] = json.loads(results.read_text(encoding="utf-8"))
    return result


def test_tensors_equal_those_that_tensorflow_reads(answers: dict[str, Answer]) -> None:
    """Dtype, shape and values agree for every key of every checkpoint."""
    for path, answer in answers.items():
        assert summary(_bundle(Path(path))) == answer["tensors"], path


def test_variables_have_the_tensors_that_tensorflow_restores(answers: dict[str, Answer]) -> None:
    """The walk along both object graphs ends at the same tensors as in TensorFlow."""
    for path in SAVED_MODELS:
        bundle = _bundle(path)
        entries = {
            str(index): bundle.entries[key]
            for index, key in bundles.keys_of_objects(path, bundle)[1].items()
        }
        actual = {
            index: hashlib.sha256(b"".join(bundle.chunks(entry))).hexdigest()
            for index, entry in entries.items()
        }
        assert actual == answers[str(path)]["variables"], path


def _bundle(path: Path) -> Bundle:
    return open_bundle(path / "variables/variables" if path.is_dir() else path)
