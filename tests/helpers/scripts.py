"""The scripts in ``fixtures/`` and ``docs/generators/`` as modules."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from tests.helpers.paths import FIXTURES, ROOT

if TYPE_CHECKING:
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
