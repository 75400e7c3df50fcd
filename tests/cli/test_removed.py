"""Commands and options that were removed name their successors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from policytool.cli.main import COMMANDS
from policytool.cli.removed import REMOVED_COMMANDS, REMOVED_OPTIONS
from tests.conftest import run
from tests.helpers.public_api import commands

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", REMOVED_COMMANDS)
def test_a_removed_command_names_its_successor(name: str) -> None:
    """The error is one sentence, and the successor works."""
    assert name not in COMMANDS
    ended = run(name)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"error: The command {name} was removed. Use `policytool explain")
    assert ended.err.count("\n") == 1
    assert run("explain", name).code == 0


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (command, option)
        for names, options in REMOVED_OPTIONS.items()
        for command in names
        for option in options
    ],
)
def test_a_removed_option_names_its_successor(command: str, option: str) -> None:
    """Stderr contains one line, and no command has the option."""
    parameters = dict(commands())[command].params
    assert all(option not in parameter.opts for parameter in parameters)
    ended = run(command, option)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"error: The option {option} was removed. ")
    assert ended.err.count("\n") == 1


def test_a_removed_settings_key_names_its_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error message about a removed key describes the replacement."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policytool.toml").write_text("null = true\n", encoding="utf-8")
    ended = run("inspect", "--show-settings")
    assert ended.code == 2
    assert "the key null was removed. Lists on stdin may be separated by NUL" in ended.err
