"""
The report of a migration for people: what changes in each layer and why, what stays, what is lost,
and who loads the file then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.discovery import display_path
from policytool.reports.layout import Cell, Column, clean, table, width_of, wrap
from policytool.reports.plans._base import PlanReporter
from policytool.reports.plans._content import changes, conversion_changes, facts, subject

if TYPE_CHECKING:
    from policytool.commands.migrate import Migration
    from policytool.reports.layout import View
    from policytool.reports.plans._base import Migrations

_LABEL: Final = 12
_WIDE: Final = 120
"""From this width on the table has room for the reasons."""


def render(found: Migrations, view: View) -> str:
    """Return the report as text for a terminal of the view's width."""
    return "\n".join(
        "\n".join(_migration(migration, view)) + "\n" for migration in found.migrations
    )


def _migration(migration: Migration, view: View) -> list[str]:
    plan = migration.plan
    arrow = " → " if view.unicode else " -> "
    separator = " · " if view.unicode else " - "
    titles = [clean(plan.path)]
    if migration.target is not None and migration.target != migration.source:
        target = arrow + clean(display_path(migration.target))
        titles = (
            [titles[0] + target]
            if width_of(titles[0] + target) <= view.width
            else [titles[0], target]
        )
    lines = [
        *(view.paint(title, "title") for title in titles),
        *wrap("", separator.join(subject(migration)), view),
    ]
    rows = _rows(migration)
    if rows:
        legend: list[str] = []
        if view.width < _WIDE:
            rows, legend = _with_legend(rows)
        lines += ["", *table(_columns(rows), rows, view)]
        lines += [line for text in legend for line in wrap("     ", text, view, "dim")] + [""]
    lines += _conversion_lines(migration, view)
    for label, text, style in facts(migration):
        start = f"{label} " if label.endswith(":") else f"{label:{_LABEL}}"
        lines += wrap(start, clean(text), view, style)
    return lines


def _conversion_lines(migration: Migration, view: View) -> list[str]:
    """
    Return what a conversion writes otherwise as sentences with their layers below them, for they
    are long and columns would cut them.
    """
    lines = []
    for layers, text in conversion_changes(migration):
        lines += [*wrap("", clean(text), view), *wrap("  ", clean(layers), view, "dim")]
    return [*([] if changes(migration) else [""]), *lines, ""] if lines else []


def _with_legend(rows: list[list[Cell]]) -> tuple[list[list[Cell]], list[str]]:
    """
    Return the rows with numbers for their reasons, and the reasons: a narrow table has no room for
    sentences.
    """
    reasons = list(dict.fromkeys(row[3].text for row in rows))
    numbered = [[*row[:3], Cell(text=str(reasons.index(row[3].text) + 1))] for row in rows]
    return numbered, [f"{number}  {reason}" for number, reason in enumerate(reasons, 1)]


def _columns(rows: list[list[Cell]]) -> list[Column]:
    longest = max(len(row[0].text) for row in rows)
    return [
        Column(title="layer", minimum=min(longest, 20), middle=True),
        Column(title="before", minimum=12),
        Column(title="after", minimum=12),
        Column(title="why", minimum=min(16, max(len(row[3].text) for row in rows))),
    ]


def _rows(migration: Migration) -> list[list[Cell]]:
    return [
        [
            Cell(text=clean(change.name)),
            Cell(text=clean(change.before), style="dim"),
            Cell(text=clean(change.after), style=change.style),
            Cell(text=clean(change.reason)),
        ]
        for change in changes(migration)
    ]


REPORTER: Final = PlanReporter(name="table", render=render)
