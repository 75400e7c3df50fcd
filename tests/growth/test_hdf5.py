"""Hard links of an HDF5 file: many paths to a group end at a limit, and few are all read."""

from __future__ import annotations

import csv
import time
from typing import TYPE_CHECKING, Final

import h5py
import numpy as np
import pytest

from policytool.cli.exit_codes import Exit
from tests.conftest import run
from tests.growth.hdf5_shapes import diamonds, write_model
from tests.helpers.marks import ALONE, THOROUGH

if TYPE_CHECKING:
    from pathlib import Path

_SECONDS: Final = 3
"""Of processor time for a file that a limit ends, with room for a loaded machine."""


@ALONE
@THOROUGH
@pytest.mark.parametrize(("levels", "width"), [(2, 300), (3, 90), (30, 2)])
def test_hard_links_with_many_paths_end_at_a_limit(levels: int, width: int, tmp_path: Path) -> None:
    """Each of a million paths was opened, which took 72 seconds of processor time."""
    path = diamonds(write_model(tmp_path), levels, width)
    start = time.process_time()
    ended = run("inspect", path)
    assert time.process_time() - start < _SECONDS
    assert ended.code == Exit.FAILURE
    assert "reaches groups again through hard links, with at least 1" in ended.err
    assert "above the h5-repeated-links limit of 10000" in ended.err


def test_a_group_with_two_paths_is_read_at_both(tmp_path: Path) -> None:
    """Keras finds weights by their paths."""
    path = write_model(tmp_path, 2)
    with h5py.File(path, "a") as file:
        file["model_weights/dense_0/dense_0/kernel:0"] = np.zeros((6, 2), "float32")
        file["model_weights/dense_1/dense_1"] = file["model_weights/dense_0/dense_0"]
    ended = run("inspect", "--format", "csv", path)
    assert ended.code == Exit.CLEAN
    parameters = [row["parameters"] for row in csv.DictReader(ended.out.splitlines())]
    assert parameters == ["0", "12", "12"]
