"""
Layers that keras.applications has for itself, converted by what they compute and held against what
they computed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import pytest

import policytool
from policytool.commands.migrate import Status
from tests.compat.asking import run_script

pytestmark = pytest.mark.compat

SCRIPT: Final = Path(__file__).with_name("unexported.py")


@pytest.mark.parametrize(
    ("library", "suffix", "other"),
    [
        ("keras", ".keras", "tf_keras"),
        ("tf_keras", ".keras", "keras"),
        ("tf_keras", ".h5", "keras"),
    ],
)
def test_unexported_classes_compute_the_same_in_the_other_library(
    compat_python: Path, tmp_path: Path, library: str, suffix: str, other: str
) -> None:
    """The test covers each container whose file shows that the classes belong to Keras."""

    def asked(*arguments: str) -> None:
        run_script(compat_python, SCRIPT, *arguments)

    asked("make", library, str(tmp_path))
    result = tmp_path / f"result{'.keras' if other == 'keras' else '.h5'}"
    done = policytool.migrate(
        tmp_path / f"model{suffix}", target={"keras": "keras3"}.get(other, other), output=result
    )
    assert done.status is Status.WRITTEN, done.plan.refusals
    asked("run", other, str(result), str(tmp_path))
    before, after = np.load(tmp_path / "expected.npy"), np.load(tmp_path / "found.npy")
    assert np.max(np.abs(before - after)) <= 4 * np.spacing(np.max(np.abs(before)))
