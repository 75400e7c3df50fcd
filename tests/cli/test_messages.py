"""Names and values in messages never move the cursor or act as commands of a CI runner."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Final

import pytest

from policytool.cli.messages import steps
from tests.conftest import FIXED_SCALE_H5, Ended, run
from tests.helpers.cases import for_each

EVIL: Final = "a\n::error::x\r\n::set-output name=y::z\x1b[2J\x9b\u202e##[error]\x07"
TOML: Final = json.dumps(EVIL)


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, which holds a model, ``a.h5``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("POLICYTOOL_JOBS")
    shutil.copy(FIXED_SCALE_H5, tmp_path / "a.h5")
    return tmp_path


def is_harmless(text: str) -> bool:
    """Return whether a runner and a terminal only show a text."""
    return "##[" not in text and all(
        line.isprintable() and not line.lstrip().startswith("::") for line in text.split("\n")
    )


def check(ended: Ended, code: int) -> None:
    """Check the exit code of a call, and that its message has the name without its effects."""
    assert ended.code == code, ended.err
    assert "error::x" in ended.err
    assert is_harmless(ended.err), ended.err
    assert is_harmless(ended.out), ended.out


@for_each(
    "text",
    [
        *(
            f"{key} = {TOML}"
            for key in (
                "select",
                "ignore",
                "fail-on",
                "target",
                "device",
                "format",
                "jobs",
            )
        ),
        *(
            f"{key} = [{TOML}]"
            for key in ("select", "ignore", "target", "per-file-ignores", "suppress", "format")
        ),
        f"{TOML} = 1",
        f"per-file-ignores = {{ {TOML} = [{TOML}] }}",
        *(
            f"[[suppress]]\nrules = [{TOML}]\nreason = 'r'\n",
            f"[[suppress]]\nrules = ['ALL']\nreason = 'r'\nlayer = {json.dumps('(' + EVIL)}\n",
        ),
        *(
            f"[[suppress]]\n{TOML} = 1\n",
            f"[[suppress]]\nrules = ['ALL']\nreason = 'r'\npath = [{TOML}]\n",
        ),
        f"baseline = [{TOML}]",
        f"a = 1\n[{TOML}]\n[{TOML}]\n",
    ],
)
def test_messages_about_settings_are_harmless(text: str) -> None:
    """Keys and values are also harmless in messages from Click."""
    Path("policytool.toml").write_text(text, encoding="utf-8")
    ended = run("audit", "a.h5")
    assert ended.code == 2
    assert is_harmless(ended.err), ended.err
    assert ended.out == ""


@pytest.mark.parametrize("key", ["to", "keep", "include", "target"])
def test_messages_about_settings_of_migrate_are_harmless(key: str) -> None:
    """Keys and values contain control characters."""
    Path("policytool.toml").write_text(f"{key} = {TOML}\n", encoding="utf-8")
    check(run("migrate", "a.h5"), 2)


def test_settings_that_are_shown() -> None:
    """Settings are printed on stdout, a line for each."""
    Path("policytool.toml").write_text(
        f"select = [{TOML}]\nset = [{TOML}]\n[[suppress]]\nrules = ['ALL']\nreason = {TOML}\n",
        encoding="utf-8",
    )
    for command in ("audit", "migrate"):
        ended = run(command, "--show-settings")
        assert ended.code == 0, ended.err
        assert "error::x" in ended.out
        assert is_harmless(ended.out), ended.out


def test_messages_about_expired_suppressions_are_harmless() -> None:
    """The message contains the reason of the suppression."""
    Path("policytool.toml").write_text(
        f"[[suppress]]\nrules = ['ALL']\nreason = {TOML}\nexpires = 2020-01-01\n", encoding="utf-8"
    )
    ended = run("audit", "a.h5")
    assert "expired" in ended.err
    assert is_harmless(ended.err), ended.err


@pytest.mark.parametrize(
    "option",
    [
        "--baseline",
        "--plan",
        "--format",
        "--config",
        "--write-baseline",
        "-o",
        "--limit",
        "--layer",
        "--only",
        "--target",
    ],
)
def test_options(option: str) -> None:
    """Paths and words on the command line, which a workflow may take from a pull request."""
    command = {
        "--plan": "migrate",
        "-o": "migrate",
        "--layer": "inspect",
        "--only": "inspect",
        "--format": "inspect",
    }.get(option, "audit")
    values = {
        "--format": f"json=gone/{EVIL}/x",
        "--write-baseline": f"gone/{EVIL}",
        "-o": f"{EVIL}.yaml",
        "--layer": f"({EVIL}",
    }
    ended = run(command, option, values.get(option, EVIL), "a.h5")
    assert ended.code in {2, 3}, ended
    assert is_harmless(ended.err), ended.err
    assert is_harmless(ended.out), ended.out


@pytest.mark.parametrize(
    "arguments",
    [
        (EVIL,),
        ("audit", f"--{EVIL}"),
        ("inspect", EVIL),
        ("rules", EVIL),
        ("policies", EVIL),
        ("diff", EVIL, "a.h5"),
    ],
)
def test_arguments(arguments: tuple[str, ...]) -> None:
    """Commands, options and paths that do not exist."""
    ended = run(*arguments)
    assert ended.code in {2, 3}
    assert is_harmless(ended.err), ended.err


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("x", 2),
        ("format = ['json=x.json']", 2),
        ("format = ['yaml']", 2),
        ("baseline = 'gone.json'", 3),
        ("per-file-ignores = 5", 2),
        ("select = ['PT9']", 2),
    ],
)
def test_directories(text: str, code: int, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory of a settings file, which an archive named."""
    directory = project / EVIL.replace("/", "")
    directory.mkdir()
    monkeypatch.chdir(directory)
    shutil.copy(FIXED_SCALE_H5, "a.h5")
    Path("policytool.toml").write_text(text, encoding="utf-8")
    ended = run("audit", "a.h5")
    assert ended.code == code, ended.err
    assert is_harmless(ended.err), ended.err
    Path("policytool.toml").write_text("", encoding="utf-8")
    Path("pyproject.toml").write_text("[tool.policytool]\n", encoding="utf-8")
    if code == 2:
        check(run("audit", "a.h5"), 2)


def test_progress_messages_of_the_child_process_are_harmless(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The child process, which runs TensorFlow, sends the text of its steps."""
    steps(verbose=True)(EVIL)
    assert is_harmless(capsys.readouterr().err)


def test_messages_about_paths_are_harmless(project: Path) -> None:
    """Failures name the file on one line."""
    directory = project / EVIL
    directory.mkdir()
    (directory / "b.h5").write_text("no model", encoding="utf-8")
    check(run("inspect", str(directory / "b.h5")), 3)
    check(run("migrate", str(directory / "b.h5"), "--to", "float16"), 3)
    check(run("diff", "a.h5", str(directory / "b.h5")), 3)
