"""Where an option's value comes from, and what is wrong with a settings file."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.conftest import run
from tests.helpers.paths import FIXTURES
from tests.helpers.small_models import dense, h5_model, sequential

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, which holds ``a.h5`` and below it ``deep/er``."""
    monkeypatch.chdir(tmp_path)
    h5_model(tmp_path / "a.h5", sequential())
    (tmp_path / "deep" / "er").mkdir(parents=True)
    return tmp_path


def is_json(*arguments: str) -> bool:
    """Return whether ``inspect`` reports JSON."""
    ended = run("inspect", *arguments, "a.h5")
    assert ended.code == 0, ended.err
    return ended.out.startswith("{")


def refused(*arguments: str) -> str:
    """Return what a call with wrong settings says on stderr."""
    ended = run("inspect", *arguments, "a.h5")
    assert (ended.code, ended.out) == (2, "")
    return re.sub(r"\s+", " ", ended.err)


def shown(*arguments: str) -> dict[str, tuple[str, str]]:
    """Return what ``--show-settings`` prints: the value and the source of each setting."""
    ended = run("inspect", *arguments)
    assert ended.code == 0, ended.err
    found = {}
    for line in ended.out.splitlines():
        name, _, rest = line.partition(" = ")
        value, _, source = rest.rpartition("  # ")
        found[name] = (value, source)
    return found


def test_table_is_the_default_format() -> None:
    """Without any setting, the output is a table."""
    assert not is_json()


def test_option_wins_over_variable_over_file_over_default(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each source counts where no earlier one speaks."""
    (project / "policytool.toml").write_text('format = "json"\n', encoding="utf-8")
    assert is_json()
    monkeypatch.setenv("POLICYTOOL_FORMAT", "table")
    assert not is_json()
    assert is_json("--format", "json")


def test_named_file_replaces_the_nearest_file(project: Path) -> None:
    """With ``--config``, an invalid nearest file is not read."""
    (project / "policytool.toml").write_text("[[[", encoding="utf-8")
    (project / "other.toml").write_text('format = "json"\n', encoding="utf-8")
    assert is_json("--config", "other.toml")
    (project / "other.toml").write_text("", encoding="utf-8")
    assert not is_json("--config", "other.toml")


def test_variable_names_the_file(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``POLICYTOOL_CONFIG`` is ``--config``."""
    (project / "other.toml").write_text('format = "json"\n', encoding="utf-8")
    monkeypatch.setenv("POLICYTOOL_CONFIG", "other.toml")
    assert is_json()


def test_named_pyproject_sets_options_in_its_tool_table(project: Path) -> None:
    """The table is ``[tool.policytool]``."""
    (project / "deep" / "pyproject.toml").write_text(
        '[project]\nname = "x"\n[tool.policytool]\nformat = "json"\n', encoding="utf-8"
    )
    assert is_json("--config", "deep/pyproject.toml")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("policytool.toml", 'format = "json"\n'),
        ("pyproject.toml", '[tool.policytool]\nformat = "json"\n'),
    ],
)
def test_nearest_file_is_looked_for_upwards(
    file: str, text: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nearest file counts; a pyproject without the table ``tool.policytool`` is ignored."""
    (project / file).write_text(text, encoding="utf-8")
    monkeypatch.chdir(project / "deep" / "er")
    h5_model(project / "deep" / "er" / "a.h5", sequential())
    (project / "deep" / "er" / "pyproject.toml").write_text(
        '[tool.other]\nformat = "table"\n', encoding="utf-8"
    )
    assert is_json()
    (project / "deep" / "policytool.toml").write_text("", encoding="utf-8")
    assert not is_json()


def test_two_files_in_one_directory_are_an_error(project: Path) -> None:
    """The error names both files."""
    (project / "policytool.toml").write_text("", encoding="utf-8")
    (project / "pyproject.toml").write_text("[tool.policytool]\n", encoding="utf-8")
    words = refused()
    assert "both contain settings. Remove one of them" in words
    assert "policytool.toml" in words
    assert "pyproject.toml" in words


def test_pyproject_without_our_table_beside_a_settings_file_is_ignored(project: Path) -> None:
    """Only ``[tool.policytool]`` makes a pyproject a settings file."""
    (project / "policytool.toml").write_text('format = "json"\n', encoding="utf-8")
    (project / "pyproject.toml").write_text("[tool.ruff]\n", encoding="utf-8")
    assert is_json()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"fromat = 'json'\n", "unknown key 'fromat'. Did you mean 'format'? Known keys: "),
        (b"show-settings = true\n", "unknown key 'show-settings'"),
        (b"config = 'x.toml'\n", "unknown key 'config'"),
        (b"help = true\n", "unknown key 'help'"),
        (b"[inspect]\nformat = 'json'\n", "unknown key 'inspect'"),
        (b"format = ['json', 'csv']\n", "json and csv would both go to stdout"),
        (b"format = 2024-01-01\n", "'format' must be a string, number or boolean"),
        (b"format = 'xml'\n", "'xml' does not have the form FORMAT, such as json, or FORMAT=FILE"),
        (b"format = 'xml=x'\n", "'xml=x' does not have the form FORMAT, such as"),
        (b"format = [1]\n", "'format' must be a string, number or boolean"),
        (b"depth = 'deep'\n", "'deep' is not a valid integer"),
        (b"depth = -1\n", "-1 is not in the range"),
        (b"format = \n", "is not valid TOML"),
        (b"format = '\xff'\n", "is not valid TOML"),
    ],
    ids=lambda value: value.decode("utf-8", "replace").strip() if isinstance(value, bytes) else "",
)
def test_wrong_settings_are_refused_in_a_sentence(text: bytes, words: str, project: Path) -> None:
    """Unknown keys, wrong values and broken TOML end with exit code 2 and say what is wrong."""
    (project / "policytool.toml").write_bytes(text)
    assert words in refused("--config", "policytool.toml")


@pytest.mark.parametrize(
    "text",
    [
        "tool = 5\n",
        "tool = 'x'\n",
        "[tool]\npolicytool = 5\n",
        "[tool]\npolicytool = ['format']\n",
        "[[tool.policytool]]\nformat = 'json'\n",
    ],
)
def test_pyproject_that_is_no_table_is_no_bug_of_ours(text: str, project: Path) -> None:
    """``tool.policytool`` that is not a table is a usage error."""
    (project / "pyproject.toml").write_text(text, encoding="utf-8")
    ended = run("inspect", "a.h5")
    assert ended.code == (2 if "policytool" in text else 0), ended.err


@pytest.mark.parametrize("text", [b"format = \n", b"\xff"])
def test_broken_pyproject_is_refused(text: bytes, project: Path) -> None:
    """A pyproject that is no TOML may hold our settings, so it is not passed over."""
    (project / "pyproject.toml").write_bytes(text)
    assert "pyproject.toml is not valid TOML" in refused()


def test_missing_named_file_is_refused() -> None:
    """A file that ``--config`` names has to be there."""
    assert "gone.toml cannot be read: No such file or directory" in refused("--config", "gone.toml")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("variables = true", "kernel (6, 2)"),
        ('layer = "mlp/dense_a"', "mlp/dense_a"),
        ("depth = 0", "Sequential"),
        ('only = "float32"', "mlp/dense_a"),
    ],
)
def test_every_option_is_a_key_of_a_settings_file(text: str, line: str, project: Path) -> None:
    """The name of a key is that of the option, and the value has the same effect."""
    before = run("inspect", "a.h5").out
    (project / "policytool.toml").write_text(text, encoding="utf-8")
    after = run("inspect", "--config", "policytool.toml", "a.h5").out
    assert line in after
    assert after != before


def test_key_of_another_command_is_no_error(project: Path) -> None:
    """One file serves every command: a key that only ``migrate`` has does not stop ``explain``."""
    (project / "policytool.toml").write_text(
        'keep = ["loss-scale"]\nformat = "table"\n', encoding="utf-8"
    )
    ended = run("explain", "policies")
    assert (ended.code, ended.err) == (0, "")


def test_show_settings_prints_each_value_and_its_source(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each setting is listed once, and no model is read."""
    (project / "policytool.toml").write_text("depth = 2\n", encoding="utf-8")
    monkeypatch.setenv("POLICYTOOL_JOBS", "3")
    result = shown("--format", "json", "--show-settings", "--config", "policytool.toml", "gone.h5")
    assert result["format"] == ('["json"]', "command line")
    assert result["jobs"] == ("3", "$POLICYTOOL_JOBS")
    assert result["depth"][0] == "2"
    assert result["depth"][1].endswith("policytool.toml")
    assert result["releases"] == ('"current"', "default")
    assert result["variables"] == ("false", "default")
    assert "show-settings" not in result


def test_show_settings_includes_options_that_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of options on the command line does not matter."""
    monkeypatch.setenv("POLICYTOOL_FORMAT", "table")
    assert shown("--show-settings", "--format", "json")["format"] == ('["json"]', "command line")


@pytest.mark.parametrize("text", ['format = "csv=rows.csv"', 'format = ["json", "csv=rows.csv"]'])
def test_found_settings_file_writes_no_report(text: str, project: Path) -> None:
    """Such a file may set only the format of stdout."""
    (project / "policytool.toml").write_text(f"{text}\n", encoding="utf-8")
    ended = run("inspect", "a.h5")
    assert ended.code == 2
    assert f"sets {text}, which only a settings file specified with --config may set" in ended.err
    assert not (project / "rows.csv").exists()


def test_show_settings_is_toml(project: Path) -> None:
    """A file with the printed text has the same settings."""
    settings = run("inspect", "--show-settings", "--format", "json", "--depth", "0").out
    kept = "\n".join(line for line in settings.splitlines() if ' = ""' not in line)
    (project / "policytool.toml").write_text(kept, encoding="utf-8")
    assert is_json("--config", "policytool.toml")
    assert shown("--show-settings", "--config", "policytool.toml")["depth"][0] == "0"


def test_forbidden_policy_fails_unless_the_baseline_has_it(project: Path) -> None:
    """The settings name the baseline before it exists, so that both are committed together."""
    settings = 'forbid = ["float16"]\nbaseline = "known.json"\n'
    (project / "policytool.toml").write_text(settings, encoding="utf-8")
    (project / "a.h5").unlink()
    h5_model(project / "model.h5", sequential(dense("old", "float16"), dense("other")))
    ended = run("audit", "--fail-on", "error")
    assert ended.code == 3
    missing = "policytool.toml: the key 'baseline' names known.json, which does not exist. Create"
    assert f"{missing} it with --write-baseline known.json" in " ".join(ended.err.split())
    assert run("audit", "--fail-on", "error", "--write-baseline", "known.json").code == 0
    assert run("audit", "--fail-on", "error").code == 0
    h5_model(project / "model.h5", sequential(dense("old", "float16"), dense("new", "float16")))
    ended = run("audit", "--fail-on", "error", "--ignore", "PT1,PT2,PT3,PT5")
    assert ended.code == 1
    assert "PT413 error  mlp/new has the forbidden policy float16" in ended.out


def test_forbidden_policies_apply_to_graphs_without_policies(project: Path) -> None:
    """An export for serving has no policies, but its signatures have dtypes."""
    model = str(FIXTURES / "keras3.15/global_mixed_float16.export")
    settings = project / "policytool.toml"
    command = ("audit", model, "--select", "PT413", "--format", "json")
    for policies, expected in (
        ('"float16"', ["signature serve", "signature serving_default"]),
        ('"mixed_float16"', ["signature serve", "signature serving_default"]),
        ('"bfloat16", "mixed_bfloat16", "int8_from_mixed_float16"', []),
    ):
        settings.write_text(f"forbid = [{policies}]", encoding="utf-8")
        findings = json.loads(run(*command).out)["models"][0]["findings"]
        assert [
            entry["message"].partition(" computes 1 MatMul in float16")[0] for entry in findings
        ] == expected


def test_unknown_forbidden_policy_is_an_error(project: Path) -> None:
    (project / "policytool.toml").write_text('forbid = ["fp16"]', encoding="utf-8")
    ended = run("audit", "a.h5")
    assert ended.code == 2
    assert "the key 'forbid' must list policies: unknown policy 'fp16'" in ended.err
