"""
The page of ``migrate``: what the new file is for and where it is, what changes and why, and what is
lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.commands.migrate import Status
from policytool.formats import TITLES
from policytool.formats.discovery import display_path
from policytool.releases.releases import get
from policytool.reports._words import failure_facts, generation_words
from policytool.reports.page import Block, Fact, Facts, Page, Tone, Verdict
from policytool.reports.plans import _conversion
from policytool.reports.plans._changes import changes_table
from policytool.reports.plans._facts import facts, loads_in
from policytool.reports.plans._verification import verification_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.commands.migrate import Migration
    from policytool.reports.layout import View
    from policytool.reports.plans._base import Migrations


_SHOWN: Final = 3
"""Layers that are named of each change; HTML and JSON name all."""


def page(migrations: Migrations, view: View) -> Page:
    """Return the page, with a group for each file."""
    return Page(
        groups=tuple(tuple(_blocks(migration, view)) for migration in migrations.migrations),
        failures=failure_facts(migrations.failures),
    )


def headline(migration: Migration) -> str:
    """Return what became of a file, in a line without its path."""
    return _verdict(migration).text


def _blocks(migration: Migration, view: View) -> Iterator[Block]:
    most = None if view.is_searchable else _SHOWN
    yield _verdict(migration)
    yield Facts(facts=(_source(migration), *facts(migration)))
    table = changes_table(migration, most)
    if table is not None:
        yield table
    conversion = migration.plan.conversion
    if conversion is not None and not migration.plan.refusals:
        changes = _conversion.changes(conversion, most)
        if changes is not None:
            yield changes


def _source(migration: Migration) -> Fact:
    plan = migration.plan
    facts = [plan.path, TITLES.get(plan.format, plan.format)]
    if plan.generation is not None:
        facts.append(f"config of {generation_words(plan.generation)}")
    if plan.base_policy is not None:
        facts.append(f"model policy {plan.base_policy}")
    return Fact(label="original", text=" · ".join(facts))


def _verdict(migration: Migration) -> Verdict:
    """Return what became of a file."""
    plan, status = migration.plan, migration.status
    target = display_path(migration.target or migration.source)
    match status:
        case Status.UNCHANGED:
            reason = (
                f"{plan.suffix} does not apply to any layer, for the reasons below"
                if plan.kept
                else "nothing to change"
            )
            return Verdict.whole(subject=plan.path, text=f"unchanged; {reason}", tone=Tone.PLAIN)
        case Status.SKIPPED:
            return Verdict.whole(subject=target, text="already exists, skipped", tone=Tone.PLAIN)
        case Status.BLOCKED:
            count = len(plan.refusals)
            problems = f"{count} problem{'s' if count != 1 else ''}"
            return Verdict.whole(
                subject=plan.path,
                text=f"nothing was written because of {problems}; the original is unchanged",
                tone=Tone.BAD,
            )
        case Status.MISSED:
            return Verdict.whole(
                subject=plan.path,
                text=(
                    "nothing was written because predictions differ; the original is unchanged. "
                    "Use --no-verify to write the result without the comparison"
                ),
                tone=Tone.BAD,
            )
    parts = [_purpose(migration), loads_in(migration), *verification_words(migration)]
    return Verdict.whole(
        subject=target,
        text="; ".join(part for part in parts if part),
        tone=Tone.CAUTION
        if migration.not_verified is not None
        else Tone.GOOD
        if status is Status.WRITTEN
        else Tone.MIXED,
    )


def _purpose(migration: Migration) -> str:
    """Return what the new file is for."""
    plan = migration.plan
    written = "written" if migration.status is Status.WRITTEN else "would be written"
    if plan.conversion is not None:
        release = get(plan.conversion.target)
        return f"{written} for {generation_words(release.id)}"
    edits = plan.edits
    values = f"{len(edits):,} config value{'s' if len(edits) != 1 else ''} changed"
    kinds = ", ".join(dict.fromkeys(edit.kind.value for edit in edits))
    backup = (
        f"; the original is kept in {display_path(migration.written.backup)}"
        if migration.written is not None and migration.written.backup is not None
        else ""
    )
    changed = f"{values}{f' ({kinds})' if kinds else ''}" if edits else "no config values changed"
    return f"{written} with {changed}{backup}"
