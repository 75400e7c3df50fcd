"""A part of the page: a table with its title, and sentences below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policytool.reports.page import Block, Section, Sentence, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policytool.reports.page import Column, Row


def table_section(
    title: str,
    columns: Sequence[Column],
    rows: Sequence[Row],
    sentences: Sequence[str] = (),
) -> Section:
    """Return a part; without a table if there are no rows."""
    table = Table(columns=tuple(columns), rows=tuple(rows))
    blocks: list[Block] = [table] if rows else []
    return Section(title=title, blocks=(*blocks, *(Sentence(text=text) for text in sentences)))
