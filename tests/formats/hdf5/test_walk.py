"""The walk through the groups of an HDF5 file, local or remote."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest import mock

import fsspec
import h5py
import numpy as np
import pytest
from h5py import h5o

from policytool.formats import Probe
from policytool.formats.hdf5 import library
from policytool.support import limits
from policytool.support.errors import ModelFileError
from policytool.support.files import opening, remote_path
from tests.helpers.marks import THOROUGH

if TYPE_CHECKING:
    from pathlib import Path

    from policytool.formats.hdf5.library import Contents

GROUPS = 400
"""As many as need several batches, of growing sizes."""


def write_groups(path: Path, libver: str, *, track_order: bool = False) -> Path:
    """Write groups between datasets and links, in an order different from that of their names."""
    with h5py.File(path, "w", libver=libver, track_order=track_order) as file:
        for number in range(GROUPS):
            group = file.create_group(f"layer_{number}")
            group["vars/0"] = np.zeros(number % 3 + 1)
            group["vars"].attrs["name"] = f"name {number}"
            group["zero"] = h5py.SoftLink("/elsewhere")
            file[f"m{number}"] = np.zeros(1)
        file["a"] = h5py.SoftLink("/elsewhere")
    return path


def walk(path: Path | remote_path.RemotePath) -> Contents:
    """Return the items in a file."""
    probe = Probe(path, "a.h5")
    with library.open_checked(probe, path) as file:
        return library.walk(probe, file, attributes=True)


def remote(path: Path) -> remote_path.RemotePath:
    """Return the URL of a copy of a file."""
    fsspec.filesystem("memory").pipe("/walk/a.h5", path.read_bytes())
    opening.forget()
    return remote_path.parse("memory://walk/a.h5")


@THOROUGH
@pytest.mark.parametrize("track_order", [False, True])
@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_a_remote_file_has_the_contents_of_a_local_one(
    tmp_path: Path, libver: str, *, track_order: bool
) -> None:
    path = write_groups(tmp_path / "a.h5", libver, track_order=track_order)
    local = walk(path)
    assert walk(remote(path)) == local
    names = [tensor.path for tensor in local.tensors]
    assert len(names) == 2 * GROUPS
    assert names == [*sorted(names[:GROUPS]), *sorted(names[GROUPS:])]
    assert names[0] == ("m0",)
    assert len(local.names) == GROUPS
    assert [observation.where for observation in local.observations[:2]] == ["a", "layer_0/zero"]


@THOROUGH
@pytest.mark.parametrize("most", [10, 300, 1000])
def test_the_bound_on_objects_holds_in_batches(tmp_path: Path, most: int) -> None:
    path = write_groups(tmp_path / "a.h5", "earliest")
    for place in (path, remote(path)):
        with (
            limits.override({"h5-objects": most}),
            pytest.raises(ModelFileError, match="h5-objects"),
        ):
            walk(place)


@THOROUGH
def test_a_group_is_read_before_the_next_one_is_opened(tmp_path: Path) -> None:
    """One request reads their metadata in a remote file."""
    path = write_groups(tmp_path / "a.h5", "earliest")
    seen: list[str] = []
    opened = h5o.open

    def record(parent: h5py.h5g.GroupID, name: bytes) -> object:
        seen.append(name.decode())
        return opened(parent, name)

    with mock.patch(f"{library.__name__}.h5o", mock.Mock(wraps=h5o, open=record)):
        walk(path)
    assert seen[:6] == ["layer_0", "vars", "0", "layer_1", "vars", "0"]
