"""What the wheel and the source distribution must contain, and nothing else."""

from __future__ import annotations

import tarfile
import zipfile
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

MAN_PAGE: Final = "docs/reference/policytool.1"

_DIST_INFO: Final = frozenset(
    {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
)
_SOURCES: Final = frozenset(
    {
        *(".gitignore", "CHANGELOG.md", "CITATION.cff", "LICENSE", "README.md"),
        *("PKG-INFO", "pyproject.toml", MAN_PAGE),
    }
)


def package_files(root: Path) -> frozenset[str]:
    """Return the files of the package in a source tree, relative to the tree."""
    return frozenset(
        path.relative_to(root).as_posix()
        for path in (root / "policytool").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )


def members(archive: Path) -> frozenset[str]:
    """Return the files in a wheel or a source distribution, without the latter's directory."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return frozenset(wheel.namelist())
    with tarfile.open(archive) as source:
        return frozenset(
            member.name.partition("/")[2] for member in source.getmembers() if member.isfile()
        )


def wheel_problems(names: Iterable[str], package: frozenset[str], version: str) -> Iterator[str]:
    """Yield what a wheel contains beside the package and its man page, and what it lacks."""
    base = f"policytool-{version}"
    expected = {
        *package,
        *(f"{base}.dist-info/{name}" for name in _DIST_INFO),
        f"{base}.data/data/share/man/man1/policytool.1",
    }
    yield from _differences(frozenset(names), frozenset(expected))


def source_problems(names: Iterable[str], package: frozenset[str]) -> Iterator[str]:
    """Yield what a source distribution contains beside what a build needs, and what it lacks."""
    yield from _differences(frozenset(names), package | _SOURCES)


def _differences(found: frozenset[str], expected: frozenset[str]) -> Iterator[str]:
    yield from (f"unexpected file: {name}" for name in sorted(found - expected))
    yield from (f"missing file: {name}" for name in sorted(expected - found))
