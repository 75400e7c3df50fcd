"""What a model with a fault is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from policytool.rules import AuditOptions
from tests.helpers.paths import FIXTURES

Make = Callable[[Path], Path]
"""Writes a model into an empty directory, and returns its path."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A model that rules of one family are tried on."""

    rule: str
    """The rule that the model is for; the other rules of its family audit the model too."""

    name: str
    make: Make
    options: AuditOptions = field(default_factory=AuditOptions)
    is_fixed: bool = False
    """Whether `migrate` with the arguments of a remedy makes the rule silent."""


def targeted(rule: str, name: str, *targets: str) -> Fault:
    """Return a fixture that is audited for targets."""
    label = f"{name} for {', '.join(targets)}"
    return Fault(rule, label, lambda _: FIXTURES / name, AuditOptions(targets=targets))
