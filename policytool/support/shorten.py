"""A list of names in a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def join_and_count(names: Sequence[str], most: int | None) -> str:
    """
    Return the first of the names and how many more there are, ``a, b and 7 more``; all of them if
    only one would be left out, or if ``most`` is None.
    """
    more = 0 if most is None else len(names) - most
    return ", ".join(names) if more <= 1 else f"{', '.join(names[:most])} and {more:,} more"


def join_first(names: Sequence[str], most: int = 3) -> str:
    """Return the first of the names, and dots where there are more: ``a, b, c, ...``."""
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")
