"""The command that writes the model with the layers that were found."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from policytool.commands.destinations import default_name
from policytool.commands.migrate import Status
from policytool.formats.discovery import display_path
from policytool.reports import shell
from policytool.reports.migrate_command import migrate_command

if TYPE_CHECKING:
    from policytool.commands.migrate import Migration
    from policytool.reports.tuning._base import Tunings

_REPORT: Final = "--report"
_JSON: Final = "json="
_DONE: Final = frozenset({Status.WRITTEN, Status.UNCHANGED, Status.BLOCKED})
"""After these, a command would do nothing, or fail."""


def command(found: Tunings) -> tuple[str, ...]:
    """Return the words of the command; nothing if the model is written, or no set was found."""
    tuning, migration = found.tuning, found.migration
    if tuning is None or not tuning.passed or tuning.options is None:
        return ()
    if migration is not None and migration.status in _DONE:
        return ()
    output = _output(migration)
    plan = _plan(found.arguments)
    if plan is not None and migration is not None:
        return ("policytool", "migrate", "--plan", plan, *output)
    return (*migrate_command(tuning.reference.path, tuning.options), *output)


def _output(migration: Migration | None) -> tuple[str, ...]:
    """Return the option for an output that does not have the default name."""
    if migration is None or migration.target is None:
        return ()
    default = migration.source.with_name(default_name(migration.source, migration.plan.suffix))
    target = display_path(migration.target)
    return () if target == display_path(default) else ("-o", shell.file(target))


def _plan(arguments: tuple[str, ...]) -> str | None:
    """Return the file that the JSON report is written to, which ``--plan`` reads."""
    values = [
        word.removeprefix(f"{_REPORT}=") if word.startswith(f"{_REPORT}=") else after
        for word, after in itertools.pairwise((*arguments, ""))
        if word == _REPORT or word.startswith(f"{_REPORT}=")
    ]
    files = [value.removeprefix(_JSON) for value in values if value.startswith(_JSON)]
    return files[0] if files else None
