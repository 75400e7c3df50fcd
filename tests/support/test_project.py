"""The project's address has one home: other files follow it when `make docs` runs."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any, Final

import pytest

from policytool.support import project
from tests.helpers.cases import for_each
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import ROOT
from tests.helpers.scripts import documentation_script

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOME: Final = "policytool/support/project.py"
OTHER: Final = "https://code.example/team/dtype-tool"
SUFFIXES: Final = frozenset(
    {".cff", ".cfg", ".json", ".md", ".py", ".sarif", ".toml", ".yaml", ".yml"}
)
UNVISITED: Final = frozenset({"build", "dist", "fixtures", "shared"})
GENERATED: Final[Any] = documentation_script("project_links").PAGES


def texts() -> Iterator[tuple[str, str]]:
    """Yield the files of the tree that people write, with their text."""
    pending = [ROOT]
    while pending:
        for path in pending.pop().iterdir():
            if path.is_dir() and not is_unvisited(path):
                pending.append(path)
            elif (path.suffix in SUFFIXES or path.name == "Dockerfile") and path.is_file():
                yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def is_unvisited(path: Path) -> bool:
    """Return whether a directory has no files that people write."""
    return (
        path.name in UNVISITED
        or path.name.startswith((".venv", "__pycache__"))
        or path.name.endswith("_cache")
        or path.name in {".git", ".hypothesis"}
    )


@for_each("name", GENERATED)
def test_generated_addresses_are_current(name: str) -> None:
    """Schemas, pages and package metadata have the constant's address."""
    assert (ROOT / name).read_text(encoding="utf-8") == GENERATED[name]()


@THOROUGH
def test_no_other_file_has_the_address() -> None:
    """
    Only the module of the constant and the files that ``make docs`` writes contain the address.
    """
    actual = {name for name, text in texts() if project.URL in text}
    assert actual == {HOME, *GENERATED}


@pytest.mark.parametrize("name", GENERATED)
def test_a_new_address_replaces_the_old_one_everywhere(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Nothing of the old address stays in a generated file, the action's name included."""
    old = project.URL
    monkeypatch.setattr(project, "URL", OTHER)
    text = GENERATED[name]()
    assert OTHER in text
    assert old not in text
    assert not re.search(r"uses: OWNER/", text)


def test_package_metadata_links_to_the_project() -> None:
    """Package indexes show these links."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    assert urls == project.links()


def test_placeholder_address_belongs_to_no_one() -> None:
    """Until the project is published, no link leads to an unrelated site."""
    for address in (project.URL, project.SITE):
        assert re.match(r"https://(?:[a-z]+\.)*example/", address)
