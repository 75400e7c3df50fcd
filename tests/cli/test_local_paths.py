"""A file that is not a model is on this machine, and a URL in its place shows no credentials."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click
import pytest

from policytool.cli.declared_options import LocalPath
from tests.conftest import MIXED_H5, run
from tests.helpers.public_api import commands

URL: Final = "s3://name:hidden-secret@box/file"
SAID: Final = "s3://box/file is a URL. Specify a local path."
MODEL: Final = str(MIXED_H5)
TO: Final = ("--to", "mixed_float16")


@pytest.mark.parametrize(
    ("arguments", "begins"),
    [
        (("audit", MODEL, "--baseline", URL), "--baseline"),
        (("audit", MODEL, "--write-baseline", URL), "--write-baseline"),
        (("audit", MODEL, "--format", f"json={URL}"), "--format json="),
        (("audit", MODEL, "--cache", URL), "--cache"),
        (("audit", MODEL, "--config", URL), "--config"),
        (("merge", URL), "Report"),
        (("migrate", "--plan", URL), "--plan"),
        (("check", MODEL, *TO, "--inputs", URL), "--inputs"),
        (("check", MODEL, *TO, "--record", URL), "--record"),
        (("check", MODEL, *TO, "--against", URL), "--against"),
        (("check", MODEL, *TO, "--weights", URL), "--weights"),
        (("check", MODEL, *TO, "--labels", URL), "--labels"),
        (("tune", MODEL, *TO, "-o", URL), "-o"),
        (("tune", MODEL, *TO, "--resume", URL), "--resume"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_url_for_a_local_path_is_rejected(arguments: tuple[str, ...], begins: str) -> None:
    """The error comes before anything is read or written."""
    ended = run(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"error: {begins}")
    assert ended.err.rstrip("\n").endswith(SAID)
    assert "hidden" not in ended.err


@pytest.mark.parametrize("key", ["baseline", "write-baseline"])
def test_url_for_a_local_path_in_a_settings_file_is_rejected(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other values of these keys are relative to the file."""
    monkeypatch.chdir(tmp_path)
    Path("settings.toml").write_text(f'{key} = "{URL}"\n', encoding="utf-8")
    ended = run("audit", MODEL, "--config", "settings.toml")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.rstrip("\n").endswith(SAID)
    assert "hidden" not in ended.err


def test_every_path_of_an_option_is_local() -> None:
    """A new option is no exception, unless it is a model."""
    others = set()
    for name, command in commands():
        others |= {
            (name, parameter.name)
            for parameter in command.params
            if isinstance(parameter, click.Option)
            and isinstance(parameter.type, click.Path)
            and not isinstance(parameter.type, LocalPath)
        }
    assert others == {("migrate", "output")}
