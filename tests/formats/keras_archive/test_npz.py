"""
Weights in NumPy's format: headers are read, values are not, and nothing is unpickled.

What releases do with the files is measured: Keras 3.0.5, 3.3.3 and 3.6.0 load a dict of arrays, and
run the code of any other pickle before they fail; Keras 3.10.0, 3.12.0, 3.14.0 and 3.15.1 load
none. None of them loads plain arrays.
"""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

import policytool
from policytool.cli.exit_codes import Exit
from tests.conftest import run, tensorflow
from tests.helpers.marks import SLOW
from tests.helpers.scripts import run_captured
from tests.helpers.small_models import dense, instance, keras_members, keras_zip

if TYPE_CHECKING:
    from pathlib import Path

NAME: Final = "model.weights.npz"
PATH: Final = "layers/dense/vars/0"


class Marker:
    """An object whose pickle creates a directory when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the call for the pickle."""
        return os.mkdir, (str(self.path),)


def npz(**arrays: Any) -> bytes:  # h5py's and NumPy's own arguments
    """Return arrays in a zip archive, as NumPy saves them."""
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def npy(header: str, version: bytes = b"\x01\x00") -> bytes:
    """Return the header of an array without values."""
    text = header.encode() + b"\n"
    return b"\x93NUMPY" + version + len(text).to_bytes(2 if version[0] == 1 else 4, "little") + text


def zipped(members: dict[str, bytes]) -> bytes:
    """Return a zip archive with these members."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


def model(path: Path, *files: bytes, h5: bool = False) -> Path:
    """Write a model archive with these weights, as members with the same name."""
    members = keras_members()
    weights = members.pop("model.weights.h5")
    pairs = [
        *members.items(),
        *([("model.weights.h5", weights)] if h5 else []),
        *((NAME, data) for data in files),
    ]
    return keras_zip(path, pairs)


def pickled(path: Path) -> list[str]:
    """Return the messages about pickles."""
    return [
        observation.message
        for observation in policytool.inspect(str(path)).observations
        if observation.code == "pickled-weights"
    ]


def test_plain_arrays_are_variables(tmp_path: Path) -> None:
    path = model(
        tmp_path / "a.keras",
        npz(**{PATH: np.zeros((6, 2), "float32"), "layers/dense/vars/1": np.zeros(2, "float16")}),
    )
    result = policytool.inspect(str(path))
    assert [
        (variable.shape, variable.dtype) for layer in result.layers for variable in layer.variables
    ] == [((6, 2), "float32"), ((2,), "float16")]
    assert pickled(path) == []
    assert "14 parameters" in run("inspect", path).out


def test_compressed_members_are_read(tmp_path: Path) -> None:
    stream = io.BytesIO()
    arrays: dict[str, Any] = {PATH: np.ones((6, 2), "float32")}
    np.savez_compressed(stream, **arrays)
    members = {**keras_members(), NAME: stream.getvalue()}
    del members["model.weights.h5"]
    path = keras_zip(tmp_path / "a.keras", members, compression=zipfile.ZIP_DEFLATED)
    assert "12 parameters" in run("inspect", path).out


PICKLES: Final[dict[str, tuple[Any, str]]] = {
    "what Keras writes": (
        lambda _: npz(**{"layers/dense": np.array({"0": np.zeros(2)}, dtype=object)}),
        "member layers/dense.npy",
    ),
    "any object": (
        lambda marker: npz(**{PATH: np.array(marker, dtype=object)}),
        f"member {PATH}.npy",
    ),
    "an object in a structure": (
        lambda marker: npz(**{PATH: np.array([(marker,)], dtype=[("a", "O")])}),
        f"member {PATH}.npy",
    ),
    "two objects": (
        lambda marker: npz(a=np.array(marker, dtype=object), b=np.array(None, dtype=object)),
        "member a.npy and 1 more",
    ),
    "a pickle among the members": (
        lambda marker: zipped({"a.npy": pickle.dumps(marker)}),
        "member a.npy",
    ),
    "a pickle in place of the zip": (pickle.dumps, "the file as a whole"),
    "a pickle of protocol 0": (
        lambda marker: pickle.dumps(marker, protocol=0),
        "the file as a whole",
    ),
    "an array in place of the zip": (
        lambda _: npy("{'descr': '|O', 'fortran_order': False, 'shape': (), }"),
        "the file as a whole",
    ),
    "a header longer than NumPy evaluates": (
        lambda _: zipped(
            {"a.npy": npy("{'descr': '|O', 'fortran_order': False, 'shape': (), }" + " " * 20_000)}
        ),
        "member a.npy",
    ),
    "a header that nests": (lambda _: zipped({"a.npy": npy("(" * 9_000)}), "member a.npy"),
    "an unknown version": (
        lambda _: zipped(
            {"a.npy": npy("{'descr': '|O', 'fortran_order': False, 'shape': (), }", b"\x09\x00")}
        ),
        "member a.npy",
    ),
}


@pytest.mark.parametrize("name", PICKLES)
def test_pickles_are_observed_and_not_loaded(name: str, tmp_path: Path) -> None:
    """Pickles are reported, and their code does not run."""
    build, where = PICKLES[name]
    path = model(tmp_path / "a.keras", build(Marker(tmp_path / "ran")))
    assert pickled(path) == [
        (f"{NAME} contains Python pickles ({where}), whose code runs when they are unpickled")
    ]
    verdicts = policytool.inspect(str(path)).releases
    assert not [
        loader for loader, verdict in verdicts.items() if verdict.loads and not verdict.not_judged
    ]
    assert verdicts["keras3.15"].reason == (
        "its weights are in model.weights.npz, which Keras 3.10 and later do not support"
    )
    ended = run("inspect", path)
    assert (ended.code, "number of parameters unknown" in " ".join(ended.out.split())) == (
        Exit.CLEAN,
        True,
    )
    assert not (tmp_path / "ran").exists()


def test_each_member_of_a_name_is_looked_at(tmp_path: Path) -> None:
    """If two members have the same name, a pickle in either is reported."""
    plain, raw = npz(**{PATH: np.zeros((6, 2), "float32")}), pickle.dumps(Marker(tmp_path / "ran"))
    for files in ((plain, raw), (raw, plain)):
        with pytest.warns(UserWarning, match="Duplicate name"):
            path = model(tmp_path / "a.keras", *files)
        assert len(pickled(path)) == 1


def test_pickles_beside_other_weights_are_observed(tmp_path: Path) -> None:
    """The report shows the HDF5 weights, which Keras reads."""
    path = model(tmp_path / "a.keras", pickle.dumps(Marker(tmp_path / "ran")), h5=True)
    result = policytool.inspect(str(path))
    assert len(pickled(path)) == 1
    assert result.summary.parameters == 14
    assert result.releases["keras3.15"].loads


def test_an_unpacked_model_has_the_same(tmp_path: Path) -> None:
    path = tmp_path / "model"
    with zipfile.ZipFile(
        model(tmp_path / "a.keras", pickle.dumps(Marker(tmp_path / "ran")))
    ) as archive:
        archive.extractall(path)
    assert len(pickled(path)) == 1


def test_damaged_or_overlapping_weights_are_unreadable(tmp_path: Path) -> None:
    damaged = model(tmp_path / "a.keras", npz(a=np.zeros(2))[:40])
    ended = run("inspect", damaged)
    assert (ended.code, "truncated or damaged" in ended.err) == (Exit.FAILURE, True)
    ended = run(
        "inspect",
        model(tmp_path / "b.keras", npz(**{f"a{number}": np.zeros(1) for number in range(30)})),
        "--limit",
        "zip-members=20",
    )
    assert (ended.code, "has a model.weights.npz of 30 members" in ended.err) == (
        Exit.FAILURE,
        True,
    )


LOADING: Final = """
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
from keras.src.saving import saving_lib
path, written = sys.argv[1:]
made = keras.Sequential([keras.Input((6,)), keras.layers.Dense(2)])
saving_lib.save_model(made, written, weights_format="npz")
for name in (path, written):
    try:
        keras.models.load_model(name)
    except ValueError as error:
        print("ValueError", "allow_pickle" in str(error))
"""


@SLOW
def test_the_newest_keras_loads_no_pickles(tmp_path: Path) -> None:
    layer = {**dense(), "build_config": {"input_shape": [None, 6]}}
    members = keras_members(
        {**instance("Sequential", name="mlp", layers=[layer]), "module": "keras"}
    )
    members[NAME] = npz(**{"layers/dense": np.array(Marker(tmp_path / "ran"), dtype=object)})
    del members["model.weights.h5"]
    path, written = keras_zip(tmp_path / "a.keras", members), tmp_path / "written.keras"
    done = run_captured([tensorflow(), "-c", LOADING, str(path), str(written)], timeout=300)
    assert done.stdout == "ValueError True\n" * 2
    assert not (tmp_path / "ran").exists()
    assert len(pickled(written)) == 1
    assert not any(verdict.loads for verdict in policytool.inspect(str(written)).releases.values())
