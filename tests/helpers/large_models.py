"""
Models of any size that need little space: sparse files in the layouts of Keras, written with h5py
in the order in which Keras writes them.
"""

from __future__ import annotations

import json
import os
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import h5py
import numpy as np

from tests.helpers.small_models import dense, sequential

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_NAMES: Final = (
    "kernel",
    "bias",
    "gamma",
    "beta",
    "moving_mean",
    "moving_variance",
    "a",
    "b",
    "c",
    "d",
)
_SLOTS: Final = ("m", "v")
_MOST_NAMES: Final = 64_000
"""Bytes of an attribute, beyond which Keras splits it."""

_BLOCK: Final = 2**20

Shape = tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class LargeModel:
    """Layers, each with one matrix and several vectors."""

    layers: int
    matrix: tuple[int, int]
    vectors: int
    optimizer: bool = False
    """Whether there are two more arrays for each variable."""

    @property
    def names(self) -> list[str]:
        """The names of the layers, in the model's order."""
        return ["dense", *(f"dense_{number}" for number in range(1, self.layers))]

    @property
    def shapes(self) -> dict[str, Shape]:
        """The variables of each layer."""
        vectors = ((name, self.matrix[1:]) for name in _NAMES[1 : self.vectors + 1])
        return {_NAMES[0]: self.matrix, **dict(vectors)}

    @property
    def config(self) -> dict[str, Any]:
        """The model's config."""
        return sequential(*(dense(name) for name in self.names))

    @property
    def variables(self) -> int:
        """How many variables its layers have."""
        return self.layers * (1 + self.vectors)


def write_keras2(path: Path, model: LargeModel) -> None:
    """Write HDF5 as TF 2.15 does, with names of any length."""
    _write_h5(path, model, "{layer}/{name}:0", version="2.15.0")


def write_fixed_names(path: Path, model: LargeModel) -> None:
    """Write HDF5 as Keras 2.3 does, with names of fixed length."""
    _write_h5(path, model, "{layer}/{name}:0", version="2.3.1", fixed=True)


def write_keras3(path: Path, model: LargeModel) -> None:
    """Write HDF5 as Keras 3 does."""
    _write_h5(path, model, "mlp/{layer}/{name}", version="3.6.0")


def write_archive(path: Path, model: LargeModel) -> None:
    """Write a ``.keras`` archive as Keras 3 does."""
    weights = path.with_name(f"{path.name}.weights.h5")
    with h5py.File(weights, "w") as file:
        for layer in model.names:
            group = file.create_group(f"layers/{layer}").create_group("vars")
            group.attrs["name"] = layer
            for index, shape in enumerate(model.shapes.values()):
                allocate(group, str(index), shape)
        file.create_group("vars")
        if model.optimizer:
            group = file.create_group("optimizer").create_group("vars")
            for index, (_, shape) in enumerate(_slots(model)):
                allocate(group, str(index), shape)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", json.dumps({"keras_version": "3.6.0"}))
        archive.writestr("config.json", json.dumps(model.config))
        _add_sparse(archive, weights, "model.weights.h5")
    weights.unlink()


def _write_h5(
    path: Path, model: LargeModel, pattern: str, *, version: str, fixed: bool = False
) -> None:
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = json.dumps(model.config)
        file.attrs["keras_version"] = version
        file.attrs["backend"] = "tensorflow"
        weights = file.create_group("model_weights")
        _write_names(weights, "layer_names", model.names, fixed=fixed)
        for layer in sorted(model.names):
            group = weights.create_group(layer)
            names = [pattern.format(layer=layer, name=name) for name in model.shapes]
            _write_names(group, "weight_names", names, fixed=fixed)
            for name, shape in zip(names, model.shapes.values(), strict=True):
                allocate(group, name, shape)
        if model.optimizer:
            group = file.create_group("optimizer_weights")
            slots = dict(_slots(model))
            _write_names(group, "weight_names", list(slots), fixed=fixed)
            for name, shape in slots.items():
                allocate(group, name, shape)


def _slots(model: LargeModel) -> Iterator[tuple[str, Shape]]:
    yield "Adam/iter:0", ()
    for layer in model.names:
        for name, shape in model.shapes.items():
            for slot in _SLOTS:
                yield f"Adam/{slot}/{layer}_{name}:0", shape


def _write_names(group: h5py.Group, attribute: str, names: list[str], *, fixed: bool) -> None:
    values = [name.encode() for name in names]
    pieces = np.array_split(np.array(values), -(-np.array(values).nbytes // _MOST_NAMES))
    for number, piece in enumerate(pieces):
        key = attribute if len(pieces) == 1 else f"{attribute}{number}"
        group.attrs[key] = piece if fixed or len(pieces) > 1 else values


def allocate(group: h5py.Group, name: str, shape: Shape, dtype: str = "float32") -> None:
    """Make a dataset of which one value is written: HDF5 makes room for all, and fills none."""
    group.create_dataset(name, shape, dtype)[(0,) * len(shape)] = np.zeros((), dtype)


def _add_sparse(archive: zipfile.ZipFile, path: Path, name: str) -> None:
    """Add a file to an archive without its holes; the checksum is not that of the content."""
    info = zipfile.ZipInfo(name)
    info.file_size = info.compress_size = path.stat().st_size
    info.header_offset = archive.start_dir
    info.CRC = 0
    target: Any = archive.fp
    target.seek(archive.start_dir)
    target.write(info.FileHeader(zip64=True))
    target.flush()
    start = target.tell()
    with path.open("rb") as source:
        for place, stop in _data(source.fileno(), info.file_size):
            for first in range(place, stop, _BLOCK):
                block = os.pread(source.fileno(), min(_BLOCK, stop - first), first)
                os.pwrite(target.fileno(), block, start + first)
    archive.start_dir = start + info.file_size
    archive.filelist.append(info)
    archive.NameToInfo[name] = info


def _data(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a file that are not holes."""
    place = 0
    while place < size:
        try:
            place = os.lseek(descriptor, place, os.SEEK_DATA)
        except OSError:  # nothing but a hole follows
            return
        stop = os.lseek(descriptor, place, os.SEEK_HOLE)
        yield place, stop
        place = stop
