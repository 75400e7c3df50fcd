"""
The rules of ``audit``, one module each, by family.

To add a rule, write its module and add one line to the tuple of its family's package. An id is never used again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.rules import loading, numerics, safety, spelling, training, truth
from policytool.rules._base import Case, Device, Needs, Question, Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.finding import Finding

FAMILIES: Final = {
    "PT1": ("spelling", "how policies are written", spelling.RULES),
    "PT2": ("training", "how training goes on", training.RULES),
    "PT3": ("numerics", "what is computed wrongly", numerics.RULES),
    "PT4": ("truth", "what a file says against what it holds", truth.RULES),
    "PT5": ("loading", "who refuses the file", loading.RULES),
    "PT6": ("safety", "what a file does to who loads it", safety.RULES),
}
"""The beginning of the ids to the family's name, what it is about, and its rules."""

RULES: Final[tuple[Rule, ...]] = tuple(rule for _, _, rules in FAMILIES.values() for rule in rules)
BY_ID: Final = {rule.id: rule for rule in RULES}


def findings(case: Case, question: Question) -> Iterator[Finding]:
    """Yield what every rule finds in a model, in the order of the rules."""
    for rule in RULES:
        yield from rule.check(case, question)


__all__ = ["BY_ID", "FAMILIES", "RULES", "Case", "Device", "Needs", "Question", "Rule", "findings"]
