"""
Compare the claims of reports with what the newest libraries do: a fixed sample of the random models
of ``fixtures/verdict_models.py``, and quantized attention layers after ``migrate``.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Final

import pytest

import policytool
from tests.compat.asking import ENVIRONMENT, Job, ask
from tests.compat.cases import LIBRARIES
from tests.helpers.scripts import fixture_script

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.compat

script: Final = fixture_script("verdict_models")
SEED: Final = 1189424
"""With it, each library writes all kinds of models that it has."""

MODELS: Final = 8
"""Models of each library, beside their damaged copies."""


@pytest.fixture(scope="module")
def folder(compat_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files of both libraries, loaded in both."""
    files = tmp_path_factory.mktemp("verdicts")
    releases = script.releases(LIBRARIES)
    for release in releases:
        script.write(files, release, compat_python, SEED, MODELS)
    for release in releases:
        script.load(files, release, compat_python)
    return files


def test_claims_agree_with_the_libraries(folder: Path) -> None:
    """No claim contradicts a library, and few are left open."""
    results = list(script.comparisons(folder))
    counts = script.record(results)
    assert not counts["contradictions"], "\n".join(counts["contradictions"])
    assert counts["files"] > MODELS
    assert sum(counts["unknown"].values()) <= 0.1 * len(results)


_QUANTIZE: Final = """
import sys
import keras
for mode in ("int8", "int4", "float8"):
    for bias in (True, False):
        x = keras.Input((5, 8), name="x")
        y = keras.layers.MultiHeadAttention(2, 4, use_bias=bias, name="mha")(x, x)
        y = keras.layers.GroupQueryAttention(4, 2, 2, use_bias=bias, name="gqa")(y, y)
        model = keras.Model(x, y)
        model.quantize(mode)
        model.save(f"{sys.argv[1]}/{mode}-{bias}.keras")
"""
"""Writes models with quantized attention layers, whose projections lose their policies."""


def test_quantized_attention_loads_after_migrate(compat_python: Path, tmp_path: Path) -> None:
    """The policies that Keras does not write follow from the stored variables."""
    environment = {**os.environ, **ENVIRONMENT}
    subprocess.run([compat_python, "-c", _QUANTIZE, tmp_path], env=environment, check=True)
    files = sorted(tmp_path.glob("*.keras"))
    fixed = [tmp_path / f"fixed-{file.name}" for file in files]
    for file, output in zip(files, fixed, strict=True):
        assert not policytool.migrate(file, output=output).plan.refusals
    jobs = [Job(format="keras", path=str(path)) for path in (*files, *fixed)]
    loaded = ask(compat_python, "keras3.15", jobs).loaded
    errors = [loaded[job].error for job in jobs]
    assert [error is None for error in errors] == [False] * 6 + [True] * 6, errors
