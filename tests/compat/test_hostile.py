"""
Models that the guard lets through touch nothing outside when the real libraries load them; with the
guard off, they do.
"""

from __future__ import annotations

import os
import shutil
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.fuzz import (
    graph_bytes,
    hostile,
    hostile_configs,
    hostile_graphs,
    loading,
    sound_configs,
    volume,
)
from tests.fuzz.hostile_names import MARKER, Paths

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.compat,
    pytest.mark.skipif(shutil.which("strace") is None, reason="there is no strace here"),
]

_MODELS = 150
_SEED = int(os.environ.get("POLICYTOOL_HOSTILE_SEED", "18"))


def test_models_that_the_guard_accepts_touch_no_other_files(
    compat_python: Path, tmp_path: Path
) -> None:
    """The models are hostile or odd, and a part of them loads."""
    tally = volume.Tally()
    result = loading.batch(Random(_SEED), str(compat_python), tmp_path, tally, _MODELS)  # noqa: S311  # no secret
    assert result.touched == {}
    assert tally.executions == _MODELS
    assert all(
        tally.outcomes[f"{library} loaded"] >= _MODELS // 50
        for library in ("tensorflow", "tf_keras", "keras")
    ), tally.outcomes


def test_hostile_models_touch_files_without_the_guard(compat_python: Path, tmp_path: Path) -> None:
    """The oracle detects a file written by a graph, and a file read by a lookup."""
    paths, rng = Paths(folder=tmp_path), Random(1)  # noqa: S311  # no secret
    body = hostile_graphs.Body(rng, paths)
    body.use(body.text(paths.marker), "WriteFile")
    writes = hostile_graphs.saved(
        tmp_path / "models" / "0", [graph_bytes.graph(body.nodes)], body.runs
    )
    lookup = sound_configs.entry(rng, 2, "StringLookup", {"vocabulary": paths.canary})
    config = {"class_name": "Sequential", "config": {"name": "m", "layers": [lookup]}}
    (tmp_path / "models" / "1").mkdir()
    reads = hostile.write(
        hostile_configs.Drawn(generation=2, config=config, hostile="vocabulary"),
        rng,
        tmp_path / "models" / "1",
    )
    assert hostile.refusal(writes)
    assert hostile.refusal(reads)
    result = loading.load(str(compat_python), [writes, reads], tmp_path)
    assert set(result.touched) == {-1, 0, 1}
    assert any(MARKER in line for line in result.touched[0])
