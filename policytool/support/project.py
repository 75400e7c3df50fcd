"""
Where the project is, and its version.

``make docs`` writes the address into the files that cannot import it.
"""

from __future__ import annotations

from typing import Final

URL: Final = "https://github.example/OWNER/policytool"
"""
A placeholder until the project is published: no one can register a name below ``.example`` (RFC
2606).
"""


SITE: Final = "https://policytool.example/"
"""The address of the documentation site, and a placeholder like ``URL``."""


def file(path: str) -> str:
    """Return the address of a file in the repository."""
    return f"{URL}/blob/main/{path}"


def page(name: str) -> str:
    """Return the address of a page in ``docs``."""
    return file(f"docs/{name}")


def schema_id(command: str, version: int) -> str:
    """Return the identifier of the JSON schema of a command's report."""
    return f"{URL}/schemas/{command}/{version}"


def links() -> dict[str, str]:
    """Return what package indexes link to, by label."""
    return {
        "Documentation": f"{URL}/tree/main/docs",
        "Source": URL,
        "Changelog": file("CHANGELOG.md"),
        "Issues": f"{URL}/issues",
    }


VERSION: Final = "0.1.0"
"""pyproject.toml takes it from here; asking the installation for it costs 15 ms at start."""
