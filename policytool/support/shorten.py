"""A list of names in a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def join_first(names: Sequence[str], most: int = 3) -> str:
    """Return the first of the names, and dots where there are more: ``a, b, c, ...``."""
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")
