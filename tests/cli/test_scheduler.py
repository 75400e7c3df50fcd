"""``--jobs ADDRESS``: what is refused before a cluster is asked for anything."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.conftest import MIXED_H5, run
from tests.helpers.marks import THOROUGH

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = THOROUGH

COMMANDS = ("inspect", "audit", "migrate")


@pytest.mark.usefixtures("impatient_dask")
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "address", ["tcp://127.0.0.1:9", "nonsense://x", "\x1b[31m:1", f"tcp://{'a' * 9999}"]
)
def test_an_address_that_leads_nowhere_is_a_sentence(
    command: str, address: str, tmp_path: Path
) -> None:
    """Exit code 3, without control characters, and nothing is written."""
    model = tmp_path / "model.h5"
    shutil.copy(MIXED_H5, model)
    ended = run(command, str(model), "--jobs", address)
    assert ended.code == 3
    (line,) = ended.err.splitlines()
    assert line.startswith("error: Cannot connect to the Dask scheduler at ")
    assert len(line) < 500
    assert "\x1b" not in line
    assert [path.name for path in tmp_path.iterdir()] == ["model.h5"]


@pytest.mark.parametrize("value", ["", "0", "-1", "many", "1.5", "a" * 9999])
def test_neither_a_number_nor_an_address_is_a_usage_error(value: str) -> None:
    """The message names both."""
    ended = run("inspect", str(MIXED_H5), "--jobs", value)
    assert ended.code == 2
    assert "is neither a number of processes nor the address of a Dask scheduler" in ended.err
    assert len(ended.err) < 500


@pytest.mark.parametrize("option", ["--verify", "--retrace"])
def test_workers_reject_options_that_need_tensorflow(option: str) -> None:
    ended = run("migrate", str(MIXED_H5), "--jobs", "tcp://127.0.0.1:9", option)
    assert ended.code == 2
    assert f"(--jobs ADDRESS) runs no TensorFlow and cannot be combined with {option}" in ended.err


def test_a_found_settings_file_may_not_name_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger's file would send paths to a stranger's machine."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(MIXED_H5, tmp_path / "model.h5")
    (tmp_path / "policytool.toml").write_text('jobs = "tcp://127.0.0.1:9"\n', encoding="utf-8")
    ended = run("inspect", "model.h5")
    assert ended.code == 2
    assert (
        'sets jobs = "tcp://127.0.0.1:9", which only a settings file specified with --config'
        in ended.err.replace("\n", " ")
    )


def test_variable_and_named_settings_file_may_set_a_scheduler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user controls both."""
    file = tmp_path / "own.toml"
    file.write_text('jobs = "tcp://127.0.0.1:9"\n', encoding="utf-8")
    monkeypatch.delenv("POLICYTOOL_JOBS", raising=False)
    assert "127.0.0.1:9" in run("inspect", "--show-settings", "--config", str(file)).out
    monkeypatch.setenv("POLICYTOOL_JOBS", "tcp://127.0.0.1:8")
    assert "127.0.0.1:8" in run("inspect", "--show-settings").out
