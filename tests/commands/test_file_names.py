"""Commands for models under names by which Keras does not find their format."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from policytool.commands.explain import explain
from tests.conftest import run
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from pathlib import Path

_ARCHIVE = "keras3.0/default_float32.keras"
_HDF5 = "tf2.15/default_float32.h5"


def _copy(directory: Path, source: str, name: str) -> Path:
    shutil.copyfile(FIXTURES / source, directory / name)
    return directory / name


def _report(*arguments: object) -> Any:
    return json.loads(run(*map(str, arguments), "--format", "json").out)


@pytest.mark.parametrize(
    ("source", "name", "expected"),
    [(_ARCHIVE, "m.bin", "m.keras"), (_HDF5, "m.hdf5_backup", "m.h5")],
)
def test_all_commands_advise_the_same_name(
    tmp_path: Path, source: str, name: str, expected: str
) -> None:
    """No report suggests a conversion for a file that needs only another name."""
    path = _copy(tmp_path, source, name)
    command = f"mv -i {path} {path.with_name(expected)}"
    (inspected,) = _report("inspect", path)["models"]
    reasons = {release["release"]: release["reason"] for release in inspected["releases"]}
    assert reasons["keras3.15"].endswith(command)
    audited = _report("audit", path, "--target", "keras3")
    assert command in json.dumps(audited)
    assert "policytool migrate" not in run("audit", str(path), "--target", "keras3").out
    planned = run("migrate", str(path), "--target", "keras3", "--preview").out
    assert "only another name" in planned
    message = "ValueError: File not found: filepath=m.bin. Please ensure the file is an accessible "
    explained = explain(f"{message}`.keras` zip file", str(path))
    assert command in [step.command for step in explained.matches[0].entry.fix]


@pytest.mark.parametrize(
    ("source", "name", "expected"),
    [
        (_ARCHIVE, "m.bin", "m.mixed_float16.keras"),
        (_HDF5, "m.bin", "m.mixed_float16.h5"),
        (_HDF5, "m.hdf5", "m.mixed_float16.hdf5"),
    ],
)
def test_edited_copy_has_a_name_that_keras_loads(
    tmp_path: Path, source: str, name: str, expected: str
) -> None:
    """The verdicts on the result are those under its name, and not under that of the source."""
    path = _copy(tmp_path, source, name)
    (migrated,) = _report("migrate", path, "--to", "mixed_float16")["plans"]
    assert (tmp_path / expected).exists()
    after = {one["release"]: one["verdict"] for one in migrated["releases"]["after"]}
    assert after["keras3.15"] == "loads"
    (migrated,) = _report("migrate", path, "--to", "float64", "-o", tmp_path / "other.x")["plans"]
    after = {one["release"]: one["verdict"] for one in migrated["releases"]["after"]}
    assert after["keras3.15"] == "incompatible"
