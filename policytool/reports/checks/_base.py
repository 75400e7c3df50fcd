"""What the reports of ``check`` show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from policytool.commands.inspect import Failure
    from policytool.numerics.check_results.checks import Check


@dataclass(frozen=True, kw_only=True, slots=True)
class Checks:
    """A check, and how much of it to show."""

    check: Check | None = None
    """None where there is none, for which the failures say why."""

    failures: tuple[Failure, ...] = ()
    everything: bool = False
    """Whether to show every call of a layer, not those alone that matter."""
