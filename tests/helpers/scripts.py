"""The scripts in ``fixtures/`` and ``docs/generators/`` as modules, and commands that are run."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from tests.helpers.paths import FIXTURES, ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def fixture_script(name: str) -> Any:  # a script has no package, and no types
    """Return ``fixtures/NAME.py``, whose imports are found beside it."""
    return _script(FIXTURES, name)


def documentation_script(name: str) -> Any:
    """Return ``docs/generators/NAME.py``, whose imports are found beside it."""
    return _script(ROOT / "docs" / "generators", name)


def _script(directory: Path, name: str) -> Any:
    sys.path.insert(0, str(directory))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(directory))


def run_captured(
    command: Sequence[str | Path],
    *,
    check: bool = True,
    timeout: float | None = 60,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    input: str | None = None,  # noqa: A002  # as subprocess.run names it
) -> subprocess.CompletedProcess[str]:
    """Run a command, and return its exit code and its output as text."""
    return subprocess.run(
        command,
        check=check,
        timeout=timeout,
        cwd=cwd,
        env=env,
        input=input,
        capture_output=True,
        text=True,
    )
