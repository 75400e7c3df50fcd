"""
Check that a release may be published: ``python -m tests.packaging.release --tag v1.2.3
--repository https://github.com/OWNER/policytool``.

The tag must match the version of the package, CHANGELOG.md must describe this version, and the name
on PyPI must be free or belong to this repository. With an empty tag, as in a dry run, the version
and the repository are not checked, and the unreleased section of CHANGELOG.md counts too.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from policytool.support import project
from policytool.support.project import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT: Final = Path(__file__).parents[2]
INDEX: Final = "https://pypi.org/pypi/policytool/json"
UNRELEASED: Final = "Unreleased"
_SECONDS: Final = 30


def section(changelog: str, name: str) -> str:
    """Return the text below the heading of a version, or an empty text if there is none."""
    match = re.search(
        rf"^## \[{re.escape(name)}\][^\n]*\n(.*?)(?=^## |^\[[^\]\n]+\]: |\Z)",
        changelog,
        re.MULTILINE | re.DOTALL,
    )
    return "" if match is None else match[1].strip()


def tag_problems(tag: str, version: str, changelog: str) -> Iterator[str]:
    """Yield why a tag does not belong to a version that the changelog describes."""
    if tag and tag != f"v{version}":
        yield f"The tag is {tag}, but the version of the package is {version}. Use v{version}."
    described = section(changelog, version) or (section(changelog, UNRELEASED) if not tag else "")
    if not described:
        yield f"CHANGELOG.md has no section for {version}. Rename the section Unreleased."


def repository_problems(tag: str, repository: str, address: str) -> Iterator[str]:
    """Yield whether the package's links lead to a different repository."""
    if tag and repository != address:
        yield (
            f"The release runs in {repository}, but the links of the package lead to {address}. "
            "Change policytool/support/project.py and run `make docs`."
        )


def owner_problems(metadata: Mapping[str, Any] | None, address: str) -> Iterator[str]:
    """Yield whether the name belongs to another project; it is free without metadata."""
    if metadata is None:
        return
    info = metadata["info"]
    links = [*(info.get("project_urls") or {}).values(), info.get("home_page")]
    if not any(link == address or str(link).startswith(f"{address}/") for link in links):
        yield (
            f"The name policytool on PyPI belongs to another project: none of its links leads to "
            f"{address}. Rename the package, or ask for the name."
        )


def index_metadata(url: str = INDEX) -> Mapping[str, Any] | None:
    """
    Return what the index knows of the name, or None if the name is free.

    :raises OSError: if the index does not answer.
    """
    try:
        with urllib.request.urlopen(url, timeout=_SECONDS) as answer:  # noqa: S310  # an https constant
            result: Mapping[str, Any] = json.load(answer)
            return result
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise


def main(arguments: list[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tag", required=True, help="the tag of the release, or an empty text")
    parser.add_argument("--repository", required=True, help="the address of the repository")
    parsed = parser.parse_args(arguments)
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    metadata = index_metadata()
    problems = [
        *tag_problems(parsed.tag, VERSION, changelog),
        *repository_problems(parsed.tag, parsed.repository, project.URL),
        *owner_problems(metadata, project.URL),
    ]
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    if not problems:
        state = "is free" if metadata is None else "belongs to this project"
        print(f"policytool {VERSION} may be published; the name on PyPI {state}.")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
