"""
Which findings count. Pure.

Here are the words by which a user calls rules: ids, beginnings of ids, names, and ``ALL``.
``suppressions`` lets findings pass, with a reason or for files that match a glob, and ``baselines``
remembers them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policytool import rules
from policytool.support.errors import UsageError, short
from policytool.support.text.phrases import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from policytool.rules import AuditOptions


ALL: Final = "ALL"
_BEGINNING: Final = re.compile(r"PT[0-9]{1,3}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Selector:
    """One word for rules."""

    text: str
    rules: frozenset[str]
    """The ids that it means; none for a family that has no rules."""

    weight: int
    """
    How specific it is: the longer the beginning of an id, the more; a name is as specific as an id.
    """


def selector(text: str, option: str) -> Selector:
    """
    Return what a word means.

    :raises UsageError: for one that means no rule and no family, with the nearest that does.
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
    Return what words mean, each of which may be several with commas between them.

    :raises UsageError: for what means no rule.
    """
    return tuple(
        selector(text, option)
        for word in words
        for part in word.split(",")
        if (text := part.strip())
    )


def ids_of(words: Iterable[str], option: str) -> frozenset[str]:
    """
    Return the ids that words mean together.

    :raises UsageError: for what means no rule, and where no word is given.
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
    Return the ids of the rules that are asked; without ``select`` all are that are not ignored.

    Of the words that mean a rule the most specific decides, and ``ignore`` where two are equally
    so, as in ruff.
    """
    selected = tuple(select) or (selector(ALL, "--select"),)
    ignored = tuple(ignore)
    return frozenset(
        rule.id for rule in rules.RULES if _weight(rule.id, selected) > _weight(rule.id, ignored)
    )


def names_training(select: Iterable[Selector]) -> bool:
    """
    Return whether a word means only rules about training, whose findings are then warnings.

    ``ALL`` and families with other rules as well do not.
    """
    return any(entry.rules and entry.rules <= rules.TRAINING_RULES for entry in select)


def unused_words(select: Iterable[Selector], options: AuditOptions) -> tuple[str, ...]:
    """
    Return a sentence for each word that the user selects and that means only rules whose option is
    not given.
    """
    silent = []
    for word in select:
        needs = {rule.needs for rule in rules.RULES if rule.id in word.rules and word.text != ALL}
        missing = sorted(
            need.value for need in needs if need is not None and not rules.is_met(need, options)
        )
        if missing and len(missing) == len(needs):
            silent.append(f"{word.text} was skipped: it needs {' or '.join(missing)}")
    return tuple(silent)


def _weight(identifier: str, words: Iterable[Selector]) -> int:
    return max((word.weight for word in words if identifier in word.rules), default=-1)
