"""
The cost of commands grows with an HDF5 file at most as n·log n, whatever shape its groups, links
and attributes have.
"""

from __future__ import annotations

import csv
import time
from typing import TYPE_CHECKING, Final

import h5py
import numpy as np
import pytest

from policytool.cli.exit_codes import Exit
from tests.conftest import run
from tests.helpers import growth
from tests.helpers.marks import ALONE, SLOW, THOROUGH
from tests.helpers.small_models import dense, h5_model, sequential

if TYPE_CHECKING:
    from pathlib import Path

_SECONDS: Final = 3
"""Of processor time for a file that a limit ends, with room for a loaded machine."""


def _write(directory: Path, count: int = 1) -> Path:
    """Write a model of some layers without their weights."""
    config = sequential(*(dense(f"dense_{number}") for number in range(count)))
    return h5_model(directory / "model.h5", config, weights=False)


def _layers(directory: Path, count: int) -> Path:
    path = _write(directory, count)
    with h5py.File(path, "a") as file:
        for number in range(count):
            file[f"model_weights/dense_{number}/dense_{number}/kernel:0"] = np.zeros(2, "float32")
    return path


def _weight_names(directory: Path, count: int) -> Path:
    """Write a layer with many weights, whose order is stored."""
    path = _write(directory)
    with h5py.File(path, "a") as file:
        group = file.create_group("model_weights/dense_0")
        for number in range(count):
            group[f"dense_0/w{number}:0"] = np.zeros(2, "float32")
        group.attrs["weight_names"] = [b"dense_0/w%d:0" % number for number in range(count)]
    return path


def _attributes(directory: Path, count: int) -> Path:
    path = _write(directory)
    with h5py.File(path, "a", libver="latest") as file:
        group = file.create_group("model_weights/dense_0")
        for number in range(count):
            group.attrs[f"a{number}"] = number
    return path


def _nested_groups(directory: Path, count: int) -> Path:
    path = _write(directory)
    with h5py.File(path, "a") as file:
        file["model_weights/" + "/".join("g" * 10 for _ in range(count)) + "/w:0"] = np.zeros(2)
    return path


def _long_names(directory: Path, count: int) -> Path:
    path = _write(directory)
    with h5py.File(path, "a", libver="latest") as file:
        for number in range(20):
            file[f"model_weights/{number}{'n' * 50 * count}/kernel:0"] = np.zeros(2, "float32")
    return path


def _soft_links(directory: Path, count: int) -> Path:
    path = _write(directory)
    with h5py.File(path, "a") as file:
        for number in range(count):
            file[f"model_weights/s{number}"] = h5py.SoftLink("/model_weights")
    return path


def _linked_dataset(directory: Path, count: int) -> Path:
    """Write layers that all have one dataset."""
    path = _write(directory, count)
    with h5py.File(path, "a") as file:
        file["shared"] = np.zeros(2, "float32")
        for number in range(count):
            file[f"model_weights/dense_{number}/dense_{number}/kernel:0"] = file["shared"]
    return path


def _linked_groups(directory: Path, count: int) -> Path:
    """Write layers that all have one group, with as many datasets."""
    path = _write(directory)
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
    return diamonds(_write(directory), count, 3)


def _cycles(directory: Path, count: int) -> Path:
    """Write a group with many hard links to itself and to the root."""
    path = _write(directory)
    with h5py.File(path, "a", libver="latest") as file:
        group = file["model_weights"]
        for number in range(count):
            group[f"own{number}"] = group
            group[f"root{number}"] = file["/"]
    return path


_FEW: Final = ("h5-repeated-links=50",)

SHAPES: Final = {
    "layers": growth.Shape(_layers),
    "names of weights": growth.Shape(_weight_names),
    "attributes": growth.Shape(_attributes),
    "nested groups": growth.Shape(_nested_groups, 15),
    "long names": growth.Shape(_long_names),
    "soft links": growth.Shape(_soft_links),
    "a linked dataset": growth.Shape(_linked_dataset),
    "linked groups": growth.Shape(_linked_groups, limits=_FEW),
    "diamonds": growth.Shape(_diamonds, 14, limits=_FEW),
    "cycles": growth.Shape(_cycles, limits=_FEW),
}


@THOROUGH
@pytest.mark.parametrize("name", SHAPES)
def test_audit_grows_with_the_file(name: str, tmp_path: Path) -> None:
    """No walk visits a part of the file again for each other part."""
    costs = growth.costs(SHAPES[name], "audit", tmp_path)
    assert not growth.excess(costs), costs


@SLOW
@pytest.mark.parametrize("command", sorted(growth.COMMANDS.keys() - {"audit"}))
@pytest.mark.parametrize("name", SHAPES)
def test_every_command_grows_with_the_file(name: str, command: str, tmp_path: Path) -> None:
    """Each command has walks of its own."""
    costs = growth.costs(SHAPES[name], command, tmp_path)
    assert not growth.excess(costs), costs


@ALONE
@THOROUGH
@pytest.mark.parametrize(("levels", "width"), [(2, 300), (3, 90), (30, 2)])
def test_hard_links_with_many_paths_end_at_a_limit(levels: int, width: int, tmp_path: Path) -> None:
    """Each of a million paths was opened, which took 72 seconds of processor time."""
    path = diamonds(_write(tmp_path), levels, width)
    start = time.process_time()
    ended = run("inspect", path)
    assert time.process_time() - start < _SECONDS
    assert ended.code == Exit.FAILURE
    assert "reaches groups again through hard links, with at least 1" in ended.err
    assert "above the h5-repeated-links limit of 10000" in ended.err


def test_a_group_with_two_paths_is_read_at_both(tmp_path: Path) -> None:
    """Keras finds weights by their paths."""
    path = _write(tmp_path, 2)
    with h5py.File(path, "a") as file:
        file["model_weights/dense_0/dense_0/kernel:0"] = np.zeros((6, 2), "float32")
        file["model_weights/dense_1/dense_1"] = file["model_weights/dense_0/dense_0"]
    ended = run("inspect", "--format", "csv", path)
    assert ended.code == Exit.CLEAN
    parameters = [row["parameters"] for row in csv.DictReader(ended.out.splitlines())]
    assert parameters == ["0", "12", "12"]
