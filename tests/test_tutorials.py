"""
Each tutorial works from top to bottom: its files are written, its commands run in an empty
directory, and they print what the page shows. `make golden` updates the pages.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Final

import pytest
import yaml

from tests.conftest import tensorflow
from tests.helpers.marks import SLOW, THOROUGH
from tests.helpers.paths import FIXTURES, ROOT
from tests.helpers.tutorials import (
    CLONE,
    CUT,
    INSTALL,
    INSTALL_CHECK,
    SETUP,
    Command,
    Printed,
    Session,
    Tutorial,
    TutorialFile,
    is_shown,
    read_tutorial,
    updated_page,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

DIRECTORY: Final = ROOT / "docs/tutorials"
NAMES: Final = (
    "find-the-layer-that-makes-nan",
    "gate-models-in-ci",
    "is-float16-safe",
    "load-in-keras-3",
    "serve-in-bfloat16",
)
WITHOUT_TENSORFLOW: Final = ("gate-models-in-ci", "load-in-keras-3", "serve-in-bfloat16")
"""These solve the problem, or a part of it, before TensorFlow is installed."""

MOST_STEPS: Final = 7
MOST_LINES: Final = 15
WORDS: Final = range(400, 801)


def tutorial(name: str) -> Tutorial:
    """Return a tutorial by its name."""
    return read_tutorial(DIRECTORY / f"{name}.md")


def run_tutorial(page: Tutorial, session: Session) -> list[Printed]:
    """Write the files and run the commands of a page; a failure must be shown by ``echo $?``."""
    printed: list[Printed] = []
    commands = [*page.commands]
    for action in page.actions:
        if isinstance(action, TutorialFile):
            session.write(action)
            continue
        printed.append(session.run(action.text))
        following = commands[len(printed)].text if len(printed) < len(commands) else ""
        assert printed[-1].code == 0 or following == "echo $?", (
            f"{action.text}\n{printed[-1].shown}{printed[-1].log}"
        )
    return printed


def check_page(page: Tutorial, printed: Sequence[Printed]) -> None:
    """Fail if the page shows different output; with ``POLICYTOOL_GOLDEN=1`` update it instead."""
    if os.environ.get("POLICYTOOL_GOLDEN") == "1":
        page.path.write_text(updated_page(page, printed), encoding="utf-8")
        return
    for command, result in zip(page.commands, printed, strict=True):
        assert is_shown(command.output, result), (
            f"step {command.step} of {page.path.name}: {command.text}\n{result.shown}{result.log}"
        )


@THOROUGH
@pytest.mark.parametrize("name", WITHOUT_TENSORFLOW)
def test_tutorial_works_without_tensorflow(name: str, tmp_path: Path) -> None:
    """Up to the installation of TensorFlow, if the page has this step."""
    page = tutorial(name).without_tensorflow
    check_page(page, run_tutorial(page, Session(tmp_path, None)))


@SLOW
@pytest.mark.parametrize("name", [name for name in NAMES if name != "gate-models-in-ci"])
def test_tutorial_works_with_tensorflow(name: str, tmp_path: Path) -> None:
    """
    The tutorial works from top to bottom in the environment that `policytool[check]` installs.
    """
    page = tutorial(name)
    check_page(page, run_tutorial(page, Session(tmp_path, tensorflow())))


def test_every_tutorial_is_run() -> None:
    """Two tests run the pages: one up to the installation of TensorFlow, and one as a whole."""
    assert sorted(path.stem for path in DIRECTORY.glob("*.md")) == list(NAMES)
    for name in NAMES:
        page = tutorial(name)
        without = [command.text for command in page.without_tensorflow.commands]
        assert (name in WITHOUT_TENSORFLOW) == any(
            text.startswith("policytool ") for text in without
        )
        assert (INSTALL_CHECK in [command.text for command in page.commands]) == (
            name != "gate-models-in-ci"
        )


@pytest.mark.parametrize("name", NAMES)
class TestPage:
    """What all tutorials have in common."""

    def test_no_command_is_left_out(self, name: str) -> None:
        """Every line with a prompt is a command that is run, and every block is known."""
        page = tutorial(name)
        prompts = [line for line in page.lines if line.lstrip().startswith("$ ")]
        assert [f"$ {command.text}".splitlines()[0] for command in page.commands] == prompts

    def test_has_at_most_seven_steps(self, name: str) -> None:
        """Numbered from 1, each with a command or a file."""
        page = tutorial(name)
        assert list(page.steps) == list(range(1, len(page.steps) + 1))
        assert 1 < len(page.steps) <= MOST_STEPS
        assert {action.step for action in page.actions} == set(page.steps)

    def test_output_of_a_step_is_short(self, name: str) -> None:
        """A longer output is cut."""
        page = tutorial(name)
        for step in page.steps:
            lines = [
                line for command in page.commands if command.step == step for line in command.output
            ]
            assert len(lines) <= MOST_LINES, f"step {step}"

    def test_steps_explain_their_result(self, name: str) -> None:
        """Text follows the last block of a step."""
        page = tutorial(name)
        text = "\n".join(page.lines)
        for part in text.split("\n## ")[1 : len(page.steps) + 1]:
            assert part.rpartition("```")[2].strip(), part.splitlines()[0]

    def test_starts_with_the_installation(self, name: str) -> None:
        """A reader needs only this page and a network."""
        page = tutorial(name)
        first = [command.text for command in page.commands][:2]
        assert first[0] == CLONE
        assert first[1] in {INSTALL, INSTALL_CHECK}
        assert {
            command.text for command in page.commands if command.text.startswith("pip")
        } <= SETUP

    def test_tutorial_ends_with_links(self, name: str) -> None:
        """The end of a page summarizes the page and links to further pages."""
        page = tutorial(name)
        assert page.headings[-2:] == ("What you learned", "Next")
        assert page.prose.rpartition("\n## Next\n")[2].count("](") >= 2

    def test_length(self, name: str) -> None:
        """Without blocks."""
        assert len(tutorial(name).prose.split()) in WORDS

    def test_workflows_are_valid(self, name: str) -> None:
        """Nothing else reads them; their inputs are inputs of the action."""
        inputs = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))["inputs"]
        for action in tutorial(name).actions:
            if isinstance(action, TutorialFile) and action.name.endswith(".yml"):
                jobs = yaml.safe_load(action.text)["jobs"]
                steps = [step for job in jobs.values() for step in job["steps"]]
                (ours,) = [step for step in steps if "/policytool@" in step["uses"]]
                assert set(ours["with"]) <= set(inputs)

    def test_quoted_errors_are_real(self, name: str) -> None:
        """A release of Keras raised them when it loaded a fixture."""
        errors = json.loads((FIXTURES / "loads.json").read_text(encoding="utf-8"))["errors"]
        for quotation in tutorial(name).quotations:
            assert quotation.text in errors.values()


def printed(text: str, *, measured: bool = False) -> Printed:
    """Return the output of a command that succeeded."""
    return Printed(code=0, shown=text, log="", measured=measured)


@pytest.mark.parametrize(
    ("shown", "text", "measured", "expected"),
    [
        (["a", "b"], "a\nb\n", False, True),
        (["a", CUT], "a\nb\nc\n", False, True),
        (["a", CUT, "c"], "a\nb\nc\n", False, True),
        (["a", CUT, "b"], "a\nb\nc\n", False, False),
        ([], "a\n", False, False),
        (["a  0.25"], "a  0.26\n", False, False),
        (["a 0.25 b"], "a 0.3\n  b\n", True, True),
        (["a 0.25 b"], "a 0.025 b\n", True, False),
        (["a 4e-5", CUT], "a 3.2e-5\n──\n", True, True),
        (["Keras 3.15.1"], "Keras 3.15.2\n", True, False),
        (["a", "────", "b"], "a\n──────\nb\n", True, True),
        (["a b"], "a\nc b\n", True, False),
    ],
)
def test_output_in_tutorials_is_compared(
    shown: list[str], text: str, *, measured: bool, expected: bool
) -> None:
    """Only cuts, and measured numbers of runs in TensorFlow, may differ."""
    assert is_shown(shown, printed(text, measured=measured)) == expected


@pytest.mark.parametrize(
    ("shown", "text", "expected"),
    [
        ([], "a\nb\n", ["a", "b"]),
        (["old", CUT], "new\nb\nc\n", ["new", CUT]),
        ([CUT, "see: 1"], "a\nsee: 2\n", [CUT, "see: 2"]),
        (
            ["old", CUT, "see: 1", CUT, "end"],
            "new\nb\nsee: 2\nc\nlast\n",
            ["new", CUT, "see: 2", CUT, "last"],
        ),
    ],
)
def test_update_keeps_cuts(
    tmp_path: Path, shown: list[str], text: str, expected: list[str]
) -> None:
    """An updated page shows the same parts of the new output."""
    path = tmp_path / "page.md"
    page = "## 1. Run it\n```console\n$ policytool inspect\n{}\n```\n"
    path.write_text(page.replace("{}\n", "".join(f"{line}\n" for line in shown)), encoding="utf-8")
    updated = updated_page(read_tutorial(path), [printed(text)])
    path.write_text(updated, encoding="utf-8")
    (command,) = read_tutorial(path).commands
    assert isinstance(command, Command)
    assert command.output == tuple(expected)


@pytest.mark.parametrize("block", ["```\nls\n```", "```bash\nls\n```", "~~~console\n$ ls\n```"])
def test_blocks_that_nothing_runs_are_errors(tmp_path: Path, block: str) -> None:
    """Such as commands in a block of another kind."""
    path = tmp_path / "page.md"
    path.write_text(f"## 1. Run it\n\n{block}\n", encoding="utf-8")
    with pytest.raises(ValueError, match="nothing runs this block"):
        read_tutorial(path)
