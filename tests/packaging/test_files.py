"""The containers, the recipe of conda-forge, the citation and the templates for issues."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import tomllib
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from policytool.support.project import VERSION
from tests.conftest import FIXED_SCALE_H5, run
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

PROJECT: Final[Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]
DOCKERFILE: Final = (ROOT / "Dockerfile").read_text(encoding="utf-8")
INSTRUCTIONS: Final = re.findall(
    r"^([A-Z]+) (.*(?:(?<=\\)\n.*)*)$",
    re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE),
    re.MULTILINE,
)
"""Each instruction of the Dockerfile with its arguments."""


def arguments(name: str) -> list[str]:
    """Return the arguments of each instruction of a name."""
    return [text for instruction, text in INSTRUCTIONS if instruction == name]


def test_base_image_is_pinned_and_slim() -> None:
    """Both stages have the same image of a supported Python."""
    bases = {text.partition(" AS ")[0] for text in arguments("FROM")}
    assert len(arguments("FROM")) == 2
    (base,) = bases
    match = re.fullmatch(r"python:(3\.\d+)\.\d+-slim-[a-z]+", base)
    assert match is not None
    assert f"Programming Language :: Python :: {match[1]}" in PROJECT["classifiers"]


def test_development_container_has_the_python_of_the_image() -> None:
    """It installs with a target of the Makefile, and so from the lock files."""
    text = (ROOT / ".devcontainer/devcontainer.json").read_text(encoding="utf-8")
    container = json.loads(text)
    assert arguments("FROM")[1] == container["image"].replace("-trixie", "-slim-trixie")
    _, target = container["postCreateCommand"].split()
    assert f"\n{target}: $(VENV)/.dev" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_image_runs_as_a_user_with_a_fixed_number() -> None:
    """The number is not that of root, and nothing after it changes the user."""
    assert arguments("USER") == ["10001:10001"]
    names = [name for name, _ in INSTRUCTIONS]
    assert set(names[names.index("USER") + 1 :]) == {"VOLUME", "WORKDIR", "ENTRYPOINT", "CMD"}


def test_image_starts_policytool_without_a_shell() -> None:
    """Signals reach policytool, and arguments of `docker run` are its arguments."""
    assert arguments("ENTRYPOINT") == ['["policytool"]']
    assert arguments("CMD") == ['["--help"]']
    assert not arguments("ADD")
    assert arguments("VOLUME") == arguments("WORKDIR")[-1:] == ["/models"]


def test_image_copies_only_files_that_the_ignore_file_includes() -> None:
    """Other files are not sent to the build."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert lines[1] == "*"
    included = {line[1:] for line in lines if line.startswith("!")}
    copied = {
        word
        for text in arguments("COPY")
        if not text.startswith("--from")
        for word in text.split()[:-1]
    }
    assert copied == included
    assert all((ROOT / name).exists() for name in copied)


def test_label_has_the_version_and_the_description() -> None:
    (labels,) = arguments("LABEL")
    assert f'version="{VERSION}"' in labels
    assert f'description="{PROJECT["description"]}"' in labels


def test_recipe_has_the_requirements_of_the_package() -> None:
    """Conda writes a space before the version."""
    recipe = yaml.safe_load((ROOT / ".github/conda-forge/recipe.yaml").read_text(encoding="utf-8"))
    python, *run = recipe["requirements"]["run"]
    assert python == "python >=${{ python_min }}"
    assert recipe["context"] == {
        "version": VERSION,
        "python_min": PROJECT["requires-python"].removeprefix(">="),
    }
    assert [line.replace(" ", "") for line in run] == sorted(PROJECT["dependencies"])
    assert recipe["about"]["summary"] == PROJECT["description"]


def test_citation_describes_the_package() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == VERSION
    assert citation["license"] == PROJECT["license"]
    assert citation["abstract"] == PROJECT["description"]


def test_forms_ask_for_the_version_and_the_command() -> None:
    """A report without the version and the command cannot be reproduced."""
    for name in ("bug", "model"):
        text = (ROOT / f".github/ISSUE_TEMPLATE/{name}.yml").read_text(encoding="utf-8")
        ids = {field.get("id") for field in yaml.safe_load(text)["body"]}
        assert {"command", "model"} <= ids
        assert "`policytool --version`" in text


def container_arguments() -> list[list[str]]:
    """Return the arguments of policytool in each `docker run` of the page."""
    page = (ROOT / "docs/how-to/fleets.md").read_text(encoding="utf-8")
    commands = re.findall(r"^docker run .*? policytool (.*)$", page, re.MULTILINE)
    return [shlex.split(command) for command in commands]


@THOROUGH
@pytest.mark.parametrize("words", container_arguments(), ids=" ".join)
def test_commands_of_the_page_run(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The working directory is the mounted one."""
    shutil.copy(FIXED_SCALE_H5, tmp_path / "old.h5")
    monkeypatch.chdir(tmp_path)
    ended = run(*words)
    assert ended.code == (1 if words[0] == "audit" else 0), ended.err
    assert ended.out
