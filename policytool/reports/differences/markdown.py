"""
The report of a comparison for pull requests: GitHub-flavoured Markdown with how much differs, what,
and what was not compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.reports._markdown import code, prose, row
from policytool.reports.differences._base import DifferenceReporter
from policytool.reports.differences._content import SPELLED, about, alike, entries, summary

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from policytool.reports.differences._base import Differences
    from policytool.reports.layout import Cell, View

_COLUMNS: Final = ("layer", "what", "A", "B")


def render(found: Differences, view: View) -> str:
    """
    Return the report as Markdown; nothing where a file could not be read.

    It is laid out by whoever shows it, so the view's width counts nothing.
    """
    comparison = found.outcome.comparison
    if comparison is None:
        return ""
    lines = [
        f"### {code(comparison.a.path)} → {code(comparison.b.path)}",
        "",
        prose(summary(comparison)),
    ]
    if comparison.differs or found.everything:
        lines += [
            "",
            *(
                f"- **{label}** {prose(about(side, view))}"
                for label, side in (("A", comparison.a), ("B", comparison.b))
            ),
        ]
    rows = [
        cells
        for entry in alike(
            list(entries(comparison, everything=found.everything)), everything=found.everything
        )
        for cells in _rows(entry)
    ]
    if rows:
        lines += ["", row(_COLUMNS), row(["---"] * len(_COLUMNS)), *rows]
    if comparison.notes:
        lines += ["", *(f"- {prose(note.message)}" for note in comparison.notes)]
    return "\n".join(lines) + "\n"


def _rows(entry: Sequence[Sequence[Cell]]) -> Iterator[str]:
    for layer, what, a, b in entry:
        shown = (
            prose(layer.text.strip()) if layer.style else code(layer.text)
        )  # a layer's path, or how many more are alike
        is_spelling = what.text.startswith(SPELLED)
        said = prose(what.text.removeprefix(SPELLED))
        yield row(
            (shown, f"{said} (spelling)" if is_spelling else said, _value(a.text), _value(b.text))
        )


def _value(text: str) -> str:
    """Return what a side says: JSON as code in one piece."""
    return code(text) if text.startswith(("{", "[", '"')) else prose(text)


REPORTER: Final = DifferenceReporter(name="markdown", render=render)
