"""
The rules of ``audit``, with one module per family.

To add a rule, write its function with the decorator ``rule`` in the module of its family. Do not
reuse ids of removed rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

from msgspec.structs import replace

from policytool.rules import consistency, fixes, formats, loading, numerics, safety, training
from policytool.rules.base import AuditOptions, Device, Needs, Rule, RuleInput

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from policytool.rules.base import Finding


def declared_rules(family: ModuleType) -> tuple[Rule, ...]:
    """Return the rules that the module of a family declares, in the order of their ids."""
    declared = [value for value in vars(family).values() if isinstance(value, Rule)]
    return tuple(sorted(declared, key=lambda entry: entry.id))


FAMILIES: Final = {
    "PT1": ("formats", "formats of stored policies", declared_rules(formats)),
    "PT2": ("training", "changes in training after loading", declared_rules(training)),
    "PT3": ("numerics", "overflow, underflow and rounding", declared_rules(numerics)),
    "PT4": ("consistency", "declared and stored properties", declared_rules(consistency)),
    "PT5": ("loading", "compatibility with releases", declared_rules(loading)),
    "PT6": ("safety", "effects on the machine that loads the model", declared_rules(safety)),
}
"""The name, the topic and the rules of each family, by the prefix of the ids."""

RULES: Final[tuple[Rule, ...]] = tuple(rule for _, _, rules in FAMILIES.values() for rule in rules)
BY_ID: Final = {rule.id: rule for rule in RULES}
TRAINING_RULES: Final = frozenset(
    {*(rule.id for rule in FAMILIES["PT2"][2]), numerics.half_variables.id}
)
"""The ids of the rules whose findings affect only training."""
CONVERSION_RULES: Final = frozenset(
    rule.id
    for rule in (
        loading.incompatible_with_target,
        loading.unknown_compatibility,
        loading.no_compatible_release,
        loading.changed_activation,
        loading.tensorflow_js_fails,
    )
)
"""The ids of the rules whose advice applies if no command converts the model."""


_ADVISING: Final = frozenset({loading.mismatched_variables, *FAMILIES["PT6"][2]})
"""The rules whose advice applies to a damaged file."""


def is_met(need: Needs, options: AuditOptions) -> bool:
    """Return whether the option that a rule needs is set."""
    match need:
        case Needs.TARGET:
            return bool(options.targets)
        case Needs.DEVICE:
            return options.device is not None
        case Needs.WEIGHTS:
            return options.weights
        case Needs.BASELINE:
            return bool(options.signatures)
        case Needs.FORBID:
            return bool(options.forbidden)
    assert_never(need)


def chosen_rules(options: AuditOptions) -> tuple[Rule, ...]:
    """
    Return the rules to run: the selected rules, without those whose required option is not set.
    """
    return tuple(
        rule
        for rule in RULES
        if (options.rules is None or rule.id in options.rules)
        and (rule.needs is None or is_met(rule.needs, options))
    )


def findings(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """
    Yield the findings of the selected rules in a model, in the order of the rules. If no release
    loads a damaged file, only the advice of the rule about the damage and of safety rules applies.
    """
    for rule in chosen_rules(options):
        for finding in rule.check(case, options):
            possible = fixes.with_possible_remedy(case, finding)
            is_moot = rule not in _ADVISING and fixes.is_unloadable(case)
            yield replace(possible, advice=None) if is_moot else possible


__all__ = [
    "BY_ID",
    "CONVERSION_RULES",
    "FAMILIES",
    "RULES",
    "TRAINING_RULES",
    "AuditOptions",
    "Device",
    "Needs",
    "Rule",
    "RuleInput",
    "chosen_rules",
    "findings",
    "is_met",
]
