"""The Python versions that the package supports, and where they are installed."""

from __future__ import annotations

import re
import shutil
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_CLASSIFIER: Final = re.compile(r"Programming Language :: Python :: (3\.\d+)")


def supported_versions(pyproject: str) -> tuple[str, ...]:
    """Return the Python versions that the classifiers of a pyproject.toml list."""
    classifiers = tomllib.loads(pyproject)["project"]["classifiers"]
    matches = map(_CLASSIFIER.fullmatch, classifiers)
    return tuple(match[1] for match in matches if match is not None)


def installed(
    versions: tuple[str, ...],
    *,
    running: tuple[str, str] = (f"{sys.version_info[0]}.{sys.version_info[1]}", sys.executable),
    which: Callable[[str], str | None] = shutil.which,
    pyenv: Path | None = None,
) -> Mapping[str, str]:
    """
    Return the interpreter of each version that is installed: the running one, one on PATH, or one
    of pyenv.

    :raises ValueError: if the running Python is not a supported version.
    """
    version, executable = running
    if version not in versions:
        raise ValueError(f"Python {version} is not supported; use one of {', '.join(versions)}")
    found = {version: executable}
    for other in versions:
        if other not in found and (path := _pyenv(other, pyenv) or which(f"python{other}")):
            found[other] = path
    return {version: found[version] for version in versions if version in found}


def _pyenv(version: str, pyenv: Path | None) -> str | None:
    """Return the newest patch release of a version below ``~/.pyenv``."""
    paths = (pyenv or Path.home() / ".pyenv").glob(f"versions/{version}.*/bin/python")
    numbered = [path for path in paths if path.parts[-3].rpartition(".")[2].isdecimal()]
    newest = max(numbered, key=lambda path: int(path.parts[-3].rpartition(".")[2]), default=None)
    return None if newest is None else str(newest)
