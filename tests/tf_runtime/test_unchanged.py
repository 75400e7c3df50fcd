"""
TensorFlow's process loads the files that were read and checked, or none: their identities go with
the job, and are compared before anything is loaded.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any, Final, NoReturn

import pytest

from policytool.commands import check as checks
from policytool.commands.check_options import CheckOptions
from policytool.formats import discovery
from policytool.migration.planning.options import Options
from policytool.numerics.tensorflow_run import TensorFlowTools
from policytool.numerics.workers import Interpreter, Worker
from policytool.support.errors import WorkerError
from policytool.support.files import opening
from policytool.tf_runtime import source_files
from policytool.tf_runtime.library import Refused
from tests.conftest import MIXED_H5, MIXED_JSON, MIXED_SAVEDMODEL, UNPACKED, run, tensorflow
from tests.helpers.marks import SLOW

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

WEIGHTS: Final = "model.weights.h5"


class Recorder(Worker):
    """Keeps the job, and does not do it."""

    def __init__(self) -> None:
        super().__init__(Interpreter(python="none"))
        self.job: Mapping[str, Any] = {}

    def run(self, job: Mapping[str, Any], *, side: str = "") -> NoReturn:  # noqa: ARG002  # as the interface has it
        """Keep the job."""
        self.job = job
        raise WorkerError("recorded", "not done")


def job_of(model: Path, weights: Path | None = None) -> Mapping[str, Any]:
    """Return the job that a check of a model gives the process."""
    recorder = Recorder()
    wanted = CheckOptions(candidate=Options(to="mixed_bfloat16"), weights=weights)
    with pytest.raises(WorkerError, match="not done"):
        checks.check(discovery.one(str(model)), None, wanted, TensorFlowTools(worker=recorder))
    return recorder.job


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (MIXED_H5, [""]),
        (UNPACKED, ["config.json", "metadata.json", WEIGHTS]),
        (MIXED_SAVEDMODEL, ["keras_metadata.pb", "saved_model.pb"]),
    ],
    ids=["HDF5", "unpacked", "SavedModel"],
)
def test_a_job_names_the_files_that_were_read(model: Path, names: list[str]) -> None:
    """Of a directory those that say what runs."""
    assert job_of(model)["files"] == [
        list(opening.identity(model / name if name else model)) for name in names
    ]


def test_a_job_names_the_weights_that_were_read(tmp_path: Path) -> None:
    """They are checked as well."""
    weights = tmp_path / WEIGHTS
    shutil.copy(UNPACKED / WEIGHTS, weights)
    assert job_of(MIXED_JSON, weights)["files"] == [
        list(opening.identity(one)) for one in (MIXED_JSON, weights)
    ]


def replace_file(path: Path) -> None:
    """Put another file of the same content, size and time in a file's place."""
    times = path.stat()
    other = path.with_suffix(".other")
    shutil.copy(path, other)
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    other.replace(path)


def touch(path: Path) -> None:
    """Change the time of modification."""
    os.utime(path, ns=(0, 0))


def append(path: Path) -> None:
    """Make a file longer, and keep its time."""
    times = path.stat()
    with path.open("ab") as stream:
        stream.write(b"\0")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.mark.parametrize("change", [replace_file, touch, append, os.unlink])
def test_each_change_of_a_file_is_noticed(change: Callable[[Path], None], tmp_path: Path) -> None:
    """Each refuses the job, in one sentence."""
    path = tmp_path / "model.h5"
    shutil.copy(MIXED_H5, path)
    job = {"files": [list(opening.identity(path))]}
    source_files.check_unchanged(job)
    change(path)
    with pytest.raises(
        Refused,
        match=r"model\.h5 was (removed|replaced or changed) after it was checked.*; run the "
        r"command "
        r"again",
    ) as told:
        source_files.check_unchanged(job)
    assert told.value.code == "source-changed"


@SLOW
@pytest.mark.parametrize(
    ("source", "arguments"),
    [
        (MIXED_H5, ["check", "--to", "mixed_bfloat16"]),
        (MIXED_H5, ["migrate", "--to", "mixed_bfloat16", "--verify"]),
        (MIXED_H5, ["migrate", "--target", "keras3", "--verify"]),
        (MIXED_SAVEDMODEL, ["migrate", "--to", "mixed_bfloat16", "--retrace"]),
    ],
    ids=["check", "verify", "verify a conversion", "retrace"],
)
def test_a_model_that_changes_before_it_is_loaded_is_not_loaded(
    source: Path, arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever job it is for; nothing is written."""
    model = tmp_path / source.name
    if source.is_dir():
        shutil.copytree(source, model)
    else:
        shutil.copy(source, model)
    ask = Worker.run

    def changed(self: Worker, job: Mapping[str, Any], *, side: str = "") -> Mapping[str, Any]:
        touch(model / "saved_model.pb" if model.is_dir() else model)
        return ask(self, job, side=side)

    monkeypatch.setattr(Worker, "run", changed)
    ended = run(*arguments, model, "--python", tensorflow())
    assert ended.code == 3
    assert (
        "was replaced or changed after it was checked. Run the command again. [source-changed]"
        in ended.err
    )
    assert [file.name for file in tmp_path.iterdir()] == [model.name]
