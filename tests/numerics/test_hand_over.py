"""
The files for the process with TensorFlow: private copies of the checked bytes under policytool's
names, in each job of each command.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import h5py
import numpy as np
import pytest

import policytool
from policytool.numerics.hand_over import HandOver, PrivateCopy, encoded_job
from policytool.numerics.verification import InstalledLibraries
from policytool.numerics.workers import Worker
from policytool.support.errors import ModelFileError, PolicytoolError, WorkerError
from tests.conftest import (
    MIXED_H5,
    MIXED_JSON,
    MIXED_KERAS,
    MIXED_SAVEDMODEL,
    MIXED_YAML,
    UNPACKED,
    run,
    tensorflow,
)
from tests.helpers.fake_interpreters import NEWEST
from tests.helpers.marks import PARSING, SLOW, THOROUGH
from tests.helpers.paths import FIXTURES, PACKAGE
from tests.helpers.places import places, value_at
from tests.helpers.polyglots import HARMLESS_H5, hdf5_at, hostile_archive
from tests.helpers.source_tree import parse, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SHARDS: Final = FIXTURES / "keras3.15/sharded.weights.json"
CHECKPOINT: Final = FIXTURES / "checkpoints/training"
OF_USERS: Final = {
    ("inputs", "file"),
    ("inputs", "save"),
    ("inputs", "directory"),
    ("metric", "labels"),
    ("metric", "directory"),
    ("path",),
}
"""
Where a job names what is no model: arrays, which are read as regular files without pickles, where
inputs are saved, and where the user's own modules are.
"""


@pytest.fixture(autouse=True)
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the private directory for temporary files."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory with models whose suffixes do not match their formats."""
    folder = tmp_path / "place"
    folder.mkdir()
    shutil.copy(MIXED_H5, folder / "h5.keras")
    shutil.copy(MIXED_KERAS, folder / "archive.h5")
    shutil.copy(FIXTURES / "tf2.15/default_float32.h5", folder / "plain.bin")
    shutil.copytree(MIXED_SAVEDMODEL, folder / "saved.keras")
    shutil.copytree(UNPACKED, folder / "unpacked.h5")
    shutil.copy(MIXED_JSON, folder / "architecture.h5")
    shutil.copy(MIXED_YAML, folder / "architecture.keras")
    shutil.copytree(FIXTURES / "keras3.15/default_float32.export", folder / "graph")
    shutil.copy(UNPACKED / "model.weights.h5", folder / "w.keras")
    np.savez(folder / "inputs.npz", features=np.zeros((4, 8), "float32"))
    monkeypatch.chdir(folder)
    return folder


# Copies


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("h5.keras", "model.h5"),
        ("plain.bin", "model.h5"),
        ("archive.h5", "model.keras"),
        ("saved.keras", "model"),
        ("unpacked.h5", "model"),
        ("architecture.h5", "model.json"),
        ("architecture.keras", "model.yaml"),
    ],
)
def test_copy_has_the_suffix_of_its_format(source: str, name: str, place: Path) -> None:
    """
    A copy has the suffix of its format and the same bytes, is not a link, and is removed after the
    job.
    """
    with HandOver() as hand_over:
        copy = hand_over.take(place / source, "shown")
        assert copy.path.name == name
        assert copy.document.path == "shown"
        status = hand_over.path.stat()
        assert (stat.S_IMODE(status.st_mode), status.st_uid) == (0o700, os.getuid())
        for file in copy.files:
            original = place / source / file.relative_to(copy.path)
            assert file.read_bytes() == original.read_bytes()
            assert not file.is_symlink()
            assert file.stat().st_nlink == 1
            assert not file.samefile(original)
        assert copy.files
    assert not copy.path.exists()


def test_a_link_to_a_model_is_copied(place: Path) -> None:
    """A link to a model is copied as the model that it refers to."""
    (place / "link").symlink_to("h5.keras")
    with HandOver() as hand_over:
        copy = hand_over.take(place / "link", "m")
        assert copy.path.is_file()
        assert not copy.path.is_symlink()


def test_changes_to_the_original_do_not_affect_the_copy(place: Path) -> None:
    """
    Changes to the original have no effect after the copy, neither before loading nor between two
    runs of a command.
    """
    path = place / "plain.bin"
    with HandOver() as hand_over:
        copy = hand_over.take(path, "m")
        path.write_bytes(hostile_archive("marker"))
        assert copy.path.read_bytes() == HARMLESS_H5
        assert hand_over.take(path, "m") is copy
    path.unlink()
    os.mkfifo(path)
    with HandOver() as hand_over, pytest.raises(ModelFileError, match="is a FIFO"):
        hand_over.take(path, "m")


def test_only_files_of_the_model_are_copied(place: Path) -> None:
    """Only files of the model are copied, because releases could read other files as part of it."""
    model = place / "saved.keras"
    (model / "notes").mkdir()
    (model / "notes" / "large").write_bytes(bytes(100))
    (model / "README").write_text("text", encoding="utf-8")
    (model / "variables" / "more").symlink_to("variables.index")
    with HandOver() as hand_over:
        copy = hand_over.take(model, "m")
        names = {path.relative_to(copy.path).as_posix() for path in copy.path.rglob("*")}
        assert not (copy.path / "variables" / "more").is_symlink()
    assert {"saved_model.pb", "variables/variables.index"} <= names
    assert not names & {"notes", "README"}


def test_asset_that_links_out_of_the_model_is_copied_only_with_trust(place: Path) -> None:
    """An asset that is a link out of the model is an error; with trust, its target is copied."""
    model = place / "unpacked.h5"
    secret = place / "secret.txt"
    secret.write_text("secret", encoding="utf-8")
    (model / "assets").mkdir(exist_ok=True)
    (model / "assets" / "words.txt").symlink_to(secret)
    with HandOver() as hand_over, pytest.raises(ModelFileError, match=r"words\.txt"):
        hand_over.take(model, "m")
    with HandOver(trust=True) as hand_over:
        copied = hand_over.take(model, "m").path / "assets" / "words.txt"
        assert not copied.is_symlink()
        assert copied.read_text(encoding="utf-8") == "secret"


def test_links_in_circles_end(place: Path) -> None:
    """Circular links in a directory do not make copying endless."""
    model = place / "unpacked.h5"
    (model / "assets").mkdir(exist_ok=True)
    (model / "assets" / "again").symlink_to("..", target_is_directory=True)
    with HandOver() as hand_over:
        assert hand_over.take(model, "m").files


def test_holes_stay_holes(place: Path) -> None:
    """A sparse file stays sparse in the copy."""
    path = place / "plain.bin"
    os.truncate(path, 2**40)
    with HandOver() as hand_over:
        copy = hand_over.take(path, "m")
        status = copy.path.stat()
        assert status.st_size == 2**40
        assert status.st_blocks * 512 < 2**20


def test_full_disk_gives_a_one_line_error(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A full disk is a one-line error before copying, and names the variable that moves the directory.
    """
    usage = shutil.disk_usage(place)._replace(free=10)
    monkeypatch.setattr("policytool.numerics.hand_over.shutil.disk_usage", lambda _: usage)
    with HandOver() as hand_over, pytest.raises(ModelFileError, match="set TMPDIR") as caught:
        hand_over.take(place / "plain.bin", "m")
    assert caught.value.code == "no-space"


# Weights


@pytest.mark.parametrize(
    ("source", "name", "count"),
    [
        (UNPACKED / "model.weights.h5", "model.weights.h5", 1),
        (MIXED_H5, "model.h5", 1),
        (MIXED_KERAS, "model.keras", 1),
        (SHARDS, "sharded.weights.json", 1 + len(list(SHARDS.parent.glob("sharded_*.weights.h5")))),
        (CHECKPOINT, "model", 2),
        (CHECKPOINT.with_name("training.index"), "model", 2),
    ],
)
def test_copy_of_weights_has_the_suffix_of_the_layout(
    source: Path, name: str, count: int, tmp_path: Path
) -> None:
    """
    A copy of weights has the suffix of its layout, because Keras selects the reader by suffix, and
    derives the names of shards from that of their map.
    """
    path = source
    if source.suffix == ".h5":
        path = tmp_path / "weights.keras"
        shutil.copy(source, path)
    with HandOver() as hand_over:
        copy = hand_over.copy_weights(path)
        assert copy.path.name == name
        assert copy.path.is_relative_to(hand_over.path)
        assert len(copy.files) == count


def test_weights_behind_a_user_block_are_checked(tmp_path: Path) -> None:
    """Weights after a user block are checked, and a dataset in another file needs trust."""
    path = tmp_path / "w.h5"
    path.write_bytes(hdf5_at(4096))
    with HandOver() as hand_over:
        assert hand_over.copy_weights(path).document.tensors
    with h5py.File(path, "r+") as file:
        file["model_weights"].create_dataset(
            "more", (4,), "float32", external=[("/etc/hostname", 0, 16)]
        )
    with HandOver() as hand_over, pytest.raises(ModelFileError) as caught:
        hand_over.copy_weights(path)
    assert caught.value.code == "runs-code"


@pytest.mark.parametrize("content", [b"", b"text", b"\x00" * 5000, b"\x80\x04."])
def test_unrecognised_weights_are_an_error(content: bytes, place: Path) -> None:
    """Unrecognized weights are an error, and no option allows them."""
    (place / "w.h5").write_bytes(content)
    for more in ((), ("--trust",)):
        ended = run(
            *("check", "architecture.h5", "--to", "mixed_bfloat16", "--weights", "w.h5"),
            *("--python", "no-such-python", *more),
        )
        assert ended.code == 3, ended
        assert ended.err.startswith("error: w.h5: ")
    with HandOver(trust=True) as hand_over, pytest.raises(ModelFileError, match="no weights"):
        hand_over.copy_weights(place / "architecture.h5")


# Jobs


class Recorded:
    """A record of the jobs for the child, and whether their paths are private."""

    def __init__(self, private: Path) -> None:
        self.private = private
        self.jobs: list[Mapping[str, Any]] = []

    def run(self, _worker: Worker, job: Mapping[str, Any], *, side: str = "") -> Mapping[str, Any]:  # noqa: ARG002
        """Record the job and check its paths, and answer the first of two jobs."""
        result = json.loads(encoded_job(job))
        self.jobs.append(result)
        for steps, text in places(result):
            place = tuple(step for step in steps if isinstance(step, str))
            if isinstance(text, str) and text.startswith("/") and place not in OF_USERS:
                self._check(place, Path(text), job)
        if job["job"] == "predict" and job["like"] is None:
            return {"calls": [], "versions": {}, "samples": 0}
        raise WorkerError("recorded", "not done")

    def _check(self, place: tuple[str, ...], path: Path, job: Mapping[str, Any]) -> None:
        assert path.resolve().is_relative_to(self.private.resolve()), (place, path)
        home = self.private / path.relative_to(self.private).parts[0]
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
        assert not any(part.is_symlink() for part in (path, *path.parents[:-3]))
        is_output = place in {("outputs",), ("draft",)}
        assert is_output or path.exists() or path.with_name(f"{path.name}.index").exists()
        assert is_output or place == ("inputs",) or value_at(job, place).__class__ is PrivateCopy


@pytest.fixture
def recorded(private: Path, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """Return the recorded jobs; both libraries appear to be installed."""
    result = Recorded(private)
    monkeypatch.setattr(
        Worker, "run", lambda worker, job, *, side="": result.run(worker, job, side=side)
    )
    monkeypatch.setattr(
        "policytool.numerics.tensorflow_run.installed_libraries",
        lambda _: InstalledLibraries(where="here", releases=NEWEST),
    )
    return result


@pytest.mark.parametrize(
    ("releases", "family", "missing"),
    [
        ({"tensorflow": "2.16.1", "keras": "3.3.3"}, "keras2", "tf-keras"),
        ({"tensorflow": "2.16.1", "keras": "3.3.3", "tf_keras": "2.16.0"}, "keras2", None),
        ({"tensorflow": "2.15.0", "keras": "2.15.0"}, "keras2", None),
        ({"tensorflow": "2.15.0", "keras": "2.15.0"}, "keras3", "Keras 3"),
        ({"tensorflow": "2.16.1", "keras": "3.3.3"}, "keras3", None),
    ],
)
def test_a_missing_library_is_named(
    releases: dict[str, str | None], family: str, missing: str | None
) -> None:
    """TensorFlow has Keras 2 before 2.16, and needs Keras 3 to load its files."""
    expected = None if missing is None else f"here has TensorFlow, but not {missing}"
    assert InstalledLibraries(where="here", releases=releases).lack(family) == expected


FOLLOW: Final = ("--include", "outputs")
"""The unpacked model has no other layers than those that make its output."""

COMMANDS: Final[dict[str, tuple[tuple[str, ...], list[str]]]] = {
    "check": (("check", "h5.keras", "--to", "mixed_bfloat16"), ["check"]),
    "check inputs": (
        ("check", "h5.keras", "--to", "mixed_bfloat16", "--inputs", "inputs.npz"),
        ["check"],
    ),
    "check two": (("check", "h5.keras", "plain.bin"), ["check"]),
    "check archive": (("check", "archive.h5", "--to", "mixed_bfloat16"), ["check"]),
    "check SavedModel": (("check", "saved.keras", "--to", "mixed_bfloat16"), ["check"]),
    "check unpacked": (("check", "unpacked.h5", "--to", "mixed_bfloat16"), ["check"]),
    "check graph": (("check", "graph", "--to", "mixed_bfloat16", "--trust"), ["check"]),
    "check weights": (
        ("check", "architecture.h5", "--to", "mixed_bfloat16", "--weights", "w.keras"),
        ["check"],
    ),
    "tune": (("tune", "h5.keras", "--to", "mixed_bfloat16"), ["trial"] * 2),
    "tune weights": (
        ("tune", "architecture.h5", "--to", "mixed_bfloat16", "--weights", "w.keras"),
        ["trial"] * 2,
    ),
    "verify": (("migrate", "h5.keras", "--to", "bfloat16", "--verify"), ["predict"] * 2),
    "verify SavedModel": (
        ("migrate", "saved.keras", "--to", "mixed_bfloat16", "--verify"),
        ["predict"] * 2,
    ),
    "verify unpacked": (
        ("migrate", "unpacked.h5", "--to", "mixed_bfloat16", *FOLLOW, "--verify"),
        ["predict"] * 2,
    ),
    "in place": (
        ("migrate", "unpacked.h5", "--to", "mixed_bfloat16", *FOLLOW, "--verify", "--in-place"),
        ["predict"] * 2,
    ),
    "target": (("migrate", "plain.bin", "--target", "keras3", "-o", "o.keras"), ["predict"] * 2),
    "target SavedModel": (
        ("migrate", "saved.keras", "--target", "keras3", "-o", "o.keras"),
        ["predict"] * 2,
    ),
    "retrace": (("migrate", "saved.keras", "--to", "mixed_bfloat16", "--retrace"), ["reexport"]),
    "fix": (("audit", "h5.keras", "--fix", "--unsafe-fixes"), []),
}


@THOROUGH
@pytest.mark.parametrize("name", COMMANDS)
def test_every_path_to_a_model_in_a_job_is_private(
    name: str, recorded: Recorded, place: Path
) -> None:
    """Each path to a model in a job of any command is private, and no copy is left."""
    command, kinds = COMMANDS[name]
    ended = run(*command)
    assert [job["job"] for job in recorded.jobs] == kinds, ended
    assert list(recorded.private.iterdir()) == []
    text = json.dumps(
        [
            {key: value for key, value in job.items() if key not in {"inputs", "metric", "path"}}
            for job in recorded.jobs
        ]
    )
    assert str(place) not in text


@THOROUGH
def test_every_path_of_a_saved_plan_is_private(recorded: Recorded, place: Path) -> None:
    """Each path in the job of a saved plan is private."""
    plan = run("migrate", "h5.keras", "--to", "bfloat16", "--preview", "--format", "json")
    (place / "plan.json").write_text(plan.out, encoding="utf-8")
    ended = run("migrate", "--plan", "plan.json", "--verify")
    assert [job["job"] for job in recorded.jobs] == ["predict"] * 2, ended


FUNCTIONS: Final[dict[str, Callable[[], object]]] = {
    "check": lambda: policytool.check("h5.keras", to="mixed_bfloat16"),
    "tune": lambda: policytool.tune("h5.keras", to="mixed_bfloat16"),
    "migrate": lambda: policytool.migrate(
        "plain.bin", output="o.keras", target="keras3", verify=True
    ),
}


@THOROUGH
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_path_of_a_function_is_private(name: str, recorded: Recorded, place: Path) -> None:
    """Each path in the job of a Python function is private."""
    assert place.is_dir()
    with pytest.raises(PolicytoolError, match="not done"):
        FUNCTIONS[name]()
    assert recorded.jobs


def test_a_path_is_no_part_of_a_job() -> None:
    """The type of a job allows a copy or a text and no path."""
    with pytest.raises(TypeError, match="does not belong in a job"):
        encoded_job({"job": "predict", "model": MIXED_H5})


@PARSING
@THOROUGH
def test_only_one_module_creates_copies() -> None:
    """Only one module of the package creates copies."""
    makers = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in walk(parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and (getattr(node.func, "id", None) or getattr(node.func, "attr", None)) == "PrivateCopy"
    }
    assert makers == {"numerics/hand_over.py"}


# TensorFlow


@SLOW
@pytest.mark.parametrize(
    "arguments",
    [
        ("migrate", "{}", "--target", "keras3"),
        ("migrate", "{}", "--target", "keras3", "--verify", "--trust"),
        ("migrate", "{}", "--to", "float64", "--verify"),
        ("check", "{}", "--to", "mixed_bfloat16"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_the_other_model_of_a_file_is_never_loaded(
    arguments: tuple[str, ...], suffix: str, tmp_path: Path
) -> None:
    """
    If a file contains a second model, an archive that tf_keras would load and that writes a file,
    it is never loaded.
    """
    marker, path = tmp_path / "marker", tmp_path / f"p{suffix}"
    path.write_bytes(HARMLESS_H5 + hostile_archive(str(marker)))
    words = [str(path) if word == "{}" else word for word in arguments]
    ended = run(*words, "--python", tensorflow())
    assert ended.code == 3
    assert not marker.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == [path.name, "temporary"]


@SLOW
@pytest.mark.parametrize("name", ["h5.keras", "plain.bin", "archive.h5", "saved.keras"])
def test_model_runs_with_any_suffix(name: str, place: Path) -> None:
    """A model runs with any suffix, because the copy has the suffix that its reader needs."""
    ended = run("check", place / name, "--to", "mixed_bfloat16", "--python", tensorflow())
    assert ended.code == 5, ended  # on synthetic inputs


def test_tensorflow_lite_files_with_ops_of_tensorflow_need_trust(tmp_path: Path) -> None:
    """These ops can write files; the file is not parsed."""
    path = tmp_path / "model.tflite"
    with HandOver() as hand_over:
        assert hand_over.take_lite(FIXTURES / "tf2.15/default_float32.h5", "model.h5") is None
        copy = hand_over.take_lite(FIXTURES / "other/model.tflite", "model.tflite")
        assert copy is not None
        assert copy.path.read_bytes() == (FIXTURES / "other/model.tflite").read_bytes()
    path.write_bytes((FIXTURES / "other/model.tflite").read_bytes() + b"\x09FlexWriteFile")
    with HandOver() as hand_over, pytest.raises(ModelFileError, match="ops of TensorFlow"):
        hand_over.take_lite(path, "model.tflite")
    with HandOver(trust=True) as hand_over:
        assert hand_over.take_lite(path, "model.tflite") is not None
