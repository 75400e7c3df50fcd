"""
The page of ``diff``: how much differs, which files were compared, and what differs layer by layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.reports._words import failure_facts
from policytool.reports.differences._content import (
    SPELLED,
    about,
    entries,
    equal_in_meaning,
    rows_of,
    summary,
)
from policytool.reports.page import (
    Block,
    Column,
    Fact,
    Facts,
    Notes,
    Page,
    Sentence,
    Table,
    Tone,
    Verdict,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.comparison.result import Comparison
    from policytool.reports.differences._content import Differences
    from policytool.reports.layout import View

_COLUMNS: Final = (
    Column(title="layer", minimum=18, is_name=True),
    Column(title="what", minimum=15),
    Column(title="A", minimum=14),
    Column(title="B", minimum=26),  # says by how much values differ
)


def page(differences: Differences, _view: View) -> Page:
    """Return the page; an empty one if a file could not be read."""
    comparison = differences.outcome.comparison
    if comparison is None:
        return Page(groups=(), failures=failure_facts(differences.outcome.failures))
    return Page(groups=(tuple(_blocks(comparison, everything=differences.everything)),))


def _blocks(comparison: Comparison, *, everything: bool) -> Iterator[Block]:
    yield Verdict.whole(
        text=summary(comparison), tone=Tone.CAUTION if comparison.differs else Tone.GOOD
    )
    if comparison.differs or everything:
        yield Facts(
            facts=tuple(
                Fact(label=label, text=about(side))
                for label, side in (("A", comparison.a), ("B", comparison.b))
            )
        )
    rows = tuple(rows_of(list(entries(comparison, everything=everything)), everything=everything))
    if rows:
        yield Table(columns=_COLUMNS, rows=rows)
    if any(SPELLED in cell.text[: len(SPELLED)] for row in rows for cell in row.cells[1:2]):
        yield Sentence(
            text=f"{SPELLED}written differently, but with the same meaning", tone=Tone.DIM
        )
    notes = [note.message for note in comparison.notes]
    if not everything and (equality_note := equal_in_meaning(comparison)) is not None:
        notes.insert(0, equality_note)
    if notes:
        yield Notes(texts=tuple(notes))
