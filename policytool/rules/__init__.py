"""
The rules of ``audit``, with one module per rule, grouped by family.

To add a rule, write its module and add one line to the tuple of its family's package. An id is
never used again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

from policytool.rules import consistency, formats, loading, numerics, safety, training
from policytool.rules.base import AuditOptions, Device, Needs, Rule, RuleInput

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.rules.finding import Finding

FAMILIES: Final = {
    "PT1": ("formats", "formats of stored policies", formats.RULES),
    "PT2": ("training", "changes in training after loading", training.RULES),
    "PT3": ("numerics", "overflow, underflow and rounding", numerics.RULES),
    "PT4": ("consistency", "declared and stored properties", consistency.RULES),
    "PT5": ("loading", "compatibility with releases", loading.RULES),
    "PT6": ("safety", "effects on the machine that loads the model", safety.RULES),
}
"""The beginning of the ids to the family's name, what it is about, and its rules."""

RULES: Final[tuple[Rule, ...]] = tuple(rule for _, _, rules in FAMILIES.values() for rule in rules)
BY_ID: Final = {rule.id: rule for rule in RULES}


def is_met(need: Needs, options: AuditOptions) -> bool:
    """Return whether the option that a rule needs was given."""
    match need:
        case Needs.TARGET:
            return bool(options.targets)
        case Needs.DEVICE:
            return options.device is not None
        case Needs.WEIGHTS:
            return options.weights
        case Needs.BASELINE:
            return bool(options.signatures)
    assert_never(need)


def chosen_rules(options: AuditOptions) -> tuple[Rule, ...]:
    """
    Return the rules that look at a model: those chosen whose option, if they need one, was given.
    """
    return tuple(
        rule
        for rule in RULES
        if (options.rules is None or rule.id in options.rules)
        and (rule.needs is None or is_met(rule.needs, options))
    )


def findings(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """Yield what the chosen rules find in a model, in the order of the rules."""
    for rule in chosen_rules(options):
        yield from rule.check(case, options)


__all__ = [
    "BY_ID",
    "FAMILIES",
    "RULES",
    "AuditOptions",
    "Device",
    "Needs",
    "Rule",
    "RuleInput",
    "chosen_rules",
    "findings",
    "is_met",
]
