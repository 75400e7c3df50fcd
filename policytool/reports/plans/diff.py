"""
The configs before and after as a unified diff, indented so that each value has a line.

The edits determine the differences, so that no comparison is needed: printing the diff of a config
of 60,000 lines takes no longer than printing the config.
"""

from __future__ import annotations

import copy
import difflib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policytool.formats.discovery import display_path
from policytool.reports.layout import clean
from policytool.reports.reporter import Reporter
from policytool.support.text.jsontext import ABSENT, place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.commands.migrate import Migration
    from policytool.formats.edits import Edit
    from policytool.migration.plan import Conversion
    from policytool.reports.layout import View
    from policytool.reports.plans.fields import Migrations
    from policytool.support.text.jsontext import Absent, Json

_CONTEXT: Final = 3
"""Lines shown around a change, as in ``diff -u``."""

_MARK: Final = "\x00policytool:"
_STYLES: Final = {"+": "good", "-": "bad", "@": "mixed"}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Change:
    """Consecutive lines that are equal in both texts, or that one edit changes."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    same: bool


def render(migrations: Migrations, view: View) -> str:
    """Return the diffs of all files."""
    lines = [line for migration in migrations.migrations for line in _of_file(migration)]
    return "".join(f"{view.paint(clean(line), _STYLES.get(line[:1], ''))}\n" for line in lines)


def _of_file(migration: Migration) -> Iterator[str]:
    target = display_path(migration.target) if migration.target else migration.plan.path
    if migration.plan.conversion is not None:
        if migration.plan.refusals:
            return
        yield from _of_conversion(migration, migration.plan.conversion, target)
        return
    for part, value in migration.parts.items():
        edits = [edit for edit in migration.plan.edits if edit.address.part == part]
        if edits:
            yield f"--- {migration.plan.path} {part}"
            yield f"+++ {target} {part}"
            yield from _hunks(_changes(value, edits))


def _of_conversion(migration: Migration, conversion: Conversion, target: str) -> Iterator[str]:
    """Yield the lines of the diff between the configs of both files."""
    for part, value in migration.parts.items():
        before, after = (
            json.dumps(config, indent=2, ensure_ascii=False).splitlines()
            for config in (value, conversion.content.config)
        )
        yield from difflib.unified_diff(
            before,
            after,
            f"{migration.plan.path} {part}",
            f"{target} {part}",
            n=_CONTEXT,
            lineterm="",
        )


def _changes(value: Json, edits: list[Edit]) -> list[_Change]:
    """Return a config as groups of unchanged and of changed lines."""
    marked = copy.deepcopy(value)
    for position, edit in enumerate(edits):
        holder, key = place(marked, edit.address.pointer)
        holder[key] = f"{_MARK}{position}"
    runs: list[_Change] = []
    same: list[str] = []
    escaped = json.dumps(_MARK)[1:-1]
    for line in json.dumps(marked, indent=2, ensure_ascii=False).splitlines():
        head, mark, tail = line.partition(f'"{escaped}')
        if not mark:
            same.append(line)
            continue
        number, _, comma = tail.partition('"')
        edit = edits[int(number)]
        if edit.before is ABSENT and same and not comma:  # the key before it gets a comma
            last = same.pop()
            runs.append(_Change(before=tuple(same), after=tuple(same), same=True))
            runs.append(
                _Change(
                    before=(last.removesuffix(","),),
                    after=(last, *_lines(head, edit.after, comma)),
                    same=False,
                )
            )
        else:
            runs.append(_Change(before=tuple(same), after=tuple(same), same=True))
            runs += _line_changes(_lines(head, edit.before, comma), _lines(head, edit.after, comma))
        same = []
    return [*runs, _Change(before=tuple(same), after=tuple(same), same=True)]


def _line_changes(before: tuple[str, ...], after: tuple[str, ...]) -> Iterator[_Change]:
    """Yield the equal and the different lines of one edit."""
    for tag, i, j, k, l in difflib.SequenceMatcher(a=before, b=after, autojunk=False).get_opcodes():
        yield _Change(before=before[i:j], after=after[k:l], same=tag == "equal")


def _lines(head: str, value: Json | Absent, comma: str) -> tuple[str, ...]:
    if value is ABSENT:
        return ()
    indent = " " * (len(head) - len(head.lstrip()))
    first, *rest = json.dumps(value, indent=2, ensure_ascii=False).splitlines()
    lines = [head + first, *(indent + line for line in rest)]
    return (*lines[:-1], lines[-1] + comma)


def _hunks(changes: list[_Change]) -> Iterator[str]:
    """Yield the hunks of a unified diff; changes that are closer than two contexts share one."""
    old = new = 1
    hunk: list[str] = []
    start = (1, 1)
    for position, change in enumerate(changes):
        if not change.same:
            hunk += [f"-{line}" for line in change.before] + [f"+{line}" for line in change.after]
        else:
            lines, is_last = change.before, position == len(changes) - 1
            if hunk and (is_last or len(lines) > 2 * _CONTEXT):
                yield from _hunk(start, [*hunk, *(f" {line}" for line in lines[:_CONTEXT])])
                hunk = []
            if hunk:
                hunk += [f" {line}" for line in lines]
            elif not is_last:
                context = lines[-_CONTEXT:]
                start = (old + len(lines) - len(context), new + len(lines) - len(context))
                hunk = [f" {line}" for line in context]
        old, new = old + len(change.before), new + len(change.after)


def _hunk(start: tuple[int, int], lines: list[str]) -> Iterator[str]:
    removed = sum(line[0] in " -" for line in lines)
    added = sum(line[0] in " +" for line in lines)
    yield f"@@ -{start[0]},{removed} +{start[1]},{added} @@"
    yield from lines


REPORTER: Final = Reporter(name="diff", render=render)
