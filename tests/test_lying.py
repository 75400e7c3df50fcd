"""
Files that say another thing of themselves than they hold: what they say is never what is allocated,
and what they hold is bounded all the same.
"""

from __future__ import annotations

import struct
import time
import tracemalloc
import zipfile
from typing import TYPE_CHECKING, Final

import pytest

import policytool
from policytool.support.errors import ModelFileError
from policytool.support.text import yamltext
from tests.helpers.marks import ALONE, THOROUGH
from tests.helpers.small_models import keras_members, keras_zip

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Bounded

SIZE: Final = 2**27


@THOROUGH
@pytest.mark.parametrize(
    ("member", "method"),
    [
        ("config.json", zipfile.ZIP_BZIP2),
        ("model.weights.h5", zipfile.ZIP_BZIP2),
        ("model.weights.h5", zipfile.ZIP_DEFLATED),
    ],
    ids=["config bzip2", "weights bzip2", "weights deflate"],
)
def test_member_larger_than_its_declared_size_is_not_kept_in_memory(
    member: str, method: int, tmp_path: Path, bounded: Bounded
) -> None:
    """
    The member declares 1,000 bytes and has 128 MiB, which bzip2 compresses to a hundred bytes.
    """
    path = tmp_path / "a.keras"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in keras_members().items():
            if name != member:
                archive.writestr(name, data)
        info = zipfile.ZipInfo(member)
        info.compress_type = method
        archive.writestr(info, bytes(SIZE))
    raw = bytearray(path.read_bytes())
    for place in (raw.rfind(struct.pack("<I", SIZE)), raw.find(struct.pack("<I", SIZE))):
        raw[place : place + 4] = struct.pack("<I", 1000)
    path.write_bytes(raw)
    bounded("zip-ratio", 10**9)
    tracemalloc.start()
    with pytest.raises(ModelFileError, match="Bad CRC-32") as caught:
        policytool.inspect(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert caught.value.code == "truncated"
    assert peak < SIZE // 4


def test_overlapping_members_are_rejected(tmp_path: Path) -> None:
    """Otherwise, a few bytes would count as any number of weights."""
    path = keras_zip(tmp_path / "a.keras")
    with zipfile.ZipFile(path, "a") as archive:
        weights = archive.getinfo("model.weights.h5")
        twin = zipfile.ZipInfo("twin.weights.h5")
        twin.header_offset, twin.file_size, twin.compress_size, twin.CRC = (
            weights.header_offset,
            weights.file_size,
            weights.compress_size,
            weights.CRC,
        )
        archive.filelist.append(twin)
        archive.writestr("more", b"")
    with pytest.raises(ModelFileError, match="overlap") as caught:
        policytool.inspect(path)
    assert caught.value.code == "zip-overlap"


def test_stored_member_has_the_size_that_is_stored(tmp_path: Path) -> None:
    """A window on the archive would show what lies behind it."""
    path = keras_zip(tmp_path / "a.keras")
    with zipfile.ZipFile(path) as archive:
        size = archive.getinfo("model.weights.h5").file_size
    raw = bytearray(path.read_bytes())
    place = raw.rfind(struct.pack("<II", size, size))
    raw[place + 4 : place + 8] = struct.pack("<I", size + 100)
    path.write_bytes(raw)
    with pytest.raises(
        ModelFileError, match=f"model.weights.h5 has {size} bytes but declares {size + 100}"
    ):
        policytool.inspect(path)


@THOROUGH
@ALONE
@pytest.mark.parametrize(
    "number",
    ["1" * 10**6, "1:" * 10**6 + "1", "1:" * 10**6 + "1.5"],
    ids=["digits", "sixties", "float"],
)
def test_long_numbers_of_yaml_are_not_computed(number: str) -> None:
    """YAML 1.1 has numbers with the base 60, of any length, which take the square of it."""
    start = time.process_time()
    with pytest.raises(yamltext.YamlError, match="a number with "):
        yamltext.parse(f"a: {number}")
    assert time.process_time() - start < 5
