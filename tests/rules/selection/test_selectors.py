"""What words for rules mean, and which decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from policytool.rules import AuditOptions, Device, Needs, selection
from policytool.support.errors import UsageError
from tests.helpers import stand_in_rules

if TYPE_CHECKING:
    from policytool.rules import Rule

RULES: tuple[Rule, ...] = (
    stand_in_rules.rule("PT101", "one"),
    stand_in_rules.rule("PT102", "two"),
    stand_in_rules.rule("PT111", "three"),
    stand_in_rules.rule("PT301", "four"),
)


@pytest.fixture(autouse=True)
def _rules(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in_rules.use(monkeypatch, *RULES)


def chosen(select: str, ignore: str) -> set[str]:
    """Return the ids that words leave."""
    return set(
        selection.select_rules(
            selection.selectors([select], "--select"), selection.selectors([ignore], "--ignore")
        )
    )


@pytest.mark.parametrize(
    ("select", "ignore", "left"),
    [
        ("", "", "PT101 PT102 PT111 PT301"),
        ("ALL", "", "PT101 PT102 PT111 PT301"),
        ("PT1", "", "PT101 PT102 PT111"),
        ("PT10, PT301", "", "PT101 PT102 PT301"),
        ("two", "", "PT102"),
        ("PT5", "", ""),
        ("", "PT1", "PT301"),
        ("", "ALL", ""),
        ("PT1", "ALL", "PT101 PT102 PT111"),
        ("ALL", "PT1", "PT301"),
        ("PT10", "PT1", "PT101 PT102"),
        ("PT1", "PT10", "PT111"),
        ("PT101", "PT10", "PT101"),
        ("one", "PT10", "PT101"),
        ("PT1", "one", "PT102 PT111"),
        ("PT1", "PT1", ""),
        ("PT101", "one", ""),
        ("PT1,PT101", "PT10", "PT101 PT111"),
    ],
)
def test_the_more_specific_word_decides(select: str, ignore: str, left: str) -> None:
    """If two are equally specific, ``--ignore`` does."""
    assert chosen(select, ignore) == set(left.split())


@pytest.mark.parametrize(
    ("word", "nearest"),
    [
        ("PT1111", "PT111"),
        ("pt101", "PT101"),
        ("PT9", "PT6"),
        ("threee", "three"),
        ("all", "ALL"),
        ("PT1*", "PT1"),
        ("PT3011", "PT301"),
    ],
)
def test_unknown_rule_is_an_error_with_a_suggestion(word: str, nearest: str) -> None:
    """A rule is never guessed, because a check for a missing rule would always pass."""
    with pytest.raises(
        UsageError,
        match=rf"^--select: unknown rule '{word.replace('*', '[*]')}'. Did you mean '{nearest}'[?]",
    ):
        selection.selectors([word], "--select")


@pytest.mark.parametrize("word", ["P", "E501"])
def test_unknown_rule_without_a_similar_rule_is_an_error(word: str) -> None:
    """The error then contains no suggestion."""
    with pytest.raises(UsageError, match=f"unknown rule '{word}'. Run `policytool explain rules`"):
        selection.selectors([word], "--select")


def test_empty_list_of_rules_is_an_error() -> None:
    """A suppression without a rule is a mistake."""
    with pytest.raises(UsageError, match="is empty"):
        selection.ids_of([" , "], "suppress")


def test_selected_rules_that_cannot_run_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A word is reported if all its rules need an option that is not set."""
    stand_in_rules.use(
        monkeypatch,
        *RULES,
        *(
            stand_in_rules.rule(f"PT50{number}", need.name, needs=need)
            for number, need in enumerate(Needs, start=1)
        ),
    )
    words = selection.selectors(["PT101,PT5,PT501,DEVICE,ALL"], "--select")
    assert selection.unused_words(words, AuditOptions()) == (
        "PT5 was skipped: it needs --baseline or --device or --target or --weights or forbid",
        "PT501 was skipped: it needs --target",
        "DEVICE was skipped: it needs --device",
    )
    assert (
        selection.unused_words(words, AuditOptions(targets=("keras3.15",), device=Device.GPU)) == ()
    )
