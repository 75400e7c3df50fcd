"""What is true of every entry."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from policytool.troubleshooting import ENTRIES, FAMILIES
from policytool.troubleshooting.matching import explain_text
from tests.helpers.cases import for_each

if TYPE_CHECKING:
    from policytool.troubleshooting.entry import Entry


each_entry: Final = for_each("entry", ENTRIES, ids=lambda entry: entry.id)


def test_ids_are_unique() -> None:
    """They are anchors."""
    ids = [entry.id for entry in ENTRIES]
    assert len(set(ids)) == len(ids) >= 40
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", one) for one in ids)
    assert len({family.title for family in FAMILIES}) == len(FAMILIES)


@each_entry
def test_an_entry_is_complete(entry: Entry) -> None:
    """With one to three sentences about the cause, and something to do."""
    assert 1 <= len(re.findall(r"\.(?: |$)", entry.cause)) <= 3
    assert entry.releases
    assert entry.patterns
    assert entry.check.command.startswith("policytool ")
    assert entry.fix
    for step in (entry.check, *entry.fix):
        assert step.text.endswith(":" if step.command else (".", "?")), step.text
        assert not step.command or step.command.startswith("policytool ")
    assert all(source.startswith("https://") for source in entry.sources)


@each_entry
def test_a_title_finds_its_entry(entry: Entry) -> None:
    """In a text that mentions Keras; titles that shorten the message are left out."""
    if "..." in entry.title:
        return
    text = f"{entry.title}\n(keras/base_layer.py, deserialize, saved_model/load.py, loss_scale)"
    assert entry.id in [match.entry.id for match in explain_text(text).matches]


@each_entry
def test_repetitions_in_patterns_are_bounded(entry: Entry) -> None:
    """No ``*`` and no ``+``, so the time of a search is linear in the length of the text."""
    for pattern in entry.patterns:
        plain = re.sub(r"\\.|\[(?:\\.|[^\]\\])+\]", "x", pattern.regex.pattern)
        assert not re.search(r"[*+]|\{\d+,\}", plain), pattern.regex.pattern
