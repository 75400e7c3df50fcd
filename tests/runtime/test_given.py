"""NumPy files as inputs, in modules of the child process that do not need TensorFlow."""

from __future__ import annotations

import io
import os
import signal
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from policytool.runtime.feeding import given_arrays
from policytool.runtime.feeding.recipes import Recipe
from policytool.runtime.feeding.slots import Slot
from policytool.runtime.library import Refused
from policytool.support.files import atomic
from tests.helpers.paths import ROOT

VALUES: Slot = Slot("values", [None, 3], "float32")


def drawn() -> Recipe:
    """Return a recipe without limits."""
    return Recipe("normal values", lambda random, shape: random.standard_normal(size=shape))


def read(path: Path, *slots: Slot) -> tuple[list[Any], list[str]]:
    """Read a file for inputs without limits."""
    return given_arrays.read_arrays(str(path), slots, [drawn() for _ in slots])


def refusal(path: Path, *slots: Slot) -> str:
    """Return the error message for a file."""
    with pytest.raises(Refused) as caught:
        read(path, *slots)
    assert caught.value.code == "inputs-file"
    return str(caught.value)


def npy(array: Any) -> bytes:
    """Return the bytes of a file with an array."""
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def headed(shape: str, descr: str = "<f4") -> bytes:
    """Return the header of an array without data."""
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode("latin1")


@pytest.mark.parametrize("name", ["values", "file", "a/b", "with space", "ünï"])
def test_written_inputs_are_read_unchanged(tmp_path: Path, name: str) -> None:
    array = np.arange(6, dtype="float32").reshape(2, 3)
    given_arrays.write_arrays(str(tmp_path / "x.npz"), {name: array})
    arrays, hows = read(tmp_path / "x.npz", Slot(name, [None, 3], "float32"))
    assert np.array_equal(arrays[0], array)
    assert hows == ["given"]
    assert [path.name for path in tmp_path.iterdir()] == ["x.npz"]


@pytest.mark.parametrize(
    "dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
)
def test_dtypes_that_files_do_not_know_are_written_wider(tmp_path: Path, dtype: Any) -> None:
    """Dtypes that NumPy files lack are written as float32, which contains each of their values."""
    array = np.random.default_rng(1).normal(size=(4, 3)).astype(dtype)
    given_arrays.write_arrays(str(tmp_path / "x.npz"), {"values": array})
    (result,), _ = read(tmp_path / "x.npz", Slot("values", [None, 3], array.dtype.name))
    assert result.dtype == np.float32
    assert np.array_equal(result.astype(dtype).view("uint8"), array.view("uint8"))


@pytest.mark.parametrize("texts", [["red", "grün", ""], [b"red", b"\xff\xfe", b"green"]])
def test_strings_are_written_without_pickles(tmp_path: Path, texts: list[Any]) -> None:
    array = np.array([texts], dtype=object)
    given_arrays.write_arrays(str(tmp_path / "x.npz"), {"words": array})
    (result,), _ = read(tmp_path / "x.npz", Slot("words", [None, 3], "string"))
    assert result.tolist() == [[text.encode() if isinstance(text, str) else text for text in texts]]


def test_failed_write_keeps_the_previous_file(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="cannot be written"):
        given_arrays.write_arrays(str(tmp_path / "none" / "x.npz"), {"values": np.zeros(3)})
    path = tmp_path / "x.npz"
    path.write_bytes(b"before")
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(Refused, match="cannot be written"):  # no file takes its place
        given_arrays.write_arrays(str(folder), {"values": np.zeros(3)})
    folder.rmdir()
    with pytest.raises(ValueError, match="Object arrays"):
        given_arrays.write_arrays(
            str(path), {"values": np.array([(1, object())], dtype=[("a", int), ("b", object)])}
        )
    assert path.read_bytes() == b"before"
    assert [path.name for path in tmp_path.iterdir()] == ["x.npz"]


def test_a_killed_write_leaves_a_draft_that_the_next_run_removes(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(b"before")
    script = (
        "import os, signal, sys, numpy\n"
        "from policytool.runtime.feeding import given_arrays\n"
        "os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "given_arrays.write_arrays(sys.argv[1], {'values': numpy.zeros(3)})\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == b"before"
    assert len(list(tmp_path.iterdir())) == 2
    atomic.remove_stale(tmp_path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_draft_is_written_through_no_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A temporary file is not written through an existing link, which would write another file."""
    monkeypatch.setattr(os, "urandom", bytes)
    other = tmp_path / "other"
    other.write_bytes(b"before")
    draft = Path(given_arrays.hidden_path(str(tmp_path / "x.npz")))
    draft.symlink_to(other)
    with pytest.raises(Refused, match="cannot be written"):
        given_arrays.write_arrays(str(tmp_path / "x.npz"), {"values": np.zeros(3)})
    assert other.read_bytes() == b"before"
    assert draft.is_symlink()


def test_one_array_for_the_one_input_needs_no_name(tmp_path: Path) -> None:
    array = np.ones((2, 3), "float32")
    np.save(tmp_path / "x.npy", array)
    np.savez(tmp_path / "x.npz", array)
    for name in ("x.npy", "x.npz"):
        assert np.array_equal(read(tmp_path / name, VALUES)[0][0], array)
    message = refusal(tmp_path / "x.npy", VALUES, Slot("other", [None], "int32"))
    assert "contains one array without a name, but the model expects values, other" in message


@pytest.mark.parametrize(
    ("wanted", "array", "how"),
    [
        ("float32", np.ones((2, 3)), "given, cast from float64"),
        ("float16", np.ones((2, 3), "uint8"), "given, cast from uint8"),
        ("int32", np.ones((2, 3), "int64"), "given, cast from int64"),
        ("float32", np.ones((2, 3), bool), "given, cast from bool"),
        ("bool", np.ones((2, 3), bool), "given"),
    ],
)
def test_arrays_are_cast_where_nothing_is_lost_but_digits(
    tmp_path: Path, wanted: str, array: Any, how: str
) -> None:
    """Floats become narrower floats, and integers keep their values."""
    np.savez(tmp_path / "x.npz", values=array)
    (result,), hows = read(tmp_path / "x.npz", Slot("values", [None, 3], wanted))
    assert (result.dtype, hows) == (np.dtype(wanted), [how])


@pytest.mark.parametrize(
    ("wanted", "array", "message"),
    [
        ("int32", np.ones((2, 3)), "expects int32, but the file has float64"),
        ("bool", np.ones((2, 3), int), "expects bool, but the file has int64"),
        ("float32", np.full((2, 3), "a"), "expects float32, but the file has <U1"),
        ("float32", np.ones((2, 3), complex), "expects float32, but the file has complex128"),
        ("string", np.ones((2, 3)), "expects strings, but the file has float64"),
        ("uint8", np.full((2, 3), 256), "expects uint8, but the file has values from 256 to 256"),
        ("int8", np.full((2, 3), -129), "expects int8, but the file has values from -129 to -129"),
        (
            "float16",
            np.array([[np.inf, np.nan, 70000.0]]),
            "expects float16, but the file has values from 70000.0 to 70000.0",
        ),
        (
            "float32",
            np.ones((2, 4), "float32"),
            "expects the shape (any, 3), but the file has (2, 4)",
        ),
        ("float32", np.float32(1), "expects the shape (any, 3), but the file has ()"),
    ],
)
def test_arrays_that_do_not_fit_are_rejected(
    tmp_path: Path, wanted: str, array: Any, message: str
) -> None:
    """The error has the name of the input, and the expected and the actual value."""
    np.savez(tmp_path / "x.npz", values=array)
    assert (
        refusal(tmp_path / "x.npz", Slot("values", [None, 3], wanted)) == f"input values {message}"
    )


def test_an_array_with_another_name_is_named(tmp_path: Path) -> None:
    """A single array is used for a single input, and an error says that it is another array."""
    np.savez(tmp_path / "x.npz", feat=np.ones((64, 30)))
    assert refusal(tmp_path / "x.npz", Slot("examples", [None], "string")) == (
        "input examples expects the shape (any), but feat, the only array of the file, has (64, 30)"
    )


@pytest.mark.parametrize("ids", [[0, 5], [-1, 4], [0.0, np.nan]])
def test_ids_out_of_range_are_rejected(tmp_path: Path, ids: list[float]) -> None:
    """Ids out of range are an error, because a GPU would silently return zeros for them."""
    np.savez(tmp_path / "x.npz", ids=np.array(ids))
    recipe = drawn()
    recipe.limit = (5, "table")
    with pytest.raises(
        Refused,
        match="input ids is passed to table, which accepts IDs from 0 to 4, but the file has",
    ):
        given_arrays.read_arrays(
            str(tmp_path / "x.npz"), [Slot("ids", [None], "float32")], [recipe]
        )


@pytest.mark.parametrize(
    "arrays",
    [
        {"value": np.ones((2, 3)), "other": np.ones(2)},
        {"values": np.ones((2, 3)), "y": np.ones(2)},
        {"values": np.ones((2, 3)), "Labels": np.ones(2)},
        {"arr_0": np.ones((2, 3)), "arr_1": np.ones((2, 3))},
        {"labels": np.ones(2), "x": np.ones((2, 3))},
        {},
    ],
)
def test_names_that_are_not_inputs_are_rejected(tmp_path: Path, arrays: dict[str, Any]) -> None:
    """Missing and unknown arrays are an error with the names of the model's inputs."""
    np.savez(tmp_path / "x.npz", **arrays)
    result = ", ".join(sorted(arrays)) or "no array"
    hint = "save arrays with only these names"
    if "values" in arrays:
        hint = "leave out the others, such as labels"
    elif arrays:
        fitting = min(key for key in arrays if arrays[key].shape == (2, 3))
        hint = f"select one with x.npz:KEY, such as x.npz:{fitting}"
    message = refusal(tmp_path / "x.npz", VALUES)
    assert (
        message == f"{tmp_path / 'x.npz'} contains {result}, but the model expects values; {hint}"
    )


@pytest.mark.parametrize("name", ["values", "arr_0", "x_test"])
def test_a_single_array_is_the_single_input(tmp_path: Path, name: str) -> None:
    given: dict[str, Any] = {name: np.ones((2, 3), dtype=np.float32)}
    np.savez(tmp_path / "x.npz", **given)
    arrays, _ = given_arrays.read_arrays(str(tmp_path / "x.npz"), [VALUES], [drawn()])
    assert [array.tolist() for array in arrays] == [[[1.0] * 3] * 2]


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (0,)])
@pytest.mark.parametrize("dims", [[None, 3], [None, None], None])
def test_empty_arrays_are_rejected(
    tmp_path: Path, shape: tuple[int, ...], dims: list[int | None] | None
) -> None:
    np.savez(tmp_path / "x.npz", values=np.ones(shape), other=np.ones(2))
    message = refusal(
        tmp_path / "x.npz", Slot("values", dims, "float32"), Slot("other", [None], "int32")
    )
    assert "contains an empty array of the shape (" in message
    assert message.endswith("for input values; the model expects values, other")


def zipped(name: str, content: bytes) -> bytes:
    """Return a zip file with one member."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (npy(np.array([object()])), "contains Python objects, which could execute code"),
        (
            zipped("values.npy", npy(np.array(["a"], dtype=object))),
            "contains Python objects in values, which could execute code",
        ),
        (headed("(1000000, 1000000, 1000)"), "bytes of arrays, but this machine has"),
        (
            zipped("values.npy", headed("(1000000, 1000000, 1000)")),
            "bytes of arrays, but this machine has",
        ),
        (headed("(10000000000000000000,)", "<U0"), "bytes of arrays, but this machine has"),
        (headed("(-1,)"), "it has a negative dimension"),
        (b"\x93NUMPY\x03\x00" + headed("(1,)")[8:], "the header of it has an unknown version"),
        (headed("(2, 3)"), "cannot be read as .npz or .npy"),
        (headed("__import__('os')"), "cannot be read as .npz or .npy"),
        (zipped("values.npy", npy(np.ones((2, 3))))[:-30], "cannot be read as .npz or .npy"),
        (zipped("values.txt", b"words"), "cannot be read as .npz or .npy"),
        (b"PK", "cannot be read as .npz or .npy"),
        (b"", "cannot be read as .npz or .npy"),
        (b"words", "cannot be read as .npz or .npy"),
    ],
)
def test_invalid_files_are_rejected(tmp_path: Path, content: bytes, message: str) -> None:
    """Objects, too large arrays, wrong headers and other formats are errors before reading."""
    (tmp_path / "x.npz").write_bytes(content)
    assert message in refusal(tmp_path / "x.npz", VALUES)


def test_missing_file_is_reported(tmp_path: Path) -> None:
    assert refusal(tmp_path / "x.npz", VALUES).endswith("x.npz does not exist")
    assert "cannot be read" in refusal(tmp_path, VALUES)
