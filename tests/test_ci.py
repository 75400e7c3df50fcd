"""
Where the tool is used: the hook for pre-commit, the action for GitHub, and the page of recipes.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import click
import pytest
import yaml

from policytool.cli.main import cli
from tests.conftest import MIXED_KERAS, MIXED_SAVEDMODEL, run, run_process
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FIXED_H5: Final = ROOT / "fixtures/tf2.3/exp_mf16_fixed128.h5"
HOOKS: Final[Any] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
ACTION: Final[Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS: Final = {step.get("name", step.get("uses")): step for step in ACTION["runs"]["steps"]}


def options(command: str) -> set[str]:
    """Return every spelling of the options of a command."""
    found = cli.get_command(click.Context(cli), command)
    assert found is not None
    return {
        spelling
        for parameter in found.params
        for spelling in (*parameter.opts, *parameter.secondary_opts)
    }


def unknown(text: str) -> set[str]:
    """Return the options in a text of ``policytool`` commands that those do not have."""
    found = re.findall(
        r"policytool (inspect|audit|migrate|diff|policies|rules|completion)\b((?:[^\n|`]|\\\n)*)",
        text,
    )
    return {
        f"{name} {word}"
        for name, rest in found
        for word in re.findall(r"(?<![\w-])--[a-z][a-z-]*", rest)
        if word not in {*options(name), "--help"}
    }


def test_the_hook_is_what_pre_commit_takes() -> None:
    """
    Each hook has the keys that are required and no unknown one; its command is one of ours, with
    options that it has.
    """
    for hook in HOOKS:
        assert {"id", "name", "entry", "language"} <= set(hook)
        assert set(hook) <= {
            "id",
            "name",
            "description",
            "entry",
            "language",
            "files",
            "args",
            "require_serial",
            "types",
            "types_or",
            "stages",
        }
        assert hook["language"] == "python"
        assert shlex.split(hook["entry"])[:2] == ["policytool", "audit"]
        assert not unknown(f"{hook['entry']} {' '.join(hook.get('args', []))}")


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        *(
            (path, True)
            for path in (
                "model.h5",
                "a/b c.hdf5",
                "x.keras",
                "saved_model.pb",
                "export/saved_model.pb",
                "export/keras_metadata.pb",
            )
        ),
        *(
            (path, False)
            for path in (
                "model.h5.txt",
                "h5",
                "my_saved_model.pb",
                "frozen.pb",
                "variables/variables.index",
                "x.keras.bak",
                "keras.py",
            )
        ),
    ],
)
def test_the_hook_runs_on_model_files(path: str, meant: bool) -> None:  # a column  # noqa: FBT001
    """By their names, as pre-commit matches them."""
    assert bool(re.search(HOOKS[0]["files"], path)) == meant


@THOROUGH
def test_the_hook_passes_other_data_and_fails_for_damaged_models(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other data under a model's name is skipped, whatever else the commit changes."""
    monkeypatch.chdir(models)
    (models / "data.h5").write_bytes(b"\x89HDF5 is not what this is")
    damaged = models / "damaged.keras"
    damaged.write_bytes(MIXED_KERAS.read_bytes()[:100])
    words = shlex.split(HOOKS[0]["entry"])[1:]
    for files, code in (
        (["data.h5"], 0),
        (["data.h5", "models/model.keras"], 0),
        (["data.h5", "models/model.h5"], 1),
        (["data.h5", "models/exported/saved_model.pb", "damaged.keras"], 3),
    ):
        ended = run(*words, *files)
        assert ended.code == code, ended.err
        assert "note: Skipped 1 file that is not a model." in ended.err


def test_inputs_of_the_action_are_declared_and_used() -> None:
    """With a description and a default; and no other is asked for."""
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"inputs\.([a-z-]+)", text)) == set(ACTION["inputs"])
    assert all(
        one["description"] and isinstance(one["default"], str) for one in ACTION["inputs"].values()
    )
    ids = {step["id"] for step in ACTION["runs"]["steps"] if "id" in step}
    assert set(re.findall(r"steps\.([a-z-]+)", text)) <= ids


def test_nothing_is_put_into_the_scripts_of_the_action() -> None:
    """What an expression would put there would be run."""
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step.get("run", "")
        assert ("run" in step) == ("shell" in step)


def test_actions_of_others_are_pinned_by_commit() -> None:
    """
    With the version beside it, for people and for tools that update it; a tag can be moved to other
    code.
    """
    used = re.findall(r"uses: *(.*)", (ROOT / "action.yml").read_text(encoding="utf-8"))
    assert len(used) == sum("uses" in step for step in ACTION["runs"]["steps"])
    for one in used:
        assert re.fullmatch(r"[\w-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", one)


def test_the_action_imports_nothing_from_the_checkout() -> None:
    """Python would import ``pip`` and ``venv`` from the working directory first."""
    scripts = "\n".join(step.get("run", "") for step in ACTION["runs"]["steps"])
    modules = re.findall(r"python\"(.*?)-m \w+|PYTHON\"(.*?)-m \w+", scripts, re.IGNORECASE)
    assert len(modules) == 3
    assert all("".join(flags).strip() in {"-I", "-P"} for flags in modules)


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """Return a directory with the models that the recipes speak of."""
    (tmp_path / "models").mkdir()
    shutil.copy(FIXED_H5, tmp_path / "models/model.h5")
    shutil.copy(MIXED_KERAS, tmp_path / "models/model.keras")
    shutil.copytree(MIXED_SAVEDMODEL, tmp_path / "models/exported")
    return tmp_path


class Runner:
    """What GitHub gives to a step, as files and variables."""

    def __init__(self, models: Path) -> None:
        self.work = models
        self.files = models / "runner"
        binaries = self.files / "policytool/bin"
        binaries.mkdir(parents=True)
        python = binaries / "python"
        python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n', encoding="utf-8")
        python.chmod(0o755)

    def run(self, name: str, **inputs: str) -> subprocess.CompletedProcess[str]:
        """Run a step's script as GitHub does."""
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("GITHUB_")},
            "RUNNER_TEMP": str(self.files),
            "GITHUB_OUTPUT": str(self.files / "output"),
            "GITHUB_STEP_SUMMARY": str(self.files / "summary"),
            **{
                variable: self._value(value, inputs)
                for variable, value in STEPS[name]["env"].items()
            },
        }
        script = self.files / "step.sh"
        script.write_text(STEPS[name]["run"], encoding="utf-8")
        command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(script)]
        return subprocess.run(
            command,
            cwd=self.work,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def _value(self, expression: str, inputs: dict[str, str]) -> str:
        match = re.fullmatch(r"\$\{\{ (inputs|steps\.\w+\.outputs)\.([a-z-]+) \}\}", expression)
        assert match is not None
        kind, name = match.groups()
        return (
            inputs.get(name.replace("-", "_"), str(ACTION["inputs"][name]["default"]))
            if kind == "inputs"
            else self.outputs()[name]
        )

    def outputs(self) -> dict[str, str]:
        """Return what the steps gave so far."""
        return dict(
            line.split("=", 1)
            for line in (self.files / "output").read_text(encoding="utf-8").splitlines()
        )


@pytest.fixture
def runner(models: Path) -> Runner:
    """Return a runner with policytool installed in it."""
    return Runner(models)


@THOROUGH
def test_the_action_audits(runner: Runner) -> None:
    """It writes SARIF, the summary and the exit code, goes on, and fails at its end."""
    done = runner.run(
        "Audit", paths="models/model.h5\n\n  models/*.keras \n", target="keras3\ntf2.15\n"
    )
    assert done.returncode == 0, done.stderr
    assert runner.outputs() == {"exit-code": "1", "sarif": "policytool.sarif"}
    sarif = json.loads((runner.work / "policytool.sarif").read_text(encoding="utf-8"))
    found = {
        result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        for result in sarif["runs"][0]["results"]
    }
    assert "models/model.h5" in found
    assert "models/exported" not in found
    assert "PT101" in (runner.files / "summary").read_text(encoding="utf-8")
    assert "models/model.h5" in done.stdout
    assert runner.run("Result").returncode == 1


@THOROUGH
def test_the_action_passes_a_good_model(runner: Runner) -> None:
    """Or findings that are not to fail the job."""
    assert runner.run("Audit", paths="models/model.keras", sarif="out.sarif").returncode == 0
    assert runner.outputs() == {"exit-code": "0", "sarif": "out.sarif"}
    assert runner.run("Result").returncode == 0
    assert runner.run("Audit", fail_on="never").returncode == 0
    assert runner.outputs()["exit-code"] == "0"


def test_the_action_fails_where_nothing_could_be_audited(runner: Runner) -> None:
    """With what policytool says; there is then no report of an earlier run to upload."""
    (runner.work / "policytool.sarif").write_text("{}", encoding="utf-8")
    done = runner.run("Audit", args="--no-such-option")
    assert "Unknown option" in done.stderr
    assert runner.outputs() == {"exit-code": "2"}
    assert runner.run("Result").returncode == 2


@THOROUGH
def test_inputs_of_the_action_are_words_and_no_code(runner: Runner) -> None:
    """Whatever stands in them."""
    evil = "$(touch ran) `touch ran`; touch ran"
    for name in ("paths", "target", "fail_on", "args", "sarif"):
        runner.run("Audit", **{name: evil})
    assert not (runner.work / "ran").exists()


@pytest.mark.parametrize(
    "sarif", ["a.sarif\nexit-code=0", "a.sarif\n", "\nsarif=b", "a\rb", "a\r\nexit-code<<E\n0\nE"]
)
def test_an_input_of_the_action_makes_no_further_output(runner: Runner, sarif: str) -> None:
    """A path of several lines ends the step before anything runs."""
    done = runner.run("Audit", paths="models/model.h5", sarif=sarif)
    assert done.returncode == 2
    assert (
        done.stderr
        == "error: The input sarif contains a line break. Use a path without line breaks.\n"
    )
    assert not (runner.files / "output").exists()


@THOROUGH
@pytest.mark.parametrize("name", ["paths", "target", "fail_on", "args"])
def test_other_inputs_of_the_action_make_no_further_output(runner: Runner, name: str) -> None:
    """Whatever their lines are."""
    runner.run("Audit", **{name: "models\nexit-code=0\nevil=1"})
    assert set(runner.outputs()) <= {"exit-code", "sarif"}
    assert runner.outputs()["exit-code"] != "0"


def test_a_report_whose_name_looks_like_an_option_is_a_file(runner: Runner) -> None:
    """Of an earlier run it is removed, too."""
    (runner.work / "-rf").write_text("{}", encoding="utf-8")
    assert runner.run("Audit", paths="models/model.keras", sarif="-rf").returncode == 0
    assert "runs" in json.loads((runner.work / "-rf").read_text(encoding="utf-8"))


def commands() -> Iterator[str]:
    """Yield the commands of the page of recipes."""
    page = (ROOT / "docs/ci.md").read_text(encoding="utf-8")
    for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL):
        for line in block.splitlines():
            command = line.partition("  #")[0].strip()
            if command.startswith("policytool "):
                yield command


@THOROUGH
@pytest.mark.parametrize("command", sorted(set(commands())))
def test_commands_of_the_page_run(command: str, models: Path) -> None:
    """Each ends with the code that the page gives to its findings, and prints something."""
    if "--baseline" in command:
        run_process("audit", "models", "--write-baseline", "policytool-baseline.json", cwd=models)
    done = subprocess.run(
        [sys.executable, "-m", "policytool", *shlex.split(command)[1:]],
        cwd=models,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        input="models/model.h5\n",
    )
    assert done.returncode in {0, 1}, done.stderr
    assert done.stdout


def test_the_page_names_options_that_exist() -> None:
    """In its recipes too, which are YAML: each is read as such."""
    page = (ROOT / "docs/ci.md").read_text(encoding="utf-8")
    assert not unknown(page)
    recipes = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert recipes
    for recipe in recipes:
        for step in steps(yaml.safe_load(recipe)):
            assert (
                set(step.get("with", {})) <= set(ACTION["inputs"])
                or "policytool" not in step["uses"]
            )
    assert {hook["id"] for hook in HOOKS} <= set(re.findall(r"id: ([\w-]+)", page))


def steps(recipe: Any) -> Iterator[Any]:
    """Yield whatever uses an action, at any depth."""
    if isinstance(recipe, dict):
        if "uses" in recipe:
            yield recipe
        for value in recipe.values():
            yield from steps(value)
    elif isinstance(recipe, list):
        for value in recipe:
            yield from steps(value)
