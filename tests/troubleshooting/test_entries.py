"""Tests of all entries."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import jsonschema
import pytest

import policytool.troubleshooting
from policytool.troubleshooting.entries import FAMILIES, entries, explain_text, families
from tests.helpers.cases import for_each
from tests.helpers.marks import THOROUGH

if TYPE_CHECKING:
    from policytool.troubleshooting.entries import Entry


DATA: Final = Path(policytool.troubleshooting.__file__).with_name("data")
ENTRIES: Final = tuple(entries())


def parsed(name: str) -> dict[str, Any]:
    """Return a data file."""
    return tomllib.loads((DATA / f"{name}.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", [*FAMILIES, "shared"])
def test_data_matches_its_schema(name: str) -> None:
    """Each data file is valid according to its schema."""
    schema_name = "shared" if name == "shared" else "family"
    schema = json.loads((DATA / "schemas" / f"{schema_name}.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(parsed(name), schema, cls=jsonschema.Draft202012Validator)


def test_every_data_file_is_read() -> None:
    """A new family is also a name in ``FAMILIES``."""
    assert {file.stem for file in DATA.glob("*.toml")} == {*FAMILIES, "shared"}


def test_every_shared_part_is_used() -> None:
    """Several entries use each shared step, and some pattern uses each shared expression."""
    texts = "\n".join((DATA / f"{name}.toml").read_text(encoding="utf-8") for name in FAMILIES)
    for name in parsed("shared")["steps"]:
        assert texts.count(f"step = '{name}'") > 1, name
    assert set(re.findall(r"\(\?&(\w+)\)", texts)) == {*parsed("shared")["expressions"]}


each_entry: Final = for_each("entry", ENTRIES, ids=lambda entry: entry.id)


def test_ids_are_unique() -> None:
    """The ids are anchors of a page."""
    ids = [entry.id for entry in ENTRIES]
    assert len(set(ids)) == len(ids) >= 40
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", entry_id) for entry_id in ids)
    assert len({family.title for family in families()}) == len(FAMILIES)


@each_entry
def test_an_entry_is_complete(entry: Entry) -> None:
    """An entry has one to three sentences about the cause, a check, and a fix."""
    assert 1 <= len(re.findall(r"\.(?: |$)", entry.cause)) <= 3
    assert entry.releases
    assert entry.patterns
    assert entry.check.command.startswith("policytool ")
    assert entry.fix
    for step in (entry.check, *entry.fix):
        assert step.text.endswith(":" if step.command else (".", "?")), step.text
        assert not step.command or step.command.startswith("policytool ")
    assert all(source.startswith("https://") for source in entry.sources)


@THOROUGH
@each_entry
def test_title_of_an_entry_matches_this_entry(entry: Entry) -> None:
    """The text mentions Keras, and shortened titles are excluded."""
    if "..." in entry.title:
        return
    text = f"{entry.title}\n(keras/base_layer.py, deserialize, saved_model/load.py, loss_scale)"
    assert entry.id in [match.entry.id for match in explain_text(text).matches]


@each_entry
def test_repetitions_in_patterns_are_bounded(entry: Entry) -> None:
    """No ``*`` and no ``+``, so the time of a search is linear in the length of the text."""
    for pattern in entry.patterns:
        for regex in (pattern.regex.pattern, re.compile(pattern.needs).pattern):
            plain = re.sub(r"\\.|\[(?:\\.|[^\]\\])+\]", "x", regex)
            assert not re.search(r"[*+]|\{\d+,\}", plain), regex
