"""A part of the report, for any way to show it: a table with its title, and sentences below it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.reports.layout import Cell, Column


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckSection:
    """One part."""

    title: str
    columns: tuple[Column, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()
    beneath: Mapping[int, str] = field(default_factory=dict)
    """
    What stands on a line of its own beneath the row of a number, where the columns have no room for
    it.
    """

    sentences: tuple[str, ...] = ()
    """What stands below the table; nothing in it can move the cursor."""
