"""
The project's address and version in files that cannot import them: pages, JSON schemas,
pyproject.toml, and the files of GitHub, Docker, conda-forge and the citation.
"""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from report_schemas import PAGES as SCHEMAS

from policytool.support import project
from policytool.support.project import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROOT: Final = Path(__file__).parent.parent.parent

_ADDRESS: Final = re.compile(
    r"(?<=git\+)https://[^\s\"']+|(?:(?<=- repo: )|(?<=git clone ))https://\S+"
)
_ACTION: Final = re.compile(r"(?<=uses: )\S+(?=@main\b)")
"""The project's own action: those of others have a version."""

_LINK: Final = re.compile(r"(?<=\]\()https://[^\s)]+?(?=/(?:blob|raw)/main/)")
"""Before a file of the project: package indexes show the README without the files beside it."""

_TABLE: Final = re.compile(r"(?<=\[project\.urls\]\n)(?:\w+ = .*\n)*")
_LABEL: Final = r"(?<=opencontainers\.image\.{}=\")[^\"]*"

_PLACES: Final[Mapping[str, Mapping[str, Callable[[], str]]]] = {
    "CITATION.cff": {
        r"(?<=^version: ).*": lambda: VERSION,
        r"(?<=^repository-code: ).*": lambda: json.dumps(project.URL),
    },
    "mkdocs.yml": {
        r"(?<=^site_url: ).*": lambda: project.SITE,
        r"(?<=^repo_url: ).*": lambda: project.URL,
    },
    "Dockerfile": {
        _LABEL.format("version"): lambda: VERSION,
        _LABEL.format("source"): lambda: project.URL,
        _LABEL.format("documentation"): lambda: project.links()["Documentation"],
    },
    ".github/ISSUE_TEMPLATE/config.yml": {
        r"(?<=name: Documentation\n    url: ).*": lambda: project.links()["Documentation"],
        r"(?<=name: Vulnerability\n    url: ).*": lambda: f"{project.URL}/security/advisories/new",
    },
    ".github/conda-forge/recipe.yaml": {
        r"(?<=^  version: )\".*": lambda: json.dumps(VERSION),
        r"(?<=^  homepage: ).*": lambda: project.URL,
        r"(?<=^  repository: ).*": lambda: project.URL,
        r"(?<=^  documentation: ).*": lambda: project.links()["Documentation"],
    },
}
"""File to the places in it, as regular expressions, and the text of each."""


def page_with_address(name: str) -> str:
    """Return a page whose recipes name the project's address."""
    text = _ADDRESS.sub(project.URL, (ROOT / name).read_text(encoding="utf-8"))
    return _ACTION.sub(urlsplit(project.URL).path.strip("/"), text)


def readme(name: str) -> str:
    """Return the README, whose links and pictures have the project's address."""
    return _LINK.sub(project.URL, page_with_address(name))


def package_with_links(name: str) -> str:
    """Return pyproject.toml with the project's links."""
    lines = "".join(f'{label} = "{address}"\n' for label, address in project.links().items())
    return _TABLE.sub(lines, (ROOT / name).read_text(encoding="utf-8"), count=1)


def file_with_places(name: str) -> str:
    """Return a file with the project's address and version in each of its places."""
    text = (ROOT / name).read_text(encoding="utf-8")
    for pattern, value in _PLACES[name].items():
        text, count = re.subn(pattern, value().replace("\\", r"\\"), text, flags=re.MULTILINE)
        if count != 1:
            raise ValueError(f"{name} has {count} places that match {pattern}")
    return text


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "README.md": partial(readme, "README.md"),
    "docs/index.md": partial(page_with_address, "docs/index.md"),
    "docs/how-to/ci.md": partial(page_with_address, "docs/how-to/ci.md"),
    "docs/how-to/record.md": partial(page_with_address, "docs/how-to/record.md"),
    **{
        name: partial(page_with_address, name)
        for name in sorted(
            path.relative_to(ROOT).as_posix() for path in (ROOT / "docs/tutorials").glob("*.md")
        )
    },
    "pyproject.toml": partial(package_with_links, "pyproject.toml"),
    **{name: partial(file_with_places, name) for name in _PLACES},
    **SCHEMAS,
}
"""File to the function that returns its text."""
