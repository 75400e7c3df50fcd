"""
A disk that fails to read: what was done stays done and is told as it is.

``make crash`` found each of these, by faults in calls that read.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from policytool.formats import Probe
from policytool.formats.document import Document
from policytool.formats.hdf5 import library as _hdf5
from policytool.formats.hdf5 import storage
from policytool.formats.keras_archive import read as keras_values
from policytool.formats.writing import Companions
from policytool.support.errors import ModelFileError
from policytool.support.files import atomic, opening
from policytool.support.files.atomic import _placing
from tests.conftest import MIXED_H5, run

if TYPE_CHECKING:
    from collections.abc import Callable


def fails(*_: Any, **__: Any) -> NoReturn:
    """Fail as a disk does."""
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_hidden_file_is_removed_if_its_status_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = _placing.hidden_path(tmp_path / "x")
    name.write_bytes(b"draft")
    with monkeypatch.context() as failing:
        failing.setattr(Path, "stat", fails)
        failing.setattr(Path, "is_dir", fails)
        _placing.remove(name)
    assert not list(tmp_path.iterdir())


def test_hidden_directory_with_an_unreadable_status_causes_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replacement exists, and the next run removes the rest."""
    name = _placing.hidden_path(tmp_path / "x")
    name.mkdir()
    with monkeypatch.context() as failing:
        failing.setattr(os, "fstat", fails)
        _placing.remove(name)
    _placing.remove(name)
    assert not list(tmp_path.iterdir())


def test_published_output_is_reported_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status of a published output is not read again, so a failing disk has no effect."""
    published: list[bool] = []
    publish: Callable[..., None] = atomic.Draft.publish
    look = opening.find_status

    def recorded(self: atomic.Draft, target: Path, **how: Any) -> None:
        publish(self, target, **how)
        published.append(True)

    monkeypatch.setattr(atomic.Draft, "publish", recorded)
    monkeypatch.setattr(opening, "find_status", lambda path: fails() if published else look(path))
    output = tmp_path / "other.h5"
    ended = run("migrate", MIXED_H5, "--to", "mixed_bfloat16", "-o", output)
    assert (ended.code, output.exists(), published) == (0, True, [True])


def test_companions_stay_if_the_status_of_their_model_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model may need these files, and the first error of the run remains."""
    (tmp_path / "shard").write_bytes(b"shard")
    (tmp_path / "there").mkdir()
    model, lstat = tmp_path / "there" / "model.json", os.lstat
    companions = Companions(tmp_path, tmp_path / "there", model)
    with companions:
        companions.copy(["shard"])
        companions.publish()
        monkeypatch.setattr(os, "lstat", lambda path: fails() if path == model else lstat(path))
    assert (tmp_path / "there" / "shard").read_bytes() == b"shard"


def test_hdf5_that_cannot_be_closed_was_read_all_the_same() -> None:
    """A file that h5py fails to close was read completely."""

    class File:
        def close(self) -> NoReturn:
            raise RuntimeError(
                "Can't decrement id ref count (unable to close file, errno = 5, error message = "
                "'Input/output error')"
            )

    _hdf5.close(File())


def test_error_of_a_callback_is_reported_despite_nested_system_errors() -> None:
    """Python adds a SystemError for each function on the way."""
    first = OSError(errno.EIO, os.strerror(errno.EIO))
    inner, outer = (
        SystemError("fstat returned a result with an exception set"),
        SystemError("seek returned a result with an exception set"),
    )
    inner.__cause__, outer.__cause__ = first, inner
    with (
        pytest.raises(OSError, match="Input/output error") as told,
        storage._failures(storage.Storage(0)),  # noqa: SLF001  # its decision
    ):
        raise outer
    assert told.value is first


def test_archive_that_ends_during_the_read_is_reported_as_damaged(tmp_path: Path) -> None:
    """Python does not distinguish a failing disk from an invalid archive."""
    file = tmp_path / "model.keras"
    file.write_bytes(b"PK\x03\x04 and nothing more")
    with (
        pytest.raises(ModelFileError, match="is a truncated or damaged zip archive") as told,
        contextlib.ExitStack() as stack,
    ):
        keras_values.open_values(
            Probe(file, "model.keras"), Document(path="model.keras", format="keras"), stack
        )
    assert told.value.code == "truncated"
