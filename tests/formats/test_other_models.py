"""
Models of other libraries are named, with the dtypes of their tensors, and not read. The fixtures
and the truth about them are from the libraries themselves (fixtures/other_models.py).
"""

from __future__ import annotations

import json
import shutil
import struct
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policytool.formats import format_detection
from policytool.support.errors import ModelFileError
from tests.conftest import run
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from pathlib import Path

FOLDER: Final = FIXTURES / "other"
TRUTH: Final = json.loads((FOLDER / "tensors.json").read_text())


@pytest.mark.parametrize("name", TRUTH)
def test_the_sentence_has_the_title_and_the_dtypes_of_the_library(name: str) -> None:
    result = run("inspect", FOLDER / name)
    tensors = ", ".join(f"{count} {dtype}" for dtype, count in TRUTH[name]["tensors"].items())
    assert result.code == 3
    title = TRUTH[name]["title"]
    assert f"{title} (stored tensors: {tensors})," in result.err or not tensors
    assert f" {title}" in result.err
    assert "has no layers with policies" in result.err
    assert "[foreign]" in result.err


@pytest.mark.parametrize("command", ["inspect", "audit", "migrate"])
def test_skipped_files_are_counted_by_format(command: str, tmp_path: Path) -> None:
    """A directory may be a package of another library, with files that are not models at all."""
    data = tmp_path / "model.mlpackage" / "Data"
    data.mkdir(parents=True)
    shutil.copy(FOLDER / "model.mlmodel", data)
    (data / "weight.bin").write_bytes(b"weights")
    for name in ("a.onnx", "b.ONNX"):
        shutil.copy(FOLDER / "model.onnx", tmp_path / name)
    (tmp_path / "empty.onnx").touch()
    (tmp_path / "other.xml").write_text("<note/>", encoding="utf-8")
    (tmp_path / "net.engine").write_bytes(b"ftrt" + bytes(20))
    arguments = ("--to", "float16") if command == "migrate" else ()
    ended = run(command, str(tmp_path / "**"), *arguments)
    assert ended.code == 4
    assert "Skipped 7 files that are not models" in ended.err
    assert "(2 ONNX, 1 Core ML, 1 TensorRT)." in ended.err
    alone = run("inspect", tmp_path / "model.mlpackage")
    assert (alone.code, "(1 Core ML)." in alone.err) == (4, True)


@pytest.mark.parametrize("name", TRUTH)
def test_the_suffix_does_not_matter(name: str, tmp_path: Path) -> None:
    """Formats are recognized by their content."""
    copy = tmp_path / "model.h5"
    shutil.copy(FOLDER / name, copy)
    assert TRUTH[name]["title"] in run("inspect", copy).err


@pytest.mark.parametrize(
    ("content", "title"),
    [
        pytest.param(b"ftrt" + bytes(20), "a TensorRT engine", id="tensorrt"),
        pytest.param(b"GGUF" + struct.pack("<I", 3), "a GGUF model", id="gguf"),
        pytest.param(
            struct.pack("<Q", 2**62) + b'{"a":', "a safetensors file,", id="header-of-exbibytes"
        ),
        pytest.param(
            struct.pack("<Q", 12) + b'{"a": [1, 2]', "a safetensors file,", id="header-not-json"
        ),
        pytest.param(
            b"\x10\0\0\0TFL3" + bytes(40), "a TensorFlow Lite model,", id="tflite-of-zeros"
        ),
    ],
)
def test_damaged_headers_give_no_dtypes(content: bytes, title: str, tmp_path: Path) -> None:
    """The format is named, and no number is invented."""
    file = tmp_path / "model"
    file.write_bytes(content)
    result = run("inspect", file)
    assert result.code == 3
    assert title in result.err


def test_lists_that_contain_each_other_end_at_a_limit(tmp_path: Path) -> None:
    """A FlatBuffer whose graphs share one long list of tensors is not counted without end."""
    count = 90_000
    # a table with five fields, all of which are the same list; each of its items is the table
    fields = struct.pack("<HH5H", 14, 8, 4, 4, 4, 4, 4)
    table = 8 + len(fields) + 2
    start = table + 8
    items = struct.pack("<I", count) + b"".join(
        struct.pack("<I", (table - position) % 2**32)
        for position in range(start + 4, start + 4 + 4 * count, 4)
    )
    content = (
        struct.pack("<I", table)
        + b"TFL3"
        + fields
        + bytes(2)
        + struct.pack("<iI", table - 8, start - table - 4)
        + items
    )
    file = tmp_path / "model.tflite"
    file.write_bytes(content)
    result = run("inspect", file)
    assert result.code == 3
    assert result.err.count("error:") == 1


@given(name=st.sampled_from(sorted(TRUTH)), data=st.data())
def test_changed_bytes_never_end_in_a_traceback(
    name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Each variant of a file is refused with a sentence."""
    content = bytearray((FOLDER / name).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(1, len(content)))
    file = tmp_path_factory.mktemp("variant") / "model"
    file.write_bytes(content[:end])
    with pytest.raises(ModelFileError):
        format_detection.document(file, str(file))
