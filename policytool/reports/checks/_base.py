"""What a reporter of checks is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from policytool.commands.inspect import Failure
    from policytool.numerics.check_results.checks import Check
    from policytool.reports.layout import View


@dataclass(frozen=True, kw_only=True, slots=True)
class Checks:
    """A check, and how much of it to show."""

    check: Check | None = None
    """None where there is none, for which the failures say why."""

    failures: tuple[Failure, ...] = ()
    everything: bool = False
    """Whether to show every call of a layer, not those alone that matter."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckReporter:
    """A way to show a check."""

    name: str
    render: Callable[[Checks, View], str]
    """
    Pure: the same values and the same view give the same text, which ends in a newline unless it is
    empty.
    """
