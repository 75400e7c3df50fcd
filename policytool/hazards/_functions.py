"""Functions of TensorFlow that only compute tensors from tensors, by the names that op layers of Keras 2 have in their configs."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path


def is_pure_function(name: str) -> bool:
    """Return whether the name is on the reviewed list of ``data/pure_functions.json``; a name that is not may still be harmless."""
    return name in _pure_functions()


@cache
def _pure_functions() -> frozenset[str]:
    text = Path(__file__).parent.parent.joinpath("data", "pure_functions.json").read_text(encoding="utf-8")
    groups: dict[str, list[str]] = json.loads(text)["functions"]
    return frozenset(name for names in groups.values() for name in names)
