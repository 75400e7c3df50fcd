"""``--scheduler``: what is refused before a cluster is asked for anything."""

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
    "address", ["tcp://127.0.0.1:9", "nonsense://x", "", "\x1b[31m", "a" * 9999]
)
def test_an_address_that_leads_nowhere_is_a_sentence(
    command: str, address: str, tmp_path: Path
) -> None:
    """Exit code 3, without control characters, and nothing is written."""
    model = tmp_path / "model.h5"
    shutil.copy(MIXED_H5, model)
    ended = run(command, str(model), "--scheduler", address)
    assert ended.code == 3
    (line,) = ended.err.splitlines()
    assert line.startswith("error: Cannot connect to the Dask scheduler at ")
    assert len(line) < 500
    assert "\x1b" not in line
    assert [one.name for one in tmp_path.iterdir()] == ["model.h5"]


def test_an_address_is_needed() -> None:
    """A usage error."""
    assert run("inspect", str(MIXED_H5), "--scheduler").code == 2


@pytest.mark.parametrize("option", ["--verify", "--retrace"])
def test_workers_run_no_tensorflow(option: str) -> None:
    """What needs it is refused."""
    ended = run("migrate", str(MIXED_H5), "--scheduler", "tcp://127.0.0.1:9", option)
    assert ended.code == 2
    assert f"--scheduler runs no TensorFlow and cannot be combined with {option}" in ended.err


def test_a_variable_and_a_named_settings_file_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are the user's own."""
    file = tmp_path / "own.toml"
    file.write_text('scheduler = "tcp://127.0.0.1:9"\n', encoding="utf-8")
    assert "127.0.0.1:9" in run("inspect", "--show-settings", "--config", str(file)).out
    monkeypatch.setenv("POLICYTOOL_SCHEDULER", "tcp://127.0.0.1:8")
    assert "127.0.0.1:8" in run("inspect", "--show-settings").out
