"""
HDF5 files of any size, with groups, links and attributes of many shapes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import h5py
import numpy as np

from tests.growth.file_shapes import FileShape
from tests.helpers.small_models import dense, h5_model, sequential

if TYPE_CHECKING:
    from pathlib import Path


def write_model(directory: Path, count: int = 1) -> Path:
    """Write a model of some layers without their weights."""
    config = sequential(*(dense(f"dense_{number}") for number in range(count)))
    return h5_model(directory / "model.h5", config, weights=False)


def _layers(directory: Path, count: int) -> Path:
    path = write_model(directory, count)
    with h5py.File(path, "a") as file:
        for number in range(count):
            file[f"model_weights/dense_{number}/dense_{number}/kernel:0"] = np.zeros(2, "float32")
    return path


def _weight_names(directory: Path, count: int) -> Path:
    """Write a layer with many weights, whose order is stored."""
    path = write_model(directory)
    with h5py.File(path, "a") as file:
        group = file.create_group("model_weights/dense_0")
        for number in range(count):
            group[f"dense_0/w{number}:0"] = np.zeros(2, "float32")
        group.attrs["weight_names"] = [b"dense_0/w%d:0" % number for number in range(count)]
    return path


def _attributes(directory: Path, count: int) -> Path:
    path = write_model(directory)
    with h5py.File(path, "a", libver="latest") as file:
        group = file.create_group("model_weights/dense_0")
        for number in range(count):
            group.attrs[f"a{number}"] = number
    return path


def _nested_groups(directory: Path, count: int) -> Path:
    path = write_model(directory)
    with h5py.File(path, "a") as file:
        file["model_weights/" + "/".join("g" * 10 for _ in range(count)) + "/w:0"] = np.zeros(2)
    return path


def _long_names(directory: Path, count: int) -> Path:
    path = write_model(directory)
    with h5py.File(path, "a", libver="latest") as file:
        for number in range(20):
            file[f"model_weights/{number}{'n' * 50 * count}/kernel:0"] = np.zeros(2, "float32")
    return path


def _soft_links(directory: Path, count: int) -> Path:
    path = write_model(directory)
    with h5py.File(path, "a") as file:
        for number in range(count):
            file[f"model_weights/s{number}"] = h5py.SoftLink("/model_weights")
    return path


def _linked_dataset(directory: Path, count: int) -> Path:
    """Write layers that all have one dataset."""
    path = write_model(directory, count)
    with h5py.File(path, "a") as file:
        file["shared"] = np.zeros(2, "float32")
        for number in range(count):
            file[f"model_weights/dense_{number}/dense_{number}/kernel:0"] = file["shared"]
    return path


def _linked_groups(directory: Path, count: int) -> Path:
    """Write layers that all have one group, with as many datasets."""
    path = write_model(directory)
    with h5py.File(path, "a") as file:
        shared = file.create_group("shared")
        shared.attrs["weight_names"] = [b"w%d:0" % number for number in range(count)]
        for number in range(count):
            shared[f"w{number}:0"] = np.zeros(2, "float32")
            file[f"model_weights/dense_{number}"] = shared
    return path


def diamonds(path: Path, levels: int, width: int) -> Path:
    """Add groups each of which has so many hard links to the next one, to a model."""
    with h5py.File(path, "a", libver="latest") as file:
        group = file["model_weights"]
        for level in range(levels):
            below = file.create_group(f"level_{level}")
            for number in range(width):
                group[f"n{number}"] = below
            group = below
        group["w:0"] = np.zeros(2, "float32")
    return path


def _diamonds(directory: Path, count: int) -> Path:
    return diamonds(write_model(directory), count, 3)


def _cycles(directory: Path, count: int) -> Path:
    """Write a group with many hard links to itself and to the root."""
    path = write_model(directory)
    with h5py.File(path, "a", libver="latest") as file:
        group = file["model_weights"]
        for number in range(count):
            group[f"own{number}"] = group
            group[f"root{number}"] = file["/"]
    return path


_FEW: Final = ("h5-repeated-links=50",)

SHAPES: Final = {
    "layers": FileShape(_layers),
    "names of weights": FileShape(_weight_names),
    "attributes": FileShape(_attributes),
    "nested groups": FileShape(_nested_groups, 15),
    "long names": FileShape(_long_names),
    "soft links": FileShape(_soft_links),
    "a linked dataset": FileShape(_linked_dataset),
    "linked groups": FileShape(_linked_groups, limits=_FEW),
    "diamonds": FileShape(_diamonds, 14, limits=_FEW),
    "cycles": FileShape(_cycles, limits=_FEW),
}
