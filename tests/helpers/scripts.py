"""The scripts in ``fixtures/`` as modules."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from tests.helpers.paths import FIXTURES


def fixture_script(name: str) -> Any:  # a script has no package, and no types
    """Return ``fixtures/NAME.py``, whose imports are found beside it."""
    sys.path.insert(0, str(FIXTURES))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(FIXTURES))
