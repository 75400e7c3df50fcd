"""
``--python`` of commands: one interpreter, or for migrate one for each side of a conversion; and the
backend of these interpreters.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from msgspec.structs import replace

from policytool.cli import check_command, migrate_command, tune_command
from policytool.numerics.workers import Worker
from tests.conftest import MIXED_H5, MIXED_KERAS, run
from tests.helpers.marks import THOROUGH

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from policytool.numerics.workers import Interpreter


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[str, ...]]:
    """Return a function that gives the interpreters of source and target."""

    def interpreters(*arguments: str | Path) -> tuple[str, ...]:
        actual: list[str] = []

        def noted(interpreter: Interpreter, *reports: Callable[[str], None]) -> Worker:
            actual.append(interpreter.python)
            return Worker(interpreter, *reports)

        monkeypatch.setattr(migrate_command, "Worker", noted)
        ended = run("migrate", MIXED_H5, "--preview", *arguments)
        assert ended.code == 1, ended.err
        return tuple(actual)

    return interpreters


def test_interpreter_without_a_side_runs_both_models(
    chosen: Callable[..., tuple[str, ...]],
) -> None:
    """The default is the interpreter of policytool."""
    assert chosen() == (sys.executable, sys.executable)
    assert chosen("--python", "old") == ("old", "old")
    assert chosen("--python", "source=old") == ("old", sys.executable)
    assert chosen("--python", "target=new") == (sys.executable, "new")
    assert chosen("--python", "target=new", "--python", "old") == ("old", "new")
    assert chosen("--python", "source=a b/python", "--python", "target=x=y") == (
        "a b/python",
        "x=y",
    )
    assert chosen("--python", "dir=x/python") == ("dir=x/python", "dir=x/python")


def test_variable_lists_interpreters_like_a_search_path(
    chosen: Callable[..., tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An option on the command line has priority."""
    monkeypatch.setenv("POLICYTOOL_PYTHON", "/my env/bin/python")
    assert chosen() == ("/my env/bin/python", "/my env/bin/python")
    monkeypatch.setenv("POLICYTOOL_PYTHON", os.pathsep.join(["source=/old", "target=/new"]))
    assert chosen() == ("/old", "/new")
    assert chosen("--python", "other") == ("other", "other")


def test_settings_list_the_interpreters(
    chosen: Callable[..., tuple[str, ...]], tmp_path: Path
) -> None:
    """One interpreter can also be a text. ``check``, which has one side, accepts the list."""
    file = tmp_path / "mine.toml"
    file.write_text('python = ["source=old", "target=new"]\n', encoding="utf-8")
    assert chosen("--config", file) == ("old", "new")
    assert "python = " in run("check", "--config", file, "--show-settings").out
    file.write_text('python = "both"\n', encoding="utf-8")
    assert chosen("--config", file) == ("both", "both")


@pytest.mark.parametrize("arguments", [("a", "b"), ("source=a", "source=b"), ("source=",)])
def test_one_for_each_side_at_most(arguments: tuple[str, ...]) -> None:
    """Twice the same side, or a side without an interpreter, is wrong usage."""
    ended = run(
        "migrate",
        MIXED_H5,
        "--preview",
        *(part for item in arguments for part in ("--python", item)),
    )
    assert ended.code == 2
    assert "interpreter" in ended.err


def test_check_has_one_interpreter() -> None:
    """``check`` runs both models in one process."""
    ended = run("check", MIXED_H5, "--to", "float32", "--python", "source=nowhere")
    assert "source=nowhere cannot be run" in ended.err


@THOROUGH
@pytest.mark.parametrize("packages", [("numpy", "numpy.libs"), ()], ids=["numpy", "none"])
@pytest.mark.parametrize(
    "arguments",
    [("check",), ("tune", "--preview"), ("migrate", "--verify", "-o", "out.keras")],
    ids=lambda arguments: arguments[0],
)
def test_without_a_backend_one_sentence_names_the_extras(
    arguments: tuple[str, ...],
    packages: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The interpreter has at most NumPy."""
    monkeypatch.chdir(tmp_path)
    site, python = tmp_path / "site", tmp_path / "python"
    site.mkdir()
    for name in packages:
        (site / name).symlink_to(Path(np.__file__).parent.with_name(name))
    text = f'#!/bin/sh\nPYTHONPATH="{site}" exec "{sys.executable}" -S "$@"\n'
    python.write_text(text, encoding="utf-8")
    python.chmod(0o755)
    command, *options = arguments
    ended = run(command, MIXED_KERAS, "--to", "mixed_bfloat16", *options, "--python", "./python")
    assert (ended.code, ended.err.count("\n")) == (3, 1)
    assert re.findall(r"policytool\[(\w+)\]", ended.err) == ["check", "jax", "torch"]
    assert not Path("out.keras").exists()


@pytest.mark.parametrize("module", [check_command, tune_command, migrate_command])
def test_commands_run_on_the_chosen_backend(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both interpreters of ``migrate`` get the backend, as the only one of ``check``."""
    backends: list[str] = []

    def noted(interpreter: Interpreter, *reports: Callable[[str], None]) -> Worker:
        backends.append(interpreter.backend)
        return Worker(replace(interpreter, python="nowhere"), *reports)

    monkeypatch.setattr(module, "Worker", noted)
    command = module.__name__.rpartition(".")[2].removesuffix("_command")
    run(
        command,
        MIXED_H5,
        "--to",
        "mixed_bfloat16",
        *(["--preview"] if command != "check" else []),
        "--backend=torch",
    )
    assert set(backends) == {"torch"}
