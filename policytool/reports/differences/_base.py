"""What the reports of ``diff`` show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from policytool.commands.diff import DiffOutcome


@dataclass(frozen=True, kw_only=True, slots=True)
class Differences:
    """A comparison, and how much of it to show."""

    outcome: DiffOutcome
    everything: bool = False
    """Whether to show what is equal, and what is only spelled differently."""
