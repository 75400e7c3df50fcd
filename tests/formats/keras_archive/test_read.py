"""``.keras`` archives: reading in place, shards, and the window on a member."""

from __future__ import annotations

import os
import struct
import zipfile
from functools import partial
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

import policytool
from policytool.formats.keras_archive.read import Window
from tests.conftest import MIXED_KERAS
from tests.contracts.format_contract import FormatContract
from tests.helpers.paths import FIXTURES
from tests.helpers.small_models import keras_members, keras_zip, weights_bytes

if TYPE_CHECKING:
    from pathlib import Path


class TestKerasZip(FormatContract):
    package = "keras_archive"
    document_format = ("keras",)
    samples = (
        MIXED_KERAS,
        FIXTURES / "tf2.12/default_float32.keras",
        FIXTURES / "keras3.0/default_float32.keras",
        FIXTURES / "tf2.15/nested_models.keras",
    )


def test_shards_are_one_model(tmp_path: Path) -> None:
    """Keras 3.10 and later split weights over several members."""
    members = keras_members()
    data = members.pop("model.weights.h5")
    path = keras_zip(
        tmp_path / "shards.keras",
        {**members, "model.weights.json": b"{}", "model_00000.weights.h5": data},
    )
    assert policytool.inspect(path).summary.parameters == 14


def test_weights_below_a_directory_are_no_weights_of_the_model(tmp_path: Path) -> None:
    """Weights in a subdirectory are not weights of the model, because assets can have any name."""
    path = keras_zip(
        tmp_path / "assets.keras", {**keras_members(), "assets/other.weights.h5": weights_bytes()}
    )
    assert policytool.inspect(path).summary.parameters == 14


def test_archive_without_weights_is_a_model_without_variables(tmp_path: Path) -> None:
    members = keras_members()
    del members["model.weights.h5"]
    model = policytool.inspect(keras_zip(tmp_path / "bare.keras", members))
    assert (model.summary.layers, model.summary.parameters) == (2, 0)


def test_member_with_extra_fields_is_found(tmp_path: Path) -> None:
    """
    The start of a member is read from its local header, whose extra field can differ from that in
    the directory.
    """
    path = tmp_path / "extra.keras"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in keras_members().items():
            info = zipfile.ZipInfo(name)
            info.extra = struct.pack("<HH", 0x9999, 60) + bytes(60)
            archive.writestr(info, data)
    assert policytool.inspect(path).summary.parameters == 14


@pytest.mark.parametrize("offset", [512, 1024, 2048])
def test_weights_where_an_hdf5_file_could_begin_make_no_hdf5_file(
    offset: int, tmp_path: Path
) -> None:
    """HDF5 could start after a user block there."""
    members = keras_members()
    missing = offset - keras_zip(tmp_path / "model.keras").read_bytes().index(b"\x89HDF")
    path = keras_zip(
        tmp_path / "model.keras",
        {**members, "config.json": members["config.json"] + b" " * missing},
    )
    assert path.read_bytes()[offset:].startswith(b"\x89HDF")
    assert policytool.inspect(path).summary.parameters == 14


def test_archive_behind_other_bytes_is_read(tmp_path: Path) -> None:
    path = keras_zip(tmp_path / "comment.keras")
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = b"made by hand" * 10
    assert policytool.inspect(path).summary.parameters == 14


@given(
    st.binary(min_size=1, max_size=9000),
    st.integers(0, 100),
    st.lists(st.tuples(st.integers(0, 9500), st.integers(0, 5000)), max_size=12),
)
def test_window_reads_only_the_bytes_of_the_member(
    data: bytes, before: int, reads: list[tuple[int, int]]
) -> None:
    if not hasattr(os, "memfd_create"):
        pytest.skip("needs a file without a name")
    descriptor = os.memfd_create("window")
    try:
        os.write(descriptor, b"<" * before + data + b">" * 5000)
        window = Window(partial(os.pread, descriptor), before, len(data))
        assert window.seek(0, os.SEEK_END) == len(data)
        for position, size in reads:
            window.seek(position)
            assert window.read(size) == data[position : position + size]
            assert window.tell() == position + len(data[position : position + size])
            assert window.pread(size, position) == data[position : position + size]
    finally:
        os.close(descriptor)
