"""What the reports of ``tune`` show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from policytool.commands.inspect import Failure
    from policytool.commands.migrate import Migration
    from policytool.numerics.tuning.results import Tuning


@dataclass(frozen=True, kw_only=True, slots=True)
class Tunings:
    """A search, and what became of the model."""

    tuning: Tuning | None = None
    """None if nothing could run, for which the failures give the reason."""

    migration: Migration | None = None
    """What ``migrate`` wrote or would write; None if nothing was to be written."""

    failures: tuple[Failure, ...] = ()
    everything: bool = False
    """Whether to show every converted layer, not only those with the smallest margin."""

    arguments: tuple[str, ...] = ()
    """The command line; nothing if Python called."""
