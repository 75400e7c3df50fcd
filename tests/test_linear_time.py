"""
Processor time grows about in proportion to a file: four times as many parts take less than eight
times as long.

Both sizes are measured in this process, one after the other; less than a tenth of a second counts
as a tenth.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final

import h5py
import numpy as np
import pytest

from policytool.cli.exit_codes import Exit
from tests.conftest import MIXED_H5, run
from tests.helpers.marks import ALONE, SLOW, THOROUGH

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_FLOOR: Final = 0.1
_MOST: Final = 8
_ATTEMPTS: Final = 2
"""Other processes can disturb one measurement."""

MIGRATE: Final = (
    *("migrate", "--to", "float16", "--include", "outputs"),
    *("--existing=replace", "-o", "out.h5"),
)
"""Casts, so that a new file is made of the objects of the old one and compared with it."""


def _dataset(file: h5py.File) -> h5py.Dataset:
    return file["model_weights/dense_a/dense_a/kernel:0"]


def _attributes(
    place: Callable[[h5py.File], Any], libver: str | None
) -> Callable[[Path, int], None]:
    """
    Return what adds attributes to an object; in the newest formats they are stored by a hash of
    their names.
    """

    def fill(path: Path, count: int) -> None:
        with h5py.File(path, "a", libver=libver) as file:
            attributes = place(file).attrs
            for number in range(count):
                attributes[f"a{number}"] = number

    return fill


def _links(path: Path, count: int) -> None:
    with h5py.File(path, "a") as file:
        for number in range(count):
            file[f"model_weights/s{number}"] = h5py.SoftLink("/nowhere")
            file[f"model_weights/h{number}"] = _dataset(file)


def _datasets(path: Path, count: int) -> None:
    with h5py.File(path, "a") as file:
        for number in range(count):
            file[f"model_weights/dense_a/x{number}"] = np.zeros(2, "float32")


def _names(path: Path, count: int) -> None:
    with h5py.File(path, "a") as file:
        attributes = file["model_weights"].attrs
        names = list(attributes["layer_names"])
        attributes["layer_names"] = np.array([*names, *names[-1:] * count])


CASES: Final[dict[str, tuple[Callable[[Path, int], None], int]]] = {
    "attributes of a group": (
        _attributes(lambda file: file.create_group("model_weights/more"), None),
        500,
    ),
    "attributes of a group, hashed": (
        _attributes(lambda file: file.create_group("model_weights/more"), "latest"),
        500,
    ),
    "attributes of the root": (_attributes(lambda file: file, None), 500),
    "attributes of a dataset that is cast": (_attributes(_dataset, None), 500),
    "links of a group": (_links, 500),
    "datasets of a group": (_datasets, 200),
    "names of layers": (_names, 1000),
}


def _seconds(path: Path, command: tuple[str, ...]) -> float:
    start = time.process_time()
    assert run(*command, path).code in {Exit.CLEAN, Exit.FINDINGS}
    return time.process_time() - start


@ALONE
@SLOW
@pytest.mark.parametrize(
    "command", [("inspect",), ("audit", "--weights"), MIGRATE], ids=["inspect", "audit", "migrate"]
)
@pytest.mark.parametrize("name", CASES)
def test_time_grows_with_the_parts_of_an_hdf5_file(
    name: str, command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Listing attributes by their index took 26 times as long for four times as many."""
    monkeypatch.chdir(tmp_path)
    fill, count = CASES[name]
    files = tmp_path / "small.h5", tmp_path / "large.h5"
    for path, factor in zip(files, (1, 4), strict=True):
        path.write_bytes(MIXED_H5.read_bytes())
        fill(path, factor * count)
    _seconds(files[0], command)  # imports
    measured: list[tuple[float, float]] = []
    while len(measured) < _ATTEMPTS:
        small, large = (_seconds(path, command) for path in files)
        if large < _MOST * max(small, _FLOOR):
            return
        measured.append((small, large))
    pytest.fail(f"seconds of the small and the large file: {measured}")


def test_attributes_above_the_limit_are_not_copied_one_by_one(tmp_path: Path) -> None:
    """For each opened attribute, HDF5 searches all attributes in the object header."""
    path, out = tmp_path / "model.h5", tmp_path / "out.h5"
    path.write_bytes(MIXED_H5.read_bytes())
    _attributes(_dataset, None)(path, 50)
    ended = run("migrate", "--to", "float16", "-o", out, "--limit", "h5-attributes=20", path)
    assert (ended.code, out.exists()) == (Exit.FAILURE, False)
    assert (
        "has 50 attributes, above the h5-attributes limit of 20. Raise the limit with "
        "--limit h5-attributes=50" in ended.err
    )
    assert (
        run("migrate", "--to", "float16", "-o", out, "--limit", "h5-attributes=50", path).code
        == Exit.CLEAN
    )


def test_texts_in_more_parts_than_the_limit_are_not_read(tmp_path: Path) -> None:
    """Keras splits names beyond 64 kB into numbered attributes."""
    path = tmp_path / "a.weights.h5"
    with h5py.File(path, "w") as file:
        group = file.create_group("d0")
        for name in ("kernel", "bias"):
            group[f"d0/{name}:0"] = np.zeros(2, "float32")
        file.attrs["layer_names"] = [b"d0"]
        for number in range(5):
            group.attrs[f"weight_names{number}"] = [b"d0/kernel:0"]
    ended = run("inspect", "--limit", "h5-attributes=4", path)
    assert ended.code == Exit.FAILURE
    assert (
        "has an attribute weight_names that is split into at least 5 attributes, above the "
        "h5-attributes limit of 4"
    ) in ended.err
    assert run("inspect", "--limit", "h5-attributes=5", path).code == Exit.CLEAN


def _one_long_name(count: int) -> dict[str, Any]:
    return _dense([*(f"dense_{number}" for number in range(30)), "1" * 100 * count])


def _long_names(count: int) -> dict[str, Any]:
    return _dense([f"{number}x" + "n" * 100 * count for number in range(30)])


def _dtypes(count: int) -> dict[str, Any]:
    return _dense([f"d{number}" for number in range(count)], "float{}")


def _dense(names: list[str], dtype: str = "float32") -> dict[str, Any]:
    """Return the config of a model of dense layers, each with a dtype."""
    layers = [
        {"class_name": "Dense", "config": {"name": name, "dtype": dtype.format(name), "units": 2}}
        for name in names
    ]
    return {"class_name": "Sequential", "config": {"name": "net", "layers": layers}}


@THOROUGH
@pytest.mark.parametrize("make", [_one_long_name, _long_names, _dtypes])
@ALONE
def test_time_grows_with_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[int], dict[str, Any]]
) -> None:
    """
    The time is linear in the names of layers, among which blocks are searched, and of dtypes that
    do not exist.
    """
    monkeypatch.chdir(tmp_path)
    for number in (1, 4):
        text = json.dumps(make(300 * number))
        (tmp_path / f"{number}.json").write_text(text, encoding="utf-8")
    for _ in range(_ATTEMPTS):
        one, four = (_seconds(tmp_path / f"{number}.json", ("inspect",)) for number in (1, 4))
        if four < _MOST * max(one, _FLOOR):
            return
    pytest.fail(f"{four:.2f} s instead of {one:.2f} s")
