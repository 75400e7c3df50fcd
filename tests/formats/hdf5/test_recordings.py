"""Files of recorded runs: they are read as they were written, and damages are one sentence."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import h5py
import numpy as np
import pytest
from msgspec.structs import replace

from policytool.formats import format_detection
from policytool.numerics import recordings
from policytool.numerics.recordings import (
    RecordedCall,
    RecordedOutput,
    RecordedRun,
    RecordedTensor,
    Recording,
)
from policytool.support.errors import ModelFileError
from policytool.support.text import codec
from tests.helpers.example_checks import CPU, DRAWN, SIDES
from tests.helpers.marks import THOROUGH

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TENSOR: Final = RecordedTensor(
    kind="value",
    dtype="float32",
    shape=(None, 3),
    record=0,
    elements=24,
    nan=0,
    infinite=0,
    range=(-1.0, 2.0),
    squares=10.0,
    digest="0" * 64,
    exponents=((-1, 24),),
)
CALL: Final = RecordedCall(
    path="net",
    class_name="Functional",
    number=0,
    compute="float32",
    inputs=("float32",),
    within=("float32",),
    depth=4,
    children=0,
    is_model=True,
    begun=0,
    parent=None,
    producers=(),
    outputs=(TENSOR,),
)
RECORDING: Final = Recording(
    run=RecordedRun(
        tool="0.1.0",
        side=SIDES["reference"],
        versions={"tensorflow": "2.21.0"},
        device=CPU,
        seed=1,
        inputs=DRAWN,
        outputs=(RecordedOutput(name="y", dtype="float32", shape=(8, 3), activation=None),),
        calls=(CALL,),
        random=(),
    ),
    arrays={
        **{f"inputs/{place}": np.ones((8, 2), "float32") for place in range(len(DRAWN.inputs))},
        "outputs/0": np.arange(24, dtype="float32").reshape(8, 3),
        "layers/sketches": np.ones((1, 128)),
        "layers/samples": np.ones((1, 64)),
    },
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return the file of a recording."""
    path = tmp_path / "run.h5"
    recordings.write(path, RECORDING)
    return path


def test_a_recording_is_read_as_it_was_written(file: Path) -> None:
    """All values are the same, texts and booleans too, and a file is replaced."""
    arrays = {**RECORDING.arrays, "inputs/0": np.array([["é"], ["b"]])}
    recordings.write(file, replace(RECORDING, arrays=arrays))
    actual = recordings.read(file)
    assert actual.run == RECORDING.run
    assert actual.arrays.keys() == arrays.keys()
    assert actual.arrays["inputs/0"].tolist() == [["é".encode()], [b"b"]]
    assert np.array_equal(actual.arrays["outputs/0"], arrays["outputs/0"])


def test_commands_that_read_models_name_the_command_for_recordings(file: Path) -> None:
    """A path with a space can be pasted."""
    moved = file.rename(file.with_name("last run.h5"))
    with pytest.raises(ModelFileError, match=r"recorded run.*check MODEL --against '.*last run"):
        format_detection.document(moved, str(moved))


def test_a_link_is_no_recording(file: Path) -> None:
    """A link to another file is not followed to find out."""
    with h5py.File(file, "r+") as stored:
        _replace(stored, "recording", h5py.ExternalLink("other.h5", "/recording"))
        stored.attrs["format"] = 1
    with pytest.raises(ModelFileError) as caught:
        format_detection.document(file, str(file))
    assert "recorded" not in caught.value.message


def _text(change: Callable[[dict[str, Any]], object]) -> Callable[[h5py.File], None]:
    """Return a change of the JSON text."""

    def edit(stored: h5py.File) -> None:
        value = json.loads(codec.encode(RECORDING.run))
        change(value)
        _replace(stored, "recording", np.frombuffer(json.dumps(value).encode(), "uint8"))

    return edit


def _replace(stored: h5py.File, name: str, value: object, **options: Any) -> None:
    del stored[name]
    if options:
        stored.create_dataset(name, data=value, **options)
    else:
        stored[name] = value


def _external(stored: h5py.File) -> None:
    del stored["outputs/0"]
    stored.create_dataset("outputs/0", (8, 3), "float32", external=[("other.bin", 0, 96)])


def _virtual(stored: h5py.File) -> None:
    layout = h5py.VirtualLayout((8, 3), "float32")
    layout[:] = h5py.VirtualSource("other.h5", "x", (8, 3))
    del stored["outputs/0"]
    stored.create_virtual_dataset("outputs/0", layout)


DAMAGES: Final[dict[str, Callable[[h5py.File], object]]] = {
    "no output": lambda stored: stored.__delitem__("outputs/0"),
    "no sketches": lambda stored: stored.__delitem__("layers"),
    "no text": lambda stored: stored.__delitem__("recording"),
    "no mark": lambda stored: stored.attrs.__delitem__("format"),
    "no version": lambda stored: stored.attrs.__delitem__("version"),
    "newer version": lambda stored: stored.attrs.__setitem__("version", 2),
    "version is text": lambda stored: stored.attrs.__setitem__("version", "1"),
    "soft link": lambda stored: _replace(stored, "outputs/0", h5py.SoftLink("/inputs/0")),
    "external link": lambda stored: _replace(
        stored, "outputs", h5py.ExternalLink("other.h5", "/outputs")
    ),
    "external storage": _external,
    "virtual dataset": _virtual,
    "group instead of an array": lambda stored: (
        stored.__delitem__("outputs/0"),
        stored.create_group("outputs/0"),
    ),
    "compressed": lambda stored: _replace(
        stored, "outputs/0", np.zeros((8, 3), "float32"), compression="gzip"
    ),
    "objects": lambda stored: _replace(stored, "outputs/0", ["a", "b"], dtype=h5py.string_dtype()),
    "other rank": lambda stored: _replace(stored, "outputs/0", np.zeros(3, "float32")),
    "other sketches": lambda stored: _replace(stored, "layers/sketches", np.zeros((1, 4))),
    "not stored": lambda stored: (
        stored.__delitem__("outputs/0"),
        stored.create_dataset("outputs/0", (2**40, 2**10), "float32"),
    ),
    "text is not JSON": lambda stored: _replace(stored, "recording", np.zeros(9, "uint8")),
    "text is an array": _text(lambda value: value.update(outputs={})),
    "key of another type": _text(lambda value: value.update(seed="1")),
    "key is missing": _text(lambda value: value.pop("device")),
    "record that does not exist": _text(
        lambda value: value["calls"][0]["outputs"][0].update(record=7)
    ),
    "producer that does not exist": _text(lambda value: value["calls"][0].update(producers=[-1])),
    "no batch": _text(lambda value: value["inputs"].update(batch_size=0)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_recording_is_one_sentence(file: Path, damage: str) -> None:
    """Nothing outside of the file is read, and no memory is allocated for what is not stored."""
    with h5py.File(file, "r+") as stored:
        DAMAGES[damage](stored)
    with pytest.raises(ModelFileError) as caught:
        recordings.read(file)
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("size", [0, 7, 100, 2000, -1])
def test_a_truncated_recording_is_one_sentence(file: Path, size: int) -> None:
    """A file that was not copied completely is an error."""
    content = file.read_bytes()
    file.write_bytes(content[:size])
    with pytest.raises(ModelFileError) as caught:
        recordings.read(file)
    assert "\n" not in caught.value.message


@THOROUGH
def test_changed_bytes_are_an_error_or_a_recording(file: Path) -> None:
    """No other exception comes from a file in which single bytes differ."""
    content = file.read_bytes()
    for place in range(0, len(content), 37):
        file.write_bytes(content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :])
        try:
            recordings.read(file)
        except ModelFileError as error:
            assert "\n" not in error.message  # most changes are not errors
