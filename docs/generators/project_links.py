"""The project's address in files that cannot import it: pages, JSON schemas and pyproject.toml."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from policytool.support import project

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROOT: Final = Path(__file__).parent.parent.parent
SCHEMAS: Final = "policytool/reports/schemas"

_ADDRESS: Final = re.compile(
    r"(?<=git\+)https://[^\s\"']+|(?:(?<=- repo: )|(?<=git clone ))https://\S+"
)
_ACTION: Final = re.compile(r"(?<=uses: )\S+(?=@main\b)")
"""The project's own action: those of others have a version."""

_LINK: Final = re.compile(r"(?<=\]\()https://[^\s)]+?(?=/(?:blob|raw)/main/)")
"""Before a file of the project: package indexes show the README without the files beside it."""

_TABLE: Final = re.compile(r"(?<=\[project\.urls\]\n)(?:\w+ = .*\n)*")
_ID: Final = re.compile(r'(?<="\$id": ")[^"]*')


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


def schema_with_id(name: str) -> str:
    """Return a JSON schema with its identifier."""
    text = (ROOT / name).read_text(encoding="utf-8")
    command = Path(name).name.partition(".")[0]
    version = json.loads(text)["properties"]["version"]["const"]
    return _ID.sub(project.schema_id(command, version), text, count=1)


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "README.md": partial(readme, "README.md"),
    "docs/how-to/ci.md": partial(page_with_address, "docs/how-to/ci.md"),
    **{
        name: partial(page_with_address, name)
        for name in sorted(
            path.relative_to(ROOT).as_posix() for path in (ROOT / "docs/tutorials").glob("*.md")
        )
    },
    "pyproject.toml": partial(package_with_links, "pyproject.toml"),
    **{
        name: partial(schema_with_id, name)
        for name in sorted(
            path.relative_to(ROOT).as_posix() for path in (ROOT / SCHEMAS).glob("*.json")
        )
    },
}
"""File to the function that returns its text."""
