"""What a reporter of migrations is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from policytool.commands.inspect import Failure
    from policytool.commands.migrate import Migration
    from policytool.reports.layout import View


@dataclass(frozen=True, kw_only=True, slots=True)
class Migrations:
    """What a call did."""

    migrations: tuple[Migration, ...]
    failures: tuple[Failure, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanReporter:
    """A way to show migrations."""

    name: str
    render: Callable[[Migrations, View], str]
    """
    Pure: the same values and the same view give the same text, which ends in a newline unless it is
    empty.
    """
