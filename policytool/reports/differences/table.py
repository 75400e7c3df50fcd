"""
The report of a comparison for people: one line that says how much differs, then what, layer by
layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.reports.differences._base import DifferenceReporter
from policytool.reports.differences._content import SPELLED, about, alike, entries, summary
from policytool.reports.layout import Column, clean, table, wrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policytool.reports.differences._base import Differences
    from policytool.reports.layout import Cell, View

_LABEL: Final = 3


def render(found: Differences, view: View) -> str:
    """
    Return the report as text for a terminal of the view's width; nothing where a file could not be
    read.
    """
    comparison = found.outcome.comparison
    if comparison is None:
        return ""
    lines = wrap("", summary(comparison), view, "title", indent=0)
    shown = list(entries(comparison, everything=found.everything))
    if comparison.differs or found.everything:
        lines += [
            line
            for name, side in (("A", comparison.a), ("B", comparison.b))
            for line in wrap(f"{name:{_LABEL}}", about(side, view), view)
        ]
    rows = [row for entry in alike(shown, everything=found.everything) for row in entry]
    if rows:
        lines += ["", *table(_columns(rows), rows, view), ""]
    if any(row[1].text.startswith(SPELLED) for row in rows):
        lines += wrap(SPELLED, "spelled differently and the same in meaning", view, "dim")
    for note in comparison.notes:
        lines += wrap("! ", clean(note.message), view, "dim")
    return "\n".join(lines).rstrip("\n") + "\n"


def _columns(rows: Sequence[Sequence[Cell]]) -> list[Column]:
    longest = max(len(row[0].text) for row in rows)
    return [
        Column(title="layer", minimum=min(longest, 18), middle=True),
        Column(title="what", minimum=15, middle=True),
        Column(title="A", minimum=14),
        Column(title="B", minimum=26),  # says by how much values differ
    ]


REPORTER: Final = DifferenceReporter(name="table", render=render)
