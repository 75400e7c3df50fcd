"""Models with LoRA weights predict the same in tf_keras, which does not have LoRA."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

import policytool
from policytool.commands.migrate import Status
from tests.compat.asking import run_module
from tests.compat.lora_models import SHAPES

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.compat

NEAR: Final = 1e-6
"""Of the largest value; the merged kernel is rounded once."""


def test_merged_weights_predict_the_same(compat_python: Path, tmp_path: Path) -> None:
    """For each class, from an archive with the merged kernel and from HDF5 with its parts."""
    run_module(compat_python, "lora_models", tmp_path)
    for name in SHAPES:
        for kind in ("keras", "h5"):
            done = policytool.migrate(
                tmp_path / f"{name}.{kind}",
                target="tf_keras",
                output=tmp_path / f"{name}.{kind}.converted.h5",
                allow=["weight-rewrite"],
                verify=False,
            )
            assert done.status is Status.WRITTEN, done.plan.refusals
    run_module(compat_python, "lora_models", tmp_path, "predict")
    for file in sorted(tmp_path.glob("*.npy")):
        expected = np.load(tmp_path / f"{file.name.split('.')[0]}.npz")["arr_1"]
        difference = np.max(np.abs(np.load(file) - expected))
        assert difference <= NEAR * max(1.0, float(np.max(np.abs(expected)))), file.name
    assert len(list(tmp_path.glob("*.npy"))) == 2 * len(SHAPES)
