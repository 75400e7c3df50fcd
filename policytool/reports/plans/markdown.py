"""
The report of a migration for pull requests: GitHub-flavoured Markdown with what changes, why, and
who loads the file then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.discovery import display_path
from policytool.reports._markdown import code, prose, row
from policytool.reports.plans._base import PlanReporter
from policytool.reports.plans._content import changes, conversion_changes, facts, subject

if TYPE_CHECKING:
    from policytool.commands.migrate import Migration
    from policytool.reports.layout import View
    from policytool.reports.plans._base import Migrations

_COLUMNS: Final = ("layer", "before", "after", "why")
_REWRITTEN: Final = ("layers", "written otherwise")


def render(found: Migrations, _view: View) -> str:
    """Return the report as Markdown, a section per file."""
    return "\n".join("\n".join(_migration(migration)) + "\n" for migration in found.migrations)


def _migration(migration: Migration) -> list[str]:
    target = (
        f" → {code(display_path(migration.target))}"
        if migration.target is not None and migration.target != migration.source
        else ""
    )
    lines = [f"### {code(migration.plan.path)}{target}", "", prose(" · ".join(subject(migration)))]
    rows = [
        row((code(change.name), prose(change.before), prose(change.after), prose(change.reason)))
        for change in changes(migration)
    ]
    if rows:
        lines += ["", row(_COLUMNS), row(["---"] * len(_COLUMNS)), *rows]
    others = [row((code(layers), prose(text))) for layers, text in conversion_changes(migration)]
    if others:
        lines += ["", row(_REWRITTEN), row(["---"] * len(_REWRITTEN)), *others]
    return [*lines, "", *(f"- **{label}** {prose(text)}" for label, text, _ in facts(migration))]


REPORTER: Final = PlanReporter(name="markdown", render=render)
