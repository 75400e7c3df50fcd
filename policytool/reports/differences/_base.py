"""What a reporter of comparisons is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from policytool.commands.diff import DiffOutcome
    from policytool.reports.layout import View


@dataclass(frozen=True, kw_only=True, slots=True)
class Differences:
    """A comparison, and how much of it to show."""

    outcome: DiffOutcome
    everything: bool = False
    """Whether to show what is equal, and what is only spelled differently."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DifferenceReporter:
    """A way to show a comparison."""

    name: str
    render: Callable[[Differences, View], str]
    """
    Pure: the same values and the same view give the same text, which ends in a newline unless it is
    empty.
    """
