"""The committed fixtures are those that the generator wrote."""

from __future__ import annotations

import hashlib
import json
from typing import Final

from policytool.releases.layer_classes import builtin_classes, operation_classes
from tests.helpers.paths import FIXTURES
from tests.helpers.scripts import fixture_script

MANIFEST: Final = json.loads((FIXTURES / "manifest.json").read_text(encoding="utf-8"))["files"]


def test_files_agree_with_the_manifest() -> None:
    """No file below a release was changed, lost or added by hand."""
    releases = {name.partition("/")[0] for name in MANIFEST}
    present = {
        path.relative_to(FIXTURES).as_posix(): path
        for release in releases
        for path in (FIXTURES / release).rglob("*")
        if path.is_file()
    }
    assert set(present) == set(MANIFEST)
    changed = [
        name
        for name, path in present.items()
        if hashlib.sha256(path.read_bytes()).hexdigest() != MANIFEST[name]["sha256"]
    ]
    assert not changed


def test_fixtures_stay_small() -> None:
    """All of them together are below 20 MB."""
    files = (
        path for path in FIXTURES.rglob("*") if path.is_file() and path.parent.name != "__pycache__"
    )
    assert sum(path.stat().st_size for path in files) < 20e6


def test_every_file_of_the_recorded_truth_exists() -> None:
    for truth in FIXTURES.glob("*/truth.json"):
        for case in json.loads(truth.read_text(encoding="utf-8"))["cases"].values():
            assert case["files"] or case["not_written"]
            assert all((truth.parent / name).exists() for name in case["files"].values())


def test_every_class_of_every_release_has_an_entry() -> None:
    """A class or an operation that a release adds makes this fail until someone adds its facts."""
    script = fixture_script("layer_classes")
    assert script.missing() == {}
    assert script.layers() == builtin_classes()
    assert script.operations() == operation_classes()


def test_recorded_runs_name_the_layer_of_a_difference() -> None:
    """At most one of twenty planted differences is missed, and equal runs are equal."""
    rows = json.loads((FIXTURES / "recorded_runs.json").read_text(encoding="utf-8"))
    planted = [row["result"] for row in rows if row["run"]["layer"] is not None]
    assert len(planted) >= 40
    assert planted.count("named") >= 0.95 * len(planted)
    assert {row["result"] for row in rows if row["run"]["layer"] is None} == {"equal"}


def test_recorded_runs_tell_changes_from_rounding() -> None:
    """
    Unchanged models are equal in all releases. Changed ones are not, unless training in bfloat16
    leaves every weight as it is.
    """
    rows = json.loads((FIXTURES / "golden_runs.json").read_text(encoding="utf-8"))
    unchanged = [row for row in rows if row["change"] is None]
    assert sum(row["models"] - row["not_run"] for row in unchanged) >= 100
    assert not [row for row in unchanged if row["equal"] < row["models"] - row["not_run"]]
    changed = [row for row in rows if row["change"] is not None]
    assert sum(row["models"] for row in changed) >= 150
    kept = [row for row in changed if row["equal"]]
    assert {(row["policy"], row["change"]) for row in kept} <= {("bfloat16", "trained")}
