"""
Where the tool is used: the hook for pre-commit, the action for GitHub, and the page of recipes.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

import click
import pytest
import yaml
from markdown_it import MarkdownIt

from policytool.cli.exit_codes import Exit
from policytool.cli.help_pages import EXAMPLES
from policytool.cli.main import cli
from tests.conftest import MIXED_KERAS, MIXED_SAVEDMODEL, Ended, run
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES, ROOT
from tests.helpers.sampling import sampled
from tests.helpers.scripts import run_captured

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FIXED_H5: Final = ROOT / "fixtures/tf2.3/exp_mf16_fixed128.h5"
HOOKS: Final[Any] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
ACTION: Final[Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
_YAML: Final = r"```yaml[^\n]*\n(.*?)```"
STEPS: Final = {step.get("name", step.get("uses")): step for step in ACTION["runs"]["steps"]}


def options(command: str) -> set[str]:
    """Return every spelling of the options of a command."""
    result = cli.get_command(click.Context(cli), command)
    assert result is not None
    return {
        spelling
        for parameter in result.params
        for spelling in (*parameter.opts, *parameter.secondary_opts)
    }


def unknown(text: str) -> set[str]:
    """Return the options in a text of ``policytool`` commands that those do not have."""
    result = re.findall(
        r"policytool (inspect|audit|migrate|diff|policies|rules|completion)\b((?:[^\n|`]|\\\n)*)",
        text,
    )
    return {
        f"{name} {word}"
        for name, rest in result
        for word in re.findall(r"(?<![\w-])--[a-z][a-z-]*", rest)
        if word not in {*options(name), "--help"}
    }


def test_hooks_are_valid_for_pre_commit() -> None:
    """
    Each hook has the required keys and no unknown key. Its command and options exist in policytool.
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
    """The hook selects files by the names that pre-commit matches."""
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
    for files, code in (
        (["data.h5"], 0),
        (["data.h5", "models/model.keras"], 0),
        (["data.h5", "models/model.h5"], 1),
        (["data.h5", "models/exported/saved_model.pb", "damaged.keras"], 3),
    ):
        ended = run(*hook_words(), *files)
        assert ended.code == code, ended.err
        assert "note: Skipped 1 file that is not a model." in ended.err


def hook_words(arguments: list[str] | None = None) -> list[str]:
    """Return the words that pre-commit writes before the names; a user may replace the args."""
    hook = HOOKS[0]
    return [*shlex.split(hook["entry"])[1:], *(hook["args"] if arguments is None else arguments)]


OPTION_NAMES: Final = (
    *("--format=json=x.h5", "--write-baseline=known.h5", "--config=s.h5", "-.h5", "--.keras"),
    "--/--help/x.h5",
)
"""Names of files that could be options, and match the pattern of the hook."""


@pytest.fixture
def option_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of models in the working directory, which also has a settings file."""
    monkeypatch.chdir(tmp_path)
    for name in OPTION_NAMES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(FIXED_H5, tmp_path / name)
    (tmp_path / "s.h5").write_text('write-baseline = "stolen.json"\n', encoding="utf-8")
    return [*OPTION_NAMES]


def contents(directory: Path) -> dict[str, bytes]:
    """Return the files of a directory."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


@THOROUGH
@pytest.mark.parametrize("arguments", [None, ["--fail-on", "error", "--target", "keras3", "--"]])
def test_names_of_a_commit_are_not_options_of_the_hook(
    arguments: list[str] | None, option_files: list[str], tmp_path: Path
) -> None:
    """Each file is audited, and no report, baseline or settings file has an effect."""
    assert all(re.search(HOOKS[0]["files"], name) for name in option_files)
    before = contents(tmp_path)
    ended = run(*hook_words(arguments), *option_files)
    assert ended.code == 1, ended.err
    assert contents(tmp_path) == before
    assert f"Checked {len(option_files)} models" in ended.out


@pytest.mark.parametrize(
    "arguments",
    [[], ["--fail-on", "error"], ["--target", "--"], ["models/model.h5"], ["--target"]],
)
def test_the_hook_requires_a_separator(
    arguments: list[str], option_files: list[str], tmp_path: Path
) -> None:
    """Without it, pre-commit would pass names as options; the message contains the fix."""
    before = contents(tmp_path)
    ended = run(*hook_words(arguments), *option_files)
    assert (ended.code, ended.out) == (2, "")
    if "--" not in arguments:
        assert ".pre-commit-config.yaml, add -- to the end of the hook's args" in ended.err
    assert contents(tmp_path) == before


def test_the_page_shows_a_hook_with_a_separator() -> None:
    """The args of a user replace those of the hook."""
    page = (ROOT / "docs/how-to/ci.md").read_text(encoding="utf-8")
    (recipe,) = (
        found
        for found in map(yaml.safe_load, re.findall(_YAML, page, re.DOTALL))
        if "repos" in found
    )
    (hook,) = recipe["repos"][0]["hooks"]
    assert hook["args"][-1] == HOOKS[0]["args"][-1] == "--"


@THOROUGH
@pytest.mark.parametrize("null", [False, True])
def test_items_of_a_list_are_not_options(
    null: bool,  # a column  # noqa: FBT001
    option_files: list[str],
    tmp_path: Path,
) -> None:
    """Only a line feed or, in a list with NULs, a NUL ends a name."""
    names = [*option_files, "a\u2028b.h5", "a\x85b.h5", "a\x0cb.h5", "a\x1cb.h5", "a\rb.h5"]
    if null:
        names.append("a\nb.h5\r")
    for name in names:
        shutil.copy(FIXED_H5, tmp_path / name)
    before = contents(tmp_path)
    text = ("\0" if null else "\n").join(names)
    ended = run("inspect", "--format", "json", "-", stdin=text.encode())
    assert [model["path"] for model in json.loads(ended.out)["models"]] == names
    assert contents(tmp_path) == before


def shown_commands() -> Iterator[str]:
    """Yield the lines with commands in the documentation and in the help."""
    for page in (ROOT / "README.md", *ROOT.glob("docs/**/*.md")):
        text = page.read_text(encoding="utf-8")
        yield from (line for line in text.splitlines() if "policytool" in line)
    yield from (command for examples in EXAMPLES.values() for command, _ in examples)


def test_examples_do_not_pass_unknown_names_as_options() -> None:
    """Names that another program or the shell writes are items of a list, or follow `--`."""
    checked = 0
    for line in shown_commands():
        if re.search(r"\bgit (diff|ls-files)\b.*\| *policytool", line):
            assert re.search(r"git \S+ -z .*\| *policytool .* -(?= |`|$)", line), line
            checked += 1
        command = re.search(
            r"\bpolicytool (?:inspect|audit|migrate|merge|diff|check)\b[^`|]*", line
        )
        expanded = (
            r"(?:^| )(?:\*[\w./*-]*|\{\}|\"?\$(?:@|\*|\{?\w*[Ff][Ii][Ll][Ee]\w*\}?)\"?)(?= |$)"
        )
        if command and (
            re.search(expanded, command[0]) or re.search(r"\bxargs\b.*policytool", line)
        ):
            assert re.search(r" -- | --$", command[0]), line
            checked += 1
    assert checked >= 11  # the patterns above recognize the examples


def test_every_target_of_the_makefile_has_commands() -> None:
    """A target that is only declared succeeds without doing anything."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (declared,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    rules = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    assert set(declared.split()) == rules
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    assert set(re.findall(r"^part \S+ make (\S+)", script, re.MULTILINE)) <= rules


def test_inputs_of_the_action_are_declared_and_used() -> None:
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"inputs\.([a-z-]+)", text)) == set(ACTION["inputs"])
    assert all(
        item["description"] and isinstance(item["default"], str)
        for item in ACTION["inputs"].values()
    )
    ids = {step["id"] for step in ACTION["runs"]["steps"] if "id" in step}
    assert set(re.findall(r"steps\.([a-z-]+)", text)) <= ids


def test_scripts_of_the_action_contain_no_expressions() -> None:
    """The text of an expression would be run."""
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step.get("run", "")
        assert ("run" in step) == ("shell" in step)


def test_actions_of_others_are_pinned_by_commit() -> None:
    """
    Each action is pinned to a commit, because a tag can be moved, with its version in a comment for
    people and tools.
    """
    used = re.findall(r"uses: *(.*)", (ROOT / "action.yml").read_text(encoding="utf-8"))
    assert len(used) == sum("uses" in step for step in ACTION["runs"]["steps"])
    for item in used:
        assert re.fullmatch(r"[\w-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", item)


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
        self.python = binaries / "python"
        self.replace_python(f'exec {shlex.quote(sys.executable)} "$@"')

    def replace_python(self, script: str) -> None:
        """Let a script run in place of the interpreter that has policytool."""
        self.python.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        self.python.chmod(0o755)

    def run(self, name: str, **inputs: str) -> subprocess.CompletedProcess[str]:
        """Run a step's script as GitHub does."""
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("GITHUB_")},
            "RUNNER_TEMP": str(self.files),
            "GITHUB_OUTPUT": str(self.files / "output"),
            "GITHUB_STEP_SUMMARY": str(self.files / "summary"),
            **{
                variable: self._value(value, inputs)
                for variable, value in STEPS[name].get("env", {}).items()
            },
        }
        script = self.files / "step.sh"
        script.write_text(STEPS[name]["run"], encoding="utf-8")
        command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(script)]
        return run_captured(command, cwd=self.work, env=environment, check=False)

    def _value(self, expression: str, inputs: dict[str, str]) -> str:
        match = re.fullmatch(r"\$\{\{ (inputs|steps\.\w+\.outputs)\.([a-z-]+) \}\}", expression)
        assert match is not None
        kind, name = match.groups()
        return (
            inputs.get(name.replace("-", "_"), str(ACTION["inputs"][name]["default"]))
            if kind == "inputs"
            else self.outputs().get(name, "")
        )

    def outputs(self) -> dict[str, str]:
        """Return what the steps gave so far."""
        return dict(line.split("=", 1) for line in self._written("output").splitlines())

    def summary(self) -> str:
        """Return what the steps wrote to the job summary so far."""
        return self._written("summary")

    def _written(self, name: str) -> str:
        file = self.files / name
        return file.read_text(encoding="utf-8") if file.exists() else ""


@pytest.fixture
def runner(models: Path) -> Runner:
    """Return a runner with policytool installed in it."""
    return Runner(models)


@THOROUGH
def test_action_audits_models(runner: Runner) -> None:
    """
    The step writes SARIF, the summary and the exit code, continues, and fails at the end of the
    action.
    """
    done = runner.run(
        "Audit", paths="models/model.h5\n\n  models/*.keras \n", target="keras3\ntf2.15\n"
    )
    assert done.returncode == 0, done.stderr
    assert runner.outputs() == {"exit-code": "1", "sarif": "policytool.sarif"}
    sarif = json.loads((runner.work / "policytool.sarif").read_text(encoding="utf-8"))
    actual = {
        result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        for result in sarif["runs"][0]["results"]
    }
    assert "models/model.h5" in actual
    assert "models/exported" not in actual
    assert "PT101" in runner.summary()
    assert "models/model.h5" in done.stdout
    assert runner.run("Result").returncode == 1


@THOROUGH
def test_action_passes_a_model_without_errors(runner: Runner) -> None:
    """Findings below the threshold also pass."""
    assert runner.run("Audit", paths="models/model.keras", sarif="out.sarif").returncode == 0
    assert runner.outputs() == {"exit-code": "0", "sarif": "out.sarif"}
    assert runner.run("Result").returncode == 0
    assert runner.run("Audit", fail_on="never").returncode == 0
    assert runner.outputs()["exit-code"] == "0"


@THOROUGH
@pytest.mark.parametrize(
    ("inputs", "code", "said"),
    [
        ({"paths": "models/model.keras"}, 0, "**Checked 1 model for Keras 3.15: no findings**"),
        ({"paths": "models"}, 1, "- **PT101 warning**"),
        ({"fail_on": "often"}, 2, "(exit code 2)**\n\n    error: Invalid value for '--fail-on'"),
        ({"paths": "gone.h5"}, 3, "(exit code 3)**\n\n    error: gone.h5: does not exist."),
        ({"baseline": "gone.json"}, 3, "(exit code 3)**\n\n    error: --baseline gone.json"),
        ({"sarif": "models/model.h5/a"}, 3, "(exit code 3)**\n\n    error: "),
        ({"paths": "empty"}, 4, "no model found (exit code 4)**\n\n    error: No model found.\n"),
    ],
)
def test_every_exit_code_has_a_summary(
    runner: Runner, inputs: dict[str, str], code: int, said: str
) -> None:
    """The job fails at its end, with the code of the audit, and the summary has the reason."""
    (runner.work / "empty").mkdir()
    assert runner.run("Audit", **inputs).returncode == 0
    assert runner.outputs()["exit-code"] == str(code)
    assert said in runner.summary()
    assert runner.run("Result").returncode == code


OF_AUDIT: Final = frozenset(Exit) - {Exit.UNDECIDED}
"""The exit codes of an audit; only a check leaves something undecided."""


@pytest.mark.parametrize("code", sorted({*Exit, 126, 137}))
def test_audit_without_a_report_has_a_summary(runner: Runner, code: int) -> None:
    """The summary has the meaning of the exit code, and the messages as escaped code."""
    message = "error: </code> ``` <b>\n\n# @octocat\r[x](y)\x1b[2J\n"
    runner.replace_python(f"printf %s {shlex.quote(message)} >&2; exit {code}")
    done = runner.run("Audit")
    assert (done.returncode, runner.outputs()) == (0, {"exit-code": str(code)})
    title, *lines = runner.summary().strip("\n").split("\n")
    assert title.endswith(f"(exit code {code})**")
    assert ("did not run to its end" in title) == (code not in OF_AUDIT)
    assert lines == ["", "    error: </code> ``` <b>", "    ", "    # @octocat[x](y)[2J"]
    (_, _, _, block) = MarkdownIt("commonmark").parse(runner.summary())
    assert block.type == "code_block"
    assert runner.run("Result").returncode == code


@pytest.mark.parametrize(
    "script",
    [
        "head -c 3000000 /dev/zero | tr '\\0' '\\n' >&2; exit 70",
        "head -c 3000000 /dev/zero | tr '\\0' x > \"$RUNNER_TEMP/policytool.md\"; exit 3",
    ],
)
def test_the_summary_is_within_the_bound_of_github(runner: Runner, script: str) -> None:
    """A step may write 1 MiB, in bytes."""
    runner.replace_python(script)
    assert runner.run("Audit").returncode == 0
    assert 0 < len(runner.summary().encode()) < 2**20


def test_the_result_fails_if_the_audit_did_not_run(runner: Runner) -> None:
    """The step runs in any case, and the summary says where to look."""
    assert STEPS["Result"]["if"] == "always()"
    done = runner.run("Result")
    assert done.returncode == 3
    assert done.stderr.startswith("error: The audit did not run.")
    assert "The log of an earlier step shows the reason." in runner.summary()


def test_a_failed_upload_is_a_warning(runner: Runner) -> None:
    """Without code scanning, the exit code of the audit decides."""
    upload, notice = STEPS["Upload to code scanning"], STEPS["Report a failed upload"]
    assert upload["continue-on-error"] is True
    assert notice["if"] == f"always() && steps.{upload['id']}.outcome == 'failure'"
    done = runner.run("Report a failed upload")
    assert done.returncode == 0
    (line,) = done.stdout.splitlines()
    assert line.startswith("::warning title=policytool::The SARIF report was not uploaded")
    assert "security-events: write" in line
    assert "security-events: write" in runner.summary()


def test_action_has_an_icon_of_the_marketplace() -> None:
    """Both values are in GitHub's list of permitted icons and colors."""
    assert ACTION["branding"] == {"icon": "check-circle", "color": "blue"}


@THOROUGH
@pytest.mark.parametrize(
    "directory",
    sampled("directories", ["models", "-", "-P", "$(touch ran)", "a b;touch ran"], share=2),
)
def test_the_action_audits_in_a_working_directory(runner: Runner, directory: str) -> None:
    """
    Paths, settings, baseline and report are relative to it, and the report's locations to the root
    of the repository, as code scanning reads them.
    """
    place = runner.work / directory
    place.mkdir(exist_ok=True)
    shutil.copy(FIXED_H5, place / "one.h5")
    (place / "policytool.toml").write_text('ignore = ["PT505"]\n', encoding="utf-8")
    done = runner.run("Audit", paths="one.h5", working_directory=directory, sarif="new/a b.sarif")
    assert done.returncode == 0
    report = f"{directory}/new/a b.sarif"
    assert runner.outputs() == {"exit-code": "1", "sarif": report}
    (run,) = json.loads((runner.work / report).read_text(encoding="utf-8"))["runs"]
    assert "PT505" not in {result["ruleId"] for result in run["results"]}
    assert {
        result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        for result in run["results"]
    } == {f"{quote(directory)}/one.h5"}
    assert not list(runner.work.rglob("ran"))


@THOROUGH
def test_action_passes_baseline_and_settings(runner: Runner) -> None:
    """The paths of these files may begin with a dash."""
    written = runner.run("Audit", args="--write-baseline=-known.json", paths="models/model.h5")
    assert written.returncode == 0
    assert runner.run("Audit", paths="models/model.h5", baseline="-known.json").returncode == 0
    assert runner.outputs()["exit-code"] == "0"
    (runner.work / "-c.toml").write_text('fail-on = "error"\nskip-unrecognized = true\n', "utf-8")
    (runner.work / "empty").mkdir()
    assert runner.run("Audit", paths="empty", config="-c.toml").returncode == 0
    assert runner.outputs()["exit-code"] == "0"


@THOROUGH
def test_settings_decide_what_fails_the_action(runner: Runner) -> None:
    """The input ``fail-on`` overrides the settings file, and its default does not."""
    settings = runner.work / "policytool.toml"
    for text, value, code in (
        ('fail-on = "never"\n', "", "0"),
        ('fail-on = "never"\n', "warning", "1"),
        ("", "", "1"),
    ):
        settings.write_text(text, encoding="utf-8")
        assert runner.run("Audit", paths="models/model.h5", fail_on=value).returncode == 0
        assert runner.outputs()["exit-code"] == code


def test_missing_working_directory_is_wrong_usage(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory is neither searched in other places nor created."""
    monkeypatch.setenv("CDPATH", str(ROOT))
    for directory in ("tests", "-", "--", "models/model.h5"):
        runner.run("Audit", working_directory=directory)
        assert runner.outputs() == {"exit-code": "2"}
    assert "The input working-directory is not a directory" in runner.summary()


def test_the_page_shows_the_permissions_of_the_action() -> None:
    """The recipe with the upload has the permissions that it needs."""
    page = (ROOT / "docs/how-to/ci.md").read_text(encoding="utf-8")
    recipe = next(
        found
        for found in map(yaml.safe_load, re.findall(_YAML, page, re.DOTALL))
        if "permissions" in found
    )
    assert recipe["permissions"] == {
        "contents": "read",
        "security-events": "write",
        "pull-requests": "write",
    }
    table = set(re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE))
    assert set(ACTION["inputs"]) <= table


@THOROUGH
def test_the_action_fails_where_nothing_could_be_audited(runner: Runner) -> None:
    """The message of policytool is printed, and no report of an earlier run is uploaded."""
    (runner.work / "policytool.sarif").write_text("{}", encoding="utf-8")
    done = runner.run("Audit", args="--no-such-option")
    assert "Unknown option" in done.stderr
    assert runner.outputs() == {"exit-code": "2"}
    assert runner.run("Result").returncode == 2


@THOROUGH
def test_inputs_of_the_action_are_words_and_no_code(runner: Runner) -> None:
    """Shell code in an input is not executed."""
    evil = "$(touch ran) `touch ran`; touch ran"
    for name in sampled("inputs of the action", ACTION["inputs"], share=3):
        runner.run("Audit", **{name.replace("-", "_"): evil})
    assert not list(runner.work.rglob("ran"))


LINES: Final = ("a\nexit-code=0", "a\n", "\nsarif=b", "a\rb", "a\r\nexit-code<<E\n0\nE")
PATH_INPUTS: Final = ("sarif", "baseline", "config", "working-directory")


@pytest.mark.parametrize("value", LINES)
@pytest.mark.parametrize("name", PATH_INPUTS)
def test_an_input_of_the_action_makes_no_further_output(
    runner: Runner, name: str, value: str
) -> None:
    """A path of several lines ends the audit before anything runs."""
    done = runner.run("Audit", paths="models/model.h5", **{name.replace("-", "_"): value})
    message = f"error: The input {name} contains a line break. Use a path without line breaks.\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, "", message)
    assert runner.outputs() == {"exit-code": "2"}
    assert message in runner.summary()
    assert runner.run("Result").returncode == 2


@THOROUGH
@pytest.mark.parametrize(
    "name", sampled("outputs", ["paths", "target", "fail_on", "args"], share=2)
)
def test_other_inputs_of_the_action_make_no_further_output(runner: Runner, name: str) -> None:
    """An input with line breaks adds no output."""
    runner.run("Audit", **{name: "models\nexit-code=0\nevil=1"})
    assert set(runner.outputs()) <= {"exit-code", "sarif"}
    assert runner.outputs()["exit-code"] != "0"


@THOROUGH
def test_paths_of_the_action_are_not_options(runner: Runner) -> None:
    """An earlier step may write the names of changed files into the input."""
    (runner.work / "s.h5").write_text('write-baseline = "stolen.json"\n', encoding="utf-8")
    names = [name for name in OPTION_NAMES if "/" not in name]
    for name in names:
        shutil.copy(FIXED_H5, runner.work / name)
    before = {path.name for path in runner.work.iterdir()}
    assert runner.run("Audit", paths="\n".join([*names, "--"])).returncode == 0
    sarif = json.loads((runner.work / "policytool.sarif").read_text(encoding="utf-8"))
    actual = {
        unquote(result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"])
        for result in sarif["runs"][0]["results"]
    }
    assert actual == set(names)
    assert {path.name for path in runner.work.iterdir()} == {*before, "policytool.sarif"}


@THOROUGH
def test_report_with_the_name_of_an_option_is_a_file(runner: Runner) -> None:
    """A report of an earlier run is also removed."""
    (runner.work / "-rf").write_text("{}", encoding="utf-8")
    assert runner.run("Audit", paths="models/model.keras", sarif="-rf").returncode == 0
    assert "runs" in json.loads((runner.work / "-rf").read_text(encoding="utf-8"))


def commands() -> Iterator[str]:
    """Yield the commands of the page of recipes."""
    page = (ROOT / "docs/how-to/ci.md").read_text(encoding="utf-8")
    for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL):
        for line in block.splitlines():
            command = line.partition("  #")[0].strip()
            if command.startswith("policytool "):
                yield command


@THOROUGH
@pytest.mark.parametrize(
    "command", sampled("commands of the page", sorted(set(commands())), share=4)
)
def test_commands_of_the_page_run(command: str, models: Path) -> None:
    """Each ends with the code that the page gives to its findings, and prints something."""
    if "--baseline" in command:
        with contextlib.chdir(models):
            run("audit", "models", "--write-baseline", "policytool-baseline.json")
    done = run_captured(
        [sys.executable, "-m", "policytool", *shlex.split(command)[1:]],
        cwd=models,
        input="models/model.h5\n",
        check=False,
    )
    assert done.returncode in {0, 1}, done.stderr
    assert done.stdout


def workflow_script() -> str:
    """Return the script of the page that writes the changes of a pull request."""
    page = (ROOT / "docs/how-to/ci.md").read_text(encoding="utf-8")
    workflow = yaml.safe_load(re.findall(_YAML, page, re.DOTALL)[0])
    return next(
        str(step["run"])
        for step in workflow["jobs"]["changes"]["steps"]
        if "policytool diff" in step.get("run", "")
    )


def run_script(script: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script of the page as GitHub does, with this policytool."""
    command = f'policytool() {{ "{sys.executable}" -m policytool "$@"; }}\n{script}'
    return run_captured(
        ["bash", "-e", "-c", command], cwd=folder, env=os.environ | variables, check=False
    )


@THOROUGH
def test_the_settings_of_the_page_forbid_a_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The audit fails for a policy that is not accepted, and for a model that cannot be read."""
    page = (ROOT / "docs/how-to/ci.md").read_text(encoding="utf-8")
    settings = re.findall(r"```toml title=\"policytool.toml\"\n(.*?)```", page, re.DOTALL)[0]
    (accept,) = re.findall(r"^policytool (audit .*--write-baseline .*)$", page, re.MULTILINE)
    (tmp_path / "policytool.toml").write_text(settings, encoding="utf-8")
    models = tmp_path / "models"
    models.mkdir()
    monkeypatch.chdir(tmp_path)

    def audit(words: str = "audit models") -> Ended:
        return run(*words.split())

    shutil.copy(FIXTURES / "tf2.15/rnn.h5", models)
    assert audit(accept).code == audit().code == 0
    shutil.copy(FIXTURES / "tf2.15/global_float16.h5", models)
    ended = audit()
    assert ended.code == 1
    assert "mlp/dense_a" in ended.out
    assert audit(accept).code == audit().code == 0
    (models / "global_float16.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    assert audit().code == 3


_GIT: Final = ("git", "-c", "user.name=a", "-c", "user.email=a@b.c")


@pytest.fixture
def pull_request(tmp_path: Path) -> Path:
    """
    Return a checkout whose commit adds, removes and changes models of the base branch, which has
    another commit since.
    """
    work = tmp_path / "work"
    models = work / "models"
    models.mkdir(parents=True)

    def git(*arguments: str) -> None:
        subprocess.run([*_GIT, *arguments], cwd=work, check=True)

    source = FIXTURES / "tf2.15"
    for name in ("rnn.h5", "activation_layer.h5", "global_float16.h5"):
        shutil.copy(source / name, models)
    for name in ("changed", "same"):
        shutil.copytree(FIXTURES / "tf2.0/default_float32", models / "nested" / name)
    git("init", "-q", "-b", "main")
    git("add", ".")
    git("commit", "-qm", "Add models")
    git("checkout", "-q", "-b", "feature")
    with contextlib.chdir(models):
        run("migrate", "rnn.h5", "--to", "mixed_bfloat16", "--in-place")
    (models / "rnn.h5.bak").unlink(missing_ok=True)
    (models / "global_float16.h5").unlink()
    shutil.rmtree(models / "nested/changed")
    shutil.copytree(source / "global_mixed_float16", models / "nested/changed")
    shutil.copytree(source / "global_mixed_float16", models / "new export")
    shutil.copy(MIXED_KERAS, models / "-new.keras")
    (models / "README.md").write_text("not a model", encoding="utf-8")
    git("add", ".")
    git("commit", "-qm", "Change the models")
    git("checkout", "-q", "main")
    git("rm", "-q", "models/activation_layer.h5")
    git("commit", "-qm", "Remove a model from the base branch")
    git("update-ref", "refs/remotes/origin/main", "HEAD")
    git("checkout", "-q", "feature")
    return work


@THOROUGH
def test_the_script_of_the_page_compares_with_the_base_branch(pull_request: Path) -> None:
    """It has each model that the pull request changes, adds or removes, and no other."""
    summary = pull_request.parent / "summary.md"
    done = run_script(
        workflow_script(),
        pull_request,
        GITHUB_BASE_REF="main",
        GITHUB_STEP_SUMMARY=str(summary),
        RUNNER_TEMP=str(pull_request.parent),
    )
    assert done.returncode == 0, done.stderr
    changes = (pull_request / "changes.md").read_text(encoding="utf-8")
    assert summary.read_text(encoding="utf-8") == changes
    assert "| `net/lstm` | policy | float32 | `mixed_bfloat16` |" in changes
    assert re.findall(r"\*\*Added\*\*\n\n### `?([^\n`]*)", changes) == [
        "models/-new.keras",
        "models/new export",
    ]
    assert re.findall(r"\*\*Removed\*\*: (.*)", changes) == ["models/global_float16.h5"]
    assert re.findall(r"- \*\*B\*\* `?([^\n`]*?)`? ·", changes) == [
        "models/nested/changed",
        "models/rnn.h5",
    ]


@THOROUGH
def test_the_script_of_the_page_fails_for_unreadable_models(pull_request: Path) -> None:
    """A model that cannot be read is not left out."""
    (pull_request / "models/-new.keras").write_bytes(b"PK")
    done = run_script(
        workflow_script(),
        pull_request,
        GITHUB_BASE_REF="main",
        GITHUB_STEP_SUMMARY=str(pull_request.parent / "summary.md"),
        RUNNER_TEMP=str(pull_request.parent),
    )
    assert done.returncode != 0
    assert "models/-new.keras" in done.stderr


def test_the_page_names_options_that_exist() -> None:
    """In its recipes too, which are YAML: each is read as such."""
    page = (ROOT / "docs/how-to/ci.md").read_text(encoding="utf-8")
    assert not unknown(page)
    recipes = re.findall(_YAML, page, re.DOTALL)
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
