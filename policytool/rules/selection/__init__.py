"""
Selection and suppression of findings. Pure.

This module parses the selectors of rules: ids, prefixes of ids, names, and ``ALL``.
``suppressions`` suppresses findings, with a reason or for files that match a glob, and
``baselines`` records accepted findings.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from policytool import rules
from policytool.support.errors import UsageError, short
from policytool.support.text.phrases import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from policytool.rules import AuditOptions


ALL: Final = "ALL"
_BEGINNING: Final = re.compile(r"PT[0-9]{1,3}")


class Selector(Struct, frozen=True, kw_only=True):
    """A selector of rules."""

    text: str
    rules: frozenset[str]
    """The ids of the selected rules; empty for a family without rules."""

    weight: int
    """
    The specificity: the length of the prefix of an id. A name is as specific as an id.
    """


def selector(text: str, option: str) -> Selector:
    """
    Parse a selector.

    :raises UsageError: if it selects neither a rule nor a family, with the closest valid selector.
    """
    if text == ALL:
        return Selector(text=text, rules=frozenset(rule.id for rule in rules.RULES), weight=0)
    named = next((rule.id for rule in rules.RULES if rule.name == text), None)
    if named is not None:
        return Selector(text=text, rules=frozenset({named}), weight=len(named))
    begun = frozenset(rule.id for rule in rules.RULES if rule.id.startswith(text))
    if _BEGINNING.fullmatch(text) and (begun or text in rules.FAMILIES):
        return Selector(text=text, rules=begun, weight=len(text))
    known = (
        ALL,
        *rules.FAMILIES,
        *(rule.id for rule in rules.RULES),
        *(rule.name for rule in rules.RULES),
    )
    raise UsageError(
        f"{option}: unknown rule {short(text)!r}{did_you_mean(short(text), known)} Run "
        "`policytool explain rules` for a list"
    )


def selectors(words: Iterable[str], option: str) -> tuple[Selector, ...]:
    """
    Parse selectors; each text may contain several selectors, separated by commas.

    :raises UsageError: if a selector does not select a rule.
    """
    return tuple(
        selector(text, option)
        for word in words
        for part in word.split(",")
        if (text := part.strip())
    )


def ids_of(words: Iterable[str], option: str) -> frozenset[str]:
    """
    Return the ids of all rules that the selectors select.

    :raises UsageError: if a selector does not select a rule, or if there are no selectors.
    """
    chosen = selectors(words, option)
    if not chosen:
        raise UsageError(
            f"{option} is empty; expected rule IDs such as PT101, prefixes such as PT1, "
            f"names, or {ALL}"
        )
    return frozenset[str]().union(*(entry.rules for entry in chosen))


def select_rules(select: Iterable[Selector], ignore: Iterable[Selector]) -> frozenset[str]:
    """
    Return the ids of the rules to run; without ``select``, all rules that are not ignored.

    If several selectors match a rule, the most specific one decides. If two are equally specific,
    ``ignore`` takes precedence, as in ruff.
    """
    selected = tuple(select) or (selector(ALL, "--select"),)
    ignored = tuple(ignore)
    return frozenset(
        rule.id for rule in rules.RULES if _weight(rule.id, selected) > _weight(rule.id, ignored)
    )


def names_training(select: Iterable[Selector]) -> bool:
    """
    Return whether a selector selects only rules about training, whose findings are then warnings.

    ``ALL``, and families that also have other rules, are not such selectors.
    """
    return any(entry.rules and entry.rules <= rules.TRAINING_RULES for entry in select)


def unused_words(select: Iterable[Selector], options: AuditOptions) -> tuple[str, ...]:
    """
    Return a sentence for each of the user's selectors that selects only rules whose required option
    is not set.
    """
    silent = []
    for word in select:
        needs = {rule.needs for rule in rules.RULES if rule.id in word.rules and word.text != ALL}
        missing = sorted(
            option.value
            for option in needs
            if option is not None and not rules.is_met(option, options)
        )
        if missing and len(missing) == len(needs):
            silent.append(f"{word.text} was skipped: it needs {' or '.join(missing)}")
    return tuple(silent)


def _weight(identifier: str, words: Iterable[Selector]) -> int:
    return max((word.weight for word in words if identifier in word.rules), default=-1)
