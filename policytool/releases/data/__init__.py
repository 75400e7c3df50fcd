"""Facts as data: ``NAME.json``, each with its source, written by the scripts in ``fixtures/``."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any


@cache
def read(name: str) -> dict[str, Any]:
    """Return the facts in ``NAME.json``. Callers must not change them."""
    # importlib.resources takes 8 ms to import.
    text = Path(__file__).with_name(f"{name}.json").read_text(encoding="utf-8")
    facts: dict[str, Any] = json.loads(text)
    return facts
