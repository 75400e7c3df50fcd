"""The result of ``policytool.migrate``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policytool.results._result import Report, Result
from policytool.support.files.remote_path import RemotePath

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from policytool.commands.migrate import Migration as MigrationValue
    from policytool.commands.migrate import Status
    from policytool.migration.plan import Note, Plan, Refusal
    from policytool.reports.plans import Migrations
    from policytool.support.files.remote_path import AnyPath

_WITH_OUTPUT: Final = frozenset({"planned", "written", "skipped"})


@dataclass(frozen=True, slots=True, repr=False)
class Migration(Result):
    """
    The plan for one model, and its outcome.

    Its DataFrame has one row for each layer that changes, and one for the optimizer if it does.
    """

    _value: MigrationValue

    @property
    def path(self) -> str:
        """The path of the original, as reports show it."""
        return self._value.plan.path

    @property
    def status(self) -> Status:
        """
        How it ended, equal to a string.

        ``unchanged`` (nothing to change), ``planned`` (with ``preview``), ``written``, ``blocked``
        (see ``blockers``) or ``missed`` (predictions differ). Nothing is written for the last two.
        """
        return self._value.status

    @property
    def output(self) -> Path | str | None:
        """
        The file or directory that was written, or would be; None if there is none.

        A remote one is the text of its URL.
        """
        target = self._target()
        return target.shown if isinstance(target, RemotePath) else target

    @property
    def backup(self) -> Path | None:
        """The copy of the original that ``in_place`` keeps; None without one."""
        return self._value.written.backup if self._value.written is not None else None

    @property
    def plan(self) -> Plan:
        """Every change: ``edits`` of config values, ``casts`` of variables, ``conversion``, ..."""
        return self._value.plan

    @property
    def blockers(self) -> tuple[Refusal, ...]:
        """Why nothing was written: a ``code``, a ``message``, and the ``path`` of the layer."""
        return self._value.plan.refusals

    @property
    def notes(self) -> tuple[Note, ...]:
        """What is lost or kept: ``severity``, ``code``, ``message`` and the ``path`` of a layer."""
        return self._value.plan.notes

    @property
    def is_verified(self) -> bool:
        """Whether TensorFlow compared the predictions of both models, and they agree."""
        return self._value.comparison is not None and self.status == "written"

    @property
    def not_verified(self) -> str | None:
        """Why predictions were not compared, if that is the default; else None."""
        return self._value.not_verified

    def _target(self) -> AnyPath | None:
        return self._value.target if self.status in _WITH_OUTPUT else None

    def _report(self) -> Report[Migrations]:
        from policytool.reports.plans import PLAN_REPORTERS, Migrations, page

        migrations = Migrations(migrations=(self._value,), failures=())
        return Report(value=migrations, page=page, reporters=PLAN_REPORTERS)

    def _line(self) -> tuple[tuple[str, ...], str]:
        from policytool.formats.discovery import display_path
        from policytool.reports.plans import headline

        target = self._target()
        about = display_path(target) if target is not None else self.path
        return (about,), headline(self._value)

    def _table(self) -> tuple[Sequence[str], Iterable[Sequence[object]]]:
        from policytool.reports.plans import LayerChange, layer_changes

        rows = ([self.path, *change] for change in layer_changes(self._value))
        return ("model.path", *LayerChange._fields), rows
