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

_ADDRESS: Final = re.compile(r'(?<=git\+)https://[^\s"]+|(?<=- repo: )https://\S+')
_ACTION: Final = re.compile(r"(?<=uses: )\S+(?=@main\b)")
"""The project's own action: those of others have a version."""

_TABLE: Final = re.compile(r"(?<=\[project\.urls\]\n)(?:\w+ = .*\n)*")
_SITE: Final = re.compile(r"(?<=^site_url: ).*", re.MULTILINE)
_REPOSITORY: Final = re.compile(r"(?<=^repo_url: ).*", re.MULTILINE)
_ID: Final = re.compile(r'(?<="\$id": ")[^"]*')


def page_with_address(name: str) -> str:
    """Return a page whose recipes name the project's address."""
    text = _ADDRESS.sub(project.URL, (ROOT / name).read_text(encoding="utf-8"))
    return _ACTION.sub(urlsplit(project.URL).path.strip("/"), text)


def package_with_links(name: str) -> str:
    """Return pyproject.toml with the project's links."""
    lines = "".join(f'{label} = "{address}"\n' for label, address in project.links().items())
    return _TABLE.sub(lines, (ROOT / name).read_text(encoding="utf-8"), count=1)


def site_with_addresses(name: str) -> str:
    """Return mkdocs.yml with the addresses of the site and of the repository."""
    text = (ROOT / name).read_text(encoding="utf-8")
    text = _SITE.sub(project.SITE, text, count=1)
    return _REPOSITORY.sub(project.URL, text, count=1)


def schema_with_id(name: str) -> str:
    """Return a JSON schema with its identifier."""
    text = (ROOT / name).read_text(encoding="utf-8")
    command = Path(name).name.partition(".")[0]
    version = json.loads(text)["properties"]["version"]["const"]
    return _ID.sub(project.schema_id(command, version), text, count=1)


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "README.md": partial(page_with_address, "README.md"),
    "docs/index.md": partial(page_with_address, "docs/index.md"),
    "docs/how-to/ci.md": partial(page_with_address, "docs/how-to/ci.md"),
    "mkdocs.yml": partial(site_with_addresses, "mkdocs.yml"),
    "pyproject.toml": partial(package_with_links, "pyproject.toml"),
    **{
        name: partial(schema_with_id, name)
        for name in sorted(
            path.relative_to(ROOT).as_posix() for path in (ROOT / SCHEMAS).glob("*.json")
        )
    },
}
"""File to the function that returns its text."""
