"""
An HDF5 file below 1 MB needs at most 200 MiB and a few seconds, for any chunks and filters. Each
run is a process measured by the system.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Final

import h5py
import numpy as np
import pytest
from h5py import h5d, h5p, h5s, h5t

from tests.bench.hostile import measured
from tests.conftest import run
from tests.helpers.marks import ALONE, SLOW
from tests.helpers.small_models import dense, h5_model, sequential

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KERNEL: Final = "model_weights/dense_a/dense_a/kernel:0"
MOST_MIB: Final = 200
MOST_SECONDS: Final = 10
"""A loaded machine takes a multiple of an idle one, which needs less than two."""


def _zeros(size: int) -> bytes:
    packer = zlib.compressobj(9)
    return b"".join(packer.compress(bytes(2**24)) for _ in range(size // 2**24)) + packer.flush()


def _unfilled(
    file: h5py.File, shape: tuple[int, ...], chunk: tuple[int, ...], **more: Any
) -> None:  # h5py's own arguments
    file.create_dataset(KERNEL, shape, "float32", chunks=chunk, **more)


def _partly_filled(file: h5py.File) -> None:
    _unfilled(file, (1024, 1024), (1, 1))
    file[KERNEL][:40, :40] = 1


def _many(file: h5py.File) -> None:
    for number in range(1000):
        file.create_dataset(
            f"model_weights/dense_a/dense_a/k{number}", (128, 128), "float32", chunks=(1, 1)
        )


def _inflating(file: h5py.File, shape: tuple[int, ...]) -> None:
    """Write a chunk whose stream inflates to 900 MiB, regardless of its declared size."""
    _unfilled(file, shape, shape, compression="gzip")
    file[KERNEL].id.write_direct_chunk((0, 0), _zeros(900 * 2**20))


def _chunk_beyond_the_shape(file: h5py.File) -> None:
    _unfilled(file, (6, 2), (2**12, 2**12), maxshape=(None, None), compression="gzip", shuffle=True)
    file[KERNEL].id.write_direct_chunk((0, 0), _zeros(2**26))


def _lzf(file: h5py.File) -> None:
    _unfilled(file, (64, 64), (64, 64), compression="lzf")
    file[KERNEL].id.write_direct_chunk((0, 0), b"\0\0" + b"\xff\xff\x01" * 300_000)


def _unknown_filter(file: h5py.File) -> None:
    """Write a dataset with a filter plugin that does not exist."""
    properties = h5p.create(h5p.DATASET_CREATE)
    properties.set_chunk((6, 2))
    properties.set_filter(32_015, h5py.h5z.FLAG_OPTIONAL, (3,))
    group = file.create_group("model_weights/dense_a/dense_a")
    result = h5d.create(
        group.id, b"kernel:0", h5t.IEEE_F32LE, h5s.create_simple((6, 2)), properties
    )
    result.write_direct_chunk((0, 0), b"x" * 48)


def _references(file: h5py.File) -> None:
    file.create_dataset(KERNEL, (1000, 1000), h5py.ref_dtype, chunks=(1000, 1000))
    file.create_dataset(
        "model_weights/regions", (1000, 1000), h5py.regionref_dtype, chunks=(1000, 1000)
    )


CASES: Final[dict[str, Callable[[h5py.File], object]]] = {
    "20 dimensions": lambda file: _unfilled(file, (2,) * 20, (1,) * 20),
    "32 dimensions": lambda file: _unfilled(file, (2,) * 20 + (1,) * 12, (1,) * 32),
    "chunks of one value": lambda file: _unfilled(file, (1024, 1024), (1, 1)),
    "one row of chunks": lambda file: _unfilled(file, (1, 2**20), (1, 1)),
    "a column of chunks": lambda file: _unfilled(file, (2**20, 1), (1, 1)),
    "partly filled": _partly_filled,
    "many datasets": _many,
    "a fill value": lambda file: _unfilled(file, (1000, 1000), (1000, 1000), fillvalue=3),
    "a chunk beyond the shape": _chunk_beyond_the_shape,
    "an unfilled chunk beyond the shape": lambda file: _unfilled(
        file, (6, 2), (2**14, 2**14), maxshape=(None, None)
    ),
    "a stream that lies": lambda file: _inflating(file, (600, 200)),
    "a stream that lies in a small chunk": lambda file: _inflating(file, (6, 2)),
    "lzf": _lzf,
    "an unknown filter": _unknown_filter,
    "opaque values": lambda file: file.create_dataset(KERNEL, (2,), np.dtype("V100000000")),
    "arrays": lambda file: file.create_dataset(
        KERNEL, (1,), np.dtype(("f4", (2**14, 2**14))), chunks=(1,)
    ),
    "an enumeration": lambda file: file.create_dataset(
        KERNEL, (10,), h5py.enum_dtype({f"e{number}": number for number in range(3000)}, "i4")
    ),
    "long texts": lambda file: file.create_dataset(KERNEL, (1000,), "S1000000", chunks=(1,)),
    "values of any length": lambda file: file.create_dataset(
        KERNEL, (100_000,), h5py.vlen_dtype("f4"), chunks=(1000,)
    ),
    "references": _references,
}


def _model(path: Path, fill: Callable[[h5py.File], object]) -> Path:
    h5_model(path, sequential(dense(dtype="mixed_float16")), weights=False)
    with h5py.File(path, "a") as file:
        fill(file)
    assert path.stat().st_size < 10**6
    return path


@ALONE
@SLOW
@pytest.mark.parametrize("name", CASES)
def test_small_malicious_files_need_little_memory_and_time(name: str, tmp_path: Path) -> None:
    path = _model(tmp_path / "a.h5", CASES[name])
    out = str(tmp_path / "out.h5")
    for command in (
        ("audit", "--weights", "--fail-on", "never"),
        ("migrate", "--to", "float16", "--include", "outputs", "--existing=replace", "-o", out),
        ("migrate", "--target", "keras3", "--existing=replace", "-o", out),
        ("diff", str(path)),
    ):
        row = measured(command, path, tmp_path)
        assert row["code"] in {0, 1, 3}, row
        assert row["mib"] < MOST_MIB, row
        assert row["seconds"] < MOST_SECONDS, row


def test_chunks_that_are_not_stored_are_a_finding(tmp_path: Path) -> None:
    """A dataset whose chunks are not stored is a finding (PT610), like other missing values."""
    path = _model(tmp_path / "a.h5", CASES["20 dimensions"])
    ended = run("audit", "--format", "json", path)
    assert "PT610" in {
        finding["rule"] for model in ended.json["models"] for finding in model["findings"]
    }
    assert "its 1048576 chunks are more than 4 times the 0 stored chunks" in ended.out


def test_values_in_small_stored_chunks_are_read(tmp_path: Path) -> None:
    values = np.arange(40 * 50, dtype="float32").reshape(40, 50)
    files = [
        _model(
            tmp_path / name, lambda file: file.create_dataset(KERNEL, data=values, chunks=(1, 1))
        )
        for name in ("a.h5", "b.h5")
    ]
    with h5py.File(files[1], "a") as file:
        file[KERNEL][3, 4] += 1
    ended = run("diff", *files)
    assert "1/2,000 differ" in " ".join(ended.out.split())
