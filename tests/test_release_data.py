"""
``fixtures/release_data.py`` adds a release to every table: here a release is taken out of the real
tables, and its recorded answers are added again.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import pytest

from policytool.releases.releases import KERAS2, KERAS3, newest
from tests.helpers.cases import for_each
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES, PACKAGE
from tests.helpers.scripts import fixture_script

if TYPE_CHECKING:
    from pathlib import Path

DATA: Final = PACKAGE / "releases" / "data"
script: Final = fixture_script("release_data")
NEWEST: Final = (newest(KERAS2).id, newest(KERAS3).id)
ROWS: Final[dict[str, Any]] = json.loads((FIXTURES / "releases.json").read_text(encoding="utf-8"))


def test_every_table_has_a_script_or_a_person() -> None:
    """A table that is added is measured for new releases too, or says why it is not."""
    written = [table for step in script.STEPS for table in step.tables]
    by_hand = [*script.BY_HAND, script.DECLARATIONS.name]
    there = [path.name for folder in (DATA, FIXTURES) for path in folder.glob("*.json")]
    assert sorted([*written, *by_hand]) == sorted(there)


def test_every_script_that_asks_releases_is_a_step() -> None:
    """A script that is added runs for new releases too."""
    asking = {
        path.name
        for path in FIXTURES.glob("*.py")
        if "from release_process import" in path.read_text(encoding="utf-8")
    }
    # take hours; runs cases that a person chose; asks old releases; converts with one release
    left = {"applications.py", "verdict_models.py", "claim_files.py"}
    left |= {"error_messages.py", "optimizers.py", "tfjs.py"}
    left |= {"recorded_runs.py", "golden_runs.py"}  # compare chosen pairs of releases
    left |= {"public_files.py", "public_pairs.py"}  # needs files that are not in the repository
    assert asking - left <= {step.script for step in script.STEPS}
    assert not left & {step.script for step in script.STEPS}


@for_each("step", script.STEPS, ids=lambda step: step.script)
def test_scripts_name_the_tables_that_they_write(step: Any) -> None:
    text = (FIXTURES / step.script).read_text(encoding="utf-8")
    assert not [table for table in step.tables if table not in text]


def without(words: dict[str, str], name: str) -> dict[str, str]:
    """Return outcomes with their releases, one of which is left out."""
    left = {key: [item for item in names.split() if item != name] for key, names in words.items()}
    return {key: " ".join(names) for key, names in left.items() if names}


@pytest.mark.parametrize("name", [*NEWEST, "keras3.7", "tf2.4"])
def test_masks_of_a_release_are_removed_and_added_back(name: str) -> None:
    """The table is the same, byte for byte, and is another in between."""
    masks = fixture_script("layer_masks")
    text = masks.DATA.read_text(encoding="utf-8")
    result = masks.recorded()
    rows = result.pop(name)
    removed = masks.text_of(result)
    assert masks.text_of({**result, name: rows}) == text
    assert removed != text


@THOROUGH
@pytest.mark.parametrize("name", [*NEWEST, "keras3.0"])
def test_loads_of_a_release_are_removed_and_added_back(name: str, tmp_path: Path) -> None:
    """The loads are those in the release and those of its files. Errors are numbered again."""
    loads = fixture_script("loads")
    text, files = loads.LOADS.read_text(encoding="utf-8"), loads.fixtures()
    outcomes = loads.read(loads.LOADS)
    own = {key for key in outcomes if name == key[1] or key[0].startswith(f"{name}/")}
    record = tmp_path / "loads.json"
    for kept in (outcomes.keys() - own, outcomes.keys()):
        actual = {**loads.read(record), **{key: outcomes[key] for key in kept}}
        record.write_text(
            loads.render(loads.document(actual, files), loads.LINES) + "\n", encoding="utf-8"
        )
        assert (record.read_text(encoding="utf-8") == text) == (kept == outcomes.keys())


@pytest.mark.parametrize("name", [*NEWEST, "keras3.0"])
def test_training_state_of_a_release_is_removed_and_added_back(name: str) -> None:
    """Each outcome keeps its releases in order."""
    states = fixture_script("training_state")
    record = states.read()
    left = {
        file: {kind: without(words, name) for kind, words in row.items()}
        for file, row in record.items()
    }
    answers = {
        file: {
            kind: outcome
            for kind in row
            for outcome, names in row[kind].items()
            if name in names.split()
        }
        for file, row in record.items()
    }
    answers = {file: said for file, said in answers.items() if said}
    assert left != record
    assert states.merged(left, name, answers, states.compiled()) == record


@pytest.mark.parametrize("name", [*NEWEST, "keras3.11"])
def test_attacks_on_a_release_are_removed_and_added_back(name: str) -> None:
    """Each outcome keeps its releases in order."""
    attacks = fixture_script("attacks")
    record = json.loads(attacks.RECORD.read_text(encoding="utf-8"))
    left = json.loads(json.dumps(record))
    del left["releases"][name]
    answers = {}
    for attack, row in left["attacks"].items():
        for use, words in row["outcomes"].items():
            (answers[attack, use],) = (key for key, names in words.items() if name in names.split())
            row["outcomes"][use] = without(words, name)
    result = attacks.merged(left, name, record["releases"][name], answers)
    assert attacks.render(result, attacks.LINES) == attacks.render(record, attacks.LINES)


@pytest.mark.parametrize("name", NEWEST)
def test_removed_release_is_declared_again_with_the_same_row(name: str) -> None:
    """The pins follow the newest remaining TensorFlow, and the row follows the previous release."""
    rows = {key: row for key, row in ROWS.items() if key != name}
    result = script.declaration(name, rows)
    own = re.escape(name.removeprefix("tf_").removeprefix("keras"))
    pins = [re.sub(rf"(=={own})\.\d+$", r"\1.*", pin) for pin in ROWS[name]["requirements"]]
    assert pins != ROWS[name]["requirements"]
    assert result == {**ROWS[name], "requirements": pins}
    text = script.add_declaration(rows, name, ROWS[name])
    assert text == script.DECLARATIONS.read_text(encoding="utf-8")
    table = script.TABLE.read_text(encoding="utf-8")
    lines = table.splitlines(keepends=True)
    left = "".join(line for line in lines if not line.startswith(f'    Release("{name}",'))
    assert len(left) < len(table)
    assert script.add_row(left, name) == table


def test_declared_release_is_unchanged() -> None:
    """The release is measured again with its existing pins."""
    assert all(
        script.declaration(name, ROWS) == row
        for name, row in ROWS.items()
        if "generate" in row["scripts"]
    )


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "name the release: make release-data RELEASE="),
        (["torch2.5"], "torch2.5 cannot be added"),
        (["keras3"], "keras3 cannot be added"),
        (["keras3.9"], "keras3.9 cannot be added"),
        (["tf2.13"], "tf2.13 cannot be added"),
        (["tf2.99"], "the package index has no tf-keras==2.99.*"),
        (["keras3.99"], "the package index has no keras==3.99.*"),
    ],
)
def test_release_that_cannot_be_measured_changes_nothing(
    arguments: list[str],
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The result is one sentence and an exit status. No table changes, and no script runs."""

    def install(release: Any, venvs: Path) -> Path:
        expected = release.requirements[1]
        raise script.GenerationError(f"{venvs}: No matching distribution found for {expected}\n")

    monkeypatch.setattr(script, "environment", install)
    monkeypatch.setattr(script, "run_step", lambda *_: pytest.fail("a script was run"))
    monkeypatch.setattr("sys.argv", ["release_data.py", *arguments])
    before = [path.read_bytes() for path in (script.DECLARATIONS, script.TABLE)]
    assert script.main() == 2
    result = capsys.readouterr().err
    assert result.startswith("error: ")
    assert problem in result
    assert result.count("\n") == 1
    assert before == [path.read_bytes() for path in (script.DECLARATIONS, script.TABLE)]
