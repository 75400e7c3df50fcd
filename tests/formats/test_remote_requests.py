"""Requests and bytes for remote models of gigabytes, in each layout of Keras."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import pytest

import policytool
from tests.conftest import run_process
from tests.helpers.large_models import (
    LargeModel,
    write_archive,
    write_fixed_names,
    write_keras2,
    write_keras3,
)
from tests.helpers.marks import SLOW, THOROUGH
from tests.helpers.range_server import range_server

if TYPE_CHECKING:
    from pathlib import Path

WRITERS: Final = (write_keras2, write_fixed_names, write_keras3, write_archive)
FEW_VECTORS: Final = LargeModel(layers=200, matrix=(4500, 974), vectors=1)
VECTORS: Final = LargeModel(layers=100, matrix=(9000, 974), vectors=4)
MATRICES: Final = LargeModel(layers=400, matrix=(2000, 974), vectors=0)
OPTIMIZER: Final = LargeModel(layers=20, matrix=(9000, 974), vectors=9, optimizer=True)
LARGEST: Final = (
    LargeModel(layers=150, matrix=(9000, 974), vectors=9),
    LargeModel(layers=300, matrix=(4500, 974), vectors=4),
)


@THOROUGH
@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize(
    ("model", "most_requests", "most_bytes"),
    [
        (VECTORS, 126, 2_370_000),
        (FEW_VECTORS, 235, 2_100_000),
        (MATRICES, 430, 1_960_000),
        (OPTIMIZER, 110, 2_650_000),
    ],
    ids=["vectors", "few-vectors", "matrices", "optimizer"],
)
def test_each_cluster_of_metadata_needs_about_one_request(
    tmp_path: Path, write: Any, model: LargeModel, most_requests: int, most_bytes: int
) -> None:
    """Clusters are between large arrays, and only parts of some are read."""
    write(tmp_path / "model", model)
    assert (tmp_path / "model").stat().st_size > 2_000_000_000
    with range_server(tmp_path) as server:
        result = policytool.inspect(f"{server.url}/model")
    assert sum(len(layer.variables) for layer in result.layers) == model.variables
    assert len(server.requests) < most_requests
    assert server.sent < most_bytes


@SLOW
@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("model", LARGEST, ids=["150-layers", "300-layers"])
def test_five_gigabytes_need_little(tmp_path: Path, write: Any, model: LargeModel) -> None:
    """Less than 8 MB and 400 requests over S3 for 1,500 datasets."""
    (tmp_path / "bucket").mkdir()
    path = tmp_path / "bucket/model"
    write(path, model)
    assert path.stat().st_size > 4.8 * 2**30
    with range_server(tmp_path) as server:
        environment = {
            **os.environ,
            "AWS_ENDPOINT_URL": server.url,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        ended = run_process("inspect", "s3://bucket/model", environment=environment)
    assert ended.code == 0
    assert len(server.requests) < 400
    assert server.sent < 8_000_000
