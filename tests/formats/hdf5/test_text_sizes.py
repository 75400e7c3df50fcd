"""The length of the texts in an attribute, read without the HDF5 library."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policytool.formats.hdf5 import library, text_sizes
from policytool.support import limits
from tests.helpers.marks import THOROUGH

if TYPE_CHECKING:
    from pathlib import Path

VERSIONS = (("earliest", "v108"), ("v108", "v108"), ("v110", "v110"), ("latest", "latest"))
NAMES = st.lists(st.text("abcé/_:0", max_size=40), min_size=1, max_size=40)


@THOROUGH
@pytest.mark.parametrize("libver", VERSIONS)
@pytest.mark.parametrize("user_block", [0, 512])
@settings(deadline=None, max_examples=30)
@given(names=NAMES, others=st.integers(0, 7))
def test_lengths_equal_those_that_the_library_reads(
    tmp_path_factory: pytest.TempPathFactory,
    libver: tuple[str, str],
    user_block: int,
    names: list[str],
    others: int,
) -> None:
    """For both header versions, split headers, and files with a user block."""
    path = tmp_path_factory.mktemp("texts") / "a.h5"
    with h5py.File(path, "w", libver=libver, userblock_size=user_block) as file:
        group = file.create_group("layer")
        for number in range(others):
            group.attrs[f"other{number}"] = np.zeros(30)
        group.attrs["weight_names"] = names
    with h5py.File(path, "r") as file:
        result = text_sizes.text_bytes(file["layer"].id, b"weight_names", len(names))
    assert result == sum(len(name.encode()) for name in names)


def test_attributes_outside_of_the_header_have_an_unknown_length(tmp_path: Path) -> None:
    """More than eight attributes in the newest format, which stores them in a separate heap."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="latest") as file:
        for number in range(20):
            file.attrs[f"names{number}"] = ["a", "b"]
    with h5py.File(path, "r") as file:
        assert text_sizes.text_bytes(file.id, b"names3", 2) is None


def test_a_file_in_memory_has_an_unknown_length() -> None:
    """The length is unknown for a file in memory, because it has no descriptor."""
    with h5py.File(io.BytesIO(), "w") as file:
        file.attrs["names"] = ["a", "b"]
        file.flush()
        assert text_sizes.text_bytes(file.id, b"names", 2) is None


def test_names_in_a_large_file_are_read(tmp_path: Path) -> None:
    """tf_keras 2.21 and Keras 3 write names of any length."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["kernel"] = np.zeros(50_000)
        file.attrs["weight_names"] = ["dense/kernel", "dense/bias"]
    with limits.override({"h5-text-bytes": 1000}), h5py.File(path, "r") as file:
        assert library.attribute_names(file.id, "weight_names") == ("dense/kernel", "dense/bias")


def test_text_with_many_references_is_rejected(tmp_path: Path) -> None:
    """Reading it would need gigabytes."""
    path, text = tmp_path / "a.h5", "x" * 900
    with h5py.File(path, "w") as file:
        file.attrs["weight_names"] = [text, *("y" for _ in range(99))]
    data = path.read_bytes()
    place = data.index(len(text).to_bytes(4, "little"), data.index(b"weight_names"))
    path.write_bytes(data[:place] + data[place : place + 16] * 100 + data[place + 1600 :])
    with h5py.File(path, "r") as file:
        assert text_sizes.text_bytes(file.id, b"weight_names", 100) == 90_000
        with (
            limits.override({"h5-text-bytes": 80_000}),
            pytest.raises(library.TextsError, match="weight_names"),
        ):
            library.attribute_names(file.id, "weight_names")
