"""The table of releases, and that every record has the releases that it should."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

import policytool
from policytool.releases import data, releases
from policytool.releases.generations import GENERATIONS
from policytool.releases.releases import (
    ARCHIVES,
    KERAS2,
    KERAS3,
    LOADERS,
    RELEASES,
    get,
    is_since,
    newest,
    newest_known,
    releases_in,
)
from tests.helpers.paths import FIXTURES

FAMILIES: Final = (KERAS2, KERAS3)
ALL: Final = "tf1.15 on, keras3.0 on"
STANDALONE: Final = frozenset({"keras2.1.6", "keras2.2.4", "keras2.3.1"})
"""They wrote fixtures and load them; no target is one of them."""

BESIDES: Final = STANDALONE | {one.id for one in RELEASES if one.family == KERAS3} - set(LOADERS)
"""Releases that some records have though they are no targets."""

MODULE: Final = "+module"


def fixture(name: str) -> Any:
    """Return what a file below ``fixtures/`` holds."""
    return json.loads((FIXTURES / name).read_text(encoding="utf-8"))


def in_words(outcomes: dict[str, Any]) -> Counter[str]:
    """
    Return the releases of a row that has them by their outcome; ``compiled`` has those alone that
    differ.
    """
    return Counter(
        name
        for outcome, names in outcomes.items()
        if outcome != "compiled"
        for name in names.split()
    )


def columns(*, module: bool) -> set[str]:
    """Return the releases that were asked about the arguments of classes."""
    return {
        name.removesuffix(MODULE)
        for name in data.read("layer_arguments")["columns"]
        if name.endswith(MODULE) == module
    }


RECORDS: Final = {
    "layer_arguments": (columns(module=False), ALL),
    "layer_arguments, with modules": (columns(module=True), "tf2.12 on, keras3.0 on"),
    "training_names": (set(data.read("training_names")["releases"]), ALL),
    "class_modules": (set(data.read("class_modules")["releases"]), "tf2.12 on, keras3.0 on"),
    "operations": (
        {
            name
            for found in data.read("operations")["operations"].values()
            for one in found
            for name in one["loaders"]
        },
        "keras3.0 on",
    ),
    "operations, functions": (
        {name for names in data.read("operations")["functions"] for name in names.split()},
        "tf2.4 on",
    ),
    "layer_dtypes": (set(data.read("layer_dtypes")["measured"]), "tf2.5 on, after keras3.6"),
    "layer_dtypes, initialisers": (
        set(data.read("layer_dtypes")["initializers"]),
        "tf2.5 on, after keras3.6",
    ),
    "layer_variables": (
        set(data.read("layer_variables")["releases"]),
        "tf1.15, tf2.4, tf2.9 on, keras3.0, keras3.6 on",
    ),
    "fixtures/releases.json": (
        {name for name, row in fixture("releases.json").items() if "generate" in row["scripts"]},
        ALL,
    ),
    "fixtures/manifest.json": (
        {name.partition("/")[0] for name in fixture("manifest.json")["files"]} - {"tfjs4.22"},
        ALL,
    ),
    "fixtures/*/policies.json": (
        {path.parent.name for path in FIXTURES.glob("*/policies.json")},
        ALL,
    ),
    "fixtures/loads_migrated.json": (
        {
            name
            for row in fixture("loads_migrated.json")["loads"].values()
            for name in in_words(row)
        },
        ALL,
    ),
    "fixtures/training_state.json": (
        {
            name
            for found in fixture("training_state.json").values()
            for outcomes in found.values()
            for name in in_words(outcomes)
        },
        ALL,
    ),
}
"""A record, the releases that it has, and those of the measured ones that it should have."""


@pytest.mark.parametrize("record", RECORDS)
def test_records_have_the_measured_releases(record: str) -> None:
    """A release that is in one record and missing in another is named."""
    found, ranges = RECORDS[record]
    assert found - BESIDES == releases_in(ranges) & set(LOADERS)
    assert BESIDES.isdisjoint(LOADERS)


@pytest.mark.parametrize("record", ["loads.json", "conversions.json"])
def test_rows_of_fixtures_have_every_measured_release_once(record: str) -> None:
    """Each file was given to, or converted for, every release."""
    content = fixture(record)
    expected = Counter({*LOADERS, *(STANDALONE if "loads" in content else ())})
    rows = content["loads"] if "loads" in content else content["files"]
    assert not [name for name, row in rows.items() if in_words(row) != expected]


@pytest.mark.parametrize(("record", "key"), [("kernels", "layers"), ("casts", "uncast")])
def test_records_of_a_family_are_from_its_newest_release(record: str, key: str) -> None:
    assert set(data.read(record)[key]) == {newest(family).id for family in FAMILIES}


def test_releases_are_named_once() -> None:
    """Each row has a unique name, and each config format has releases."""
    assert max(Counter(release.id for release in RELEASES).values()) == 1
    assert {release.generation.id for release in RELEASES} == {item.id for item in GENERATIONS}


@pytest.mark.parametrize("family", FAMILIES)
def test_newest_release_is_measured_and_named_only_in_the_table(family: str) -> None:
    """A range or a comparison that names this release would exclude its successor."""
    found = newest(family)
    assert found is newest_known(family)
    assert found.formats == ARCHIVES
    package = Path(policytool.__file__).parent
    named = {
        path.relative_to(package).as_posix(): count
        for path in package.rglob("*.py")
        if (count := path.read_text(encoding="utf-8").count(found.id))
    }
    assert named == {"releases/releases.py": 1}


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ("tf2.2", "tf2.2"),
        ("tf2.1 to tf2.3", "tf2.1 tf2.2 tf2.3"),
        ("tf1.15, tf2.1 to tf2.2", "tf1.15 tf2.1 tf2.2"),
        ("tf_keras2.19 on", "tf_keras2.19 tf_keras2.20 " + newest(KERAS2).id),
        ("after keras3.13", "keras3.14 " + newest(KERAS3).id),
    ],
)
def test_ranges_are_of_the_table(ranges: str, expected: str) -> None:
    """A range is one release, those between two, or all of a family from one on."""
    assert releases_in(ranges) == set(expected.split())


@pytest.mark.parametrize("ranges", ["tf2.3 to tf2.1", f"after {newest(KERAS3).id}"])
def test_empty_ranges_are_errors(ranges: str) -> None:
    """A range must contain a release."""
    with pytest.raises(ValueError, match="no release is in the range"):
        releases_in(ranges)


@pytest.mark.parametrize("ranges", ["tf2.99", "tf2.1 to tf2.99", "keras4.0 on", "", "tf2.1 tf2.2"])
def test_ranges_of_unknown_releases_are_errors(ranges: str) -> None:
    """A name must be in the table."""
    with pytest.raises(KeyError):
        releases_in(ranges)


@pytest.mark.parametrize("measured", [True, False])
def test_added_release_is_in_the_open_ranges(
    monkeypatch: pytest.MonkeyPatch, *, measured: bool
) -> None:
    """
    The release belongs to the ranges of its family, and is the newest one when it is measured.
    """
    before = newest(KERAS3)
    added = replace(before, id="keras3.99", keras_version="3.99.", measured=measured)
    rows = (*RELEASES, added)
    monkeypatch.setattr(releases, "RELEASES", rows)
    monkeypatch.setattr(releases, "_POSITION", {row.id: at for at, row in enumerate(rows)})
    assert newest_known(KERAS3) is added
    assert newest(KERAS3) is (added if measured else before)
    assert added.id in releases_in.__wrapped__("keras3.3 on")
    assert added.id in releases_in.__wrapped__("after keras3.6")
    assert added.id not in releases_in.__wrapped__("tf2.4 on")
    assert is_since(added.id, "keras3.3")


def test_releases_have_a_library_and_a_version() -> None:
    found = [get(name) for name in ("keras2.3", "tf2.15", "tf_keras2.18", "keras3.6")]
    assert [release.library for release in found] == ["keras", "tf", "tf_keras", "keras"]
    assert [release.version for release in found] == ["2.3", "2.15", "2.18", "3.6"]
    assert [release.family for release in found] == [KERAS2, KERAS2, KERAS2, KERAS3]
