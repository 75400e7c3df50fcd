"""The lists of what is known to do harm, and of what only computes, as they lie in the package."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@cache
def data(name: str) -> Mapping[str, Any]:
    """Return a file of ``policytool/releases/data``."""
    text = (
        Path(__file__).parent.parent.joinpath("data", f"{name}.json").read_text(encoding="utf-8")
    )  # importlib.resources takes 8 ms to import
    found: Mapping[str, Any] = json.loads(text)
    return found
