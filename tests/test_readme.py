"""The README is short, its links work on a package index, and its commands print what it shows."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

from policytool.support import project
from tests.conftest import tensorflow
from tests.helpers.marks import SLOW, THOROUGH
from tests.helpers.paths import FIXTURES, ROOT
from tests.helpers.tutorials import CLONE, INSTALL_CHECK, Session, is_shown

if TYPE_CHECKING:
    from pathlib import Path

README: Final = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES: Final = tuple(
    re.findall(r"^```console\n\$ (policytool [^\n]*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
)
"""Commands, each with the output below it."""

MOST_WORDS: Final = 350
MOST_WORDS_OF_SUMMARY: Final = 20
MOST_LINES: Final = 12
FAILING: Final = ("policytool audit",)
"""Commands that find something."""


@THOROUGH
@pytest.mark.parametrize(
    ("command", "output"),
    [
        pytest.param(*example, marks=SLOW if example[0].startswith("policytool check") else ())
        for example in EXAMPLES
    ],
    ids=[command for command, _ in EXAMPLES],
)
def test_examples_print_the_output_of_the_readme(command: str, output: str, tmp_path: Path) -> None:
    """The directory has the model of the picture, and inputs for the model."""
    needs_tensorflow = command.startswith("policytool check")
    session = Session(tmp_path, tensorflow() if needs_tensorflow else None)
    model = FIXTURES / "tf2.3/exp_mf16_fixed128.h5"
    (session.directory / "models").mkdir()
    shutil.copy(model, session.directory / "model.h5")
    shutil.copy(model, session.directory / "models/model.h5")
    rows = np.random.default_rng(1).normal(size=(1000, 6))
    np.savez(session.directory / "data.npz", features=rows)
    if needs_tensorflow:
        session.run(CLONE)
        session.run(INSTALL_CHECK)
    done = session.run(command)
    assert done.code == (1 if command.startswith(FAILING) else 0)
    assert is_shown(output.splitlines(), done), done.shown


def test_first_command_needs_no_installation() -> None:
    """The commands of a fresh machine follow, and Python needs three lines."""
    blocks = re.findall(r"^```\w+\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    commands = [line for line in blocks[0].splitlines() if line and not line.startswith("#")]
    assert commands == [
        f"uvx --from git+{project.URL} policytool inspect model.h5",
        f"pip install git+{project.URL}",
    ]
    (python,) = [block for block in blocks if block.startswith("import ")]
    assert len(python.splitlines()) == 3
    assert "policytool.load(" in python
    assert [line.split()[:2] for line in blocks[-1].splitlines()] == [
        ["make", "demo"],
        ["make", "test"],
    ]


def test_three_examples_are_short() -> None:
    """A reader sees each at once. The picture is the fourth."""
    assert len(EXAMPLES) == 3
    assert all(len(output.splitlines()) <= MOST_LINES for _, output in EXAMPLES)


def test_the_text_is_short() -> None:
    """Without blocks of code and the targets of links."""
    text = re.sub(r"^```.*?^```$", "", README, flags=re.MULTILINE | re.DOTALL)
    assert len(re.sub(r"\]\([^)]*\)", "]", text).split()) <= MOST_WORDS
    (summary,) = re.findall(r"^\*\*(.*)\*\*$", text, re.MULTILINE)
    assert len(summary.split()) <= MOST_WORDS_OF_SUMMARY


def test_links_are_absolute() -> None:
    """A package index shows the README without the files beside it."""
    links = re.findall(r"\]\(([^)]+)\)", README)
    places = [
        re.fullmatch(rf"{project.URL}/(?:blob|raw)/main/([^#]+)(#.*)?", link) for link in links
    ]
    assert links
    assert not [link for link, place in zip(links, places, strict=True) if place is None]
    assert not [place[1] for place in places if place and not (ROOT / place[1]).exists()]
