"""Rewritten architecture YAML: the changed lines, and the effect of the target."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, Final

import pytest

import policytool
from policytool.formats import rewriting
from policytool.formats.rewriting import Changes
from policytool.support.errors import ModelFileError
from policytool.support.text import yamltext
from tests.conftest import run
from tests.helpers.changes import all_changes, cast, edit
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from pathlib import Path

SAMPLES: Final = sorted(FIXTURES.glob("*/*.yaml"))
DICTS: Final = [
    path
    for path in SAMPLES
    if path.parent.name in {"tf2.1", "tf2.2"}
    and "class_name: Policy" in path.read_text(encoding="utf-8")
]


NOTE: Final = "yaml-layout-rewritten"


@THOROUGH
@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_one_dtype_changes_one_line(path: Path, tmp_path: Path) -> None:
    """An edited dtype changes one line, and tags, tuples, anchors and the order of keys stay."""
    changes = all_changes(path)
    written = rewriting.write(path, tmp_path / "new.yaml", changes, document_format="yaml")
    old, new = (file.read_text(encoding="utf-8").splitlines() for file in (path, written.target))
    assert [line[:1] for line in difflib.ndiff(old, new) if line[:1] in "+-"] == ["-", "+"]
    assert sum("another " in line for line in new) == 1


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_byte_order_mark_and_line_ends_stay(mark: bytes, tmp_path: Path) -> None:
    text = b"class_name: Sequential\r\nconfig:\r\n  name: mlp  # mine\r\n  dtype: float32\r\n"
    (tmp_path / "a.yaml").write_bytes(mark + text)
    changes = Changes(edits=(edit("model", "/config/dtype", "float32", "float16"),))
    written = rewriting.write(
        tmp_path / "a.yaml", tmp_path / "b.yaml", changes, document_format="yaml"
    )
    assert written.target.read_bytes() == mark + text.replace(b"float32", b"float16").replace(
        b"  # mine", b""
    )


@THOROUGH
@pytest.mark.parametrize("path", DICTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_policies_become_names_unless_the_target_needs_dicts(path: Path, tmp_path: Path) -> None:
    """For TF 2.1 and 2.2, which wrote the file, no edit is needed."""
    new = tmp_path / "new.yaml"
    assert run("migrate", path, "-o", new).code == 0
    assert "class_name: Policy" not in new.read_text(encoding="utf-8")
    refused = "python/object" in path.read_text(encoding="utf-8")
    back = run("migrate", new, "--target", path.parent.name, "--in-place=no-backup")
    assert back.code == (2 if refused else 0), (
        back.err
    )  # PyYAML 5.2 and later refuse the tags in it, and JSON does not go where YAML is
    if not refused:
        result = yamltext.parse(new.read_text(encoding="utf-8")).value
        assert str(result).count("'class_name': 'Policy'") == path.read_text(
            encoding="utf-8"
        ).count("name: mixed_")


def test_plan_after_which_no_release_loads_the_file_has_a_note(tmp_path: Path) -> None:
    """No release reads both YAML and the name of a mixed policy."""
    ended = run(
        "migrate", FIXTURES / "tf2.2/exp_mf16_fixed128_uncompiled.yaml", "-o", tmp_path / "new.yaml"
    )
    assert "loads in none of the tested releases" in " ".join(ended.out.split())
    assert "--target tf2.2" in ended.out


def test_unexpected_edits_and_unsupported_values_are_rejected(tmp_path: Path) -> None:
    """A cast, an edit of an unexpected value, and a value that YAML cannot store are errors."""
    path = tmp_path / "a.yaml"
    path.write_text("class_name: A\nconfig: {dtype: float64}\n", encoding="utf-8")
    for code, changes in (
        ("source-changed", Changes(casts=(cast(("a",), "float32", "float16"),))),
        ("source-changed", Changes(edits=(edit("model", "/config/dtype", "float32", "float16"),))),
        ("not-rewritable", Changes(edits=(edit("model", "/config/dtype", "float64", "\ud800"),))),
    ):
        with pytest.raises(ModelFileError) as caught:
            rewriting.write(path, tmp_path / "b.yaml", changes, document_format="yaml")
        assert caught.value.code == code
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("path", DICTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_second_plan_is_empty_and_leaves_the_file(path: Path, tmp_path: Path) -> None:
    """The first plan has a note that the layout changes, and a second plan is empty."""
    new = tmp_path / "new.yaml"
    first = policytool.migrate(path, output=new)
    assert [note.code for note in first.plan.notes].count(NOTE) == 1
    before = new.stat()
    second = policytool.migrate(new, in_place=True)
    assert second.plan.is_empty
    assert NOTE not in {note.code for note in second.plan.notes}
    after = new.stat()
    assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)
    assert list(tmp_path.iterdir()) == [new]


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"target": "tf2.5", "output": "new.json"}, "written"),
        ({"target": "tf2.0", "output": "new.yaml"}, "blocked"),
    ],
    ids=["converted", "blocked"],
)
def test_only_yaml_that_is_written_has_the_note(
    options: dict[str, Any], status: str, tmp_path: Path
) -> None:
    """A conversion writes JSON, and a plan with errors writes nothing."""
    path = FIXTURES / "tf2.2/exp_mf16_fixed128_uncompiled.yaml"
    options = {**options, "output": tmp_path / options["output"]}
    ended = policytool.migrate(path, **options)
    assert ended.status == status
    assert ended.plan.notes or ended.plan.refusals
    assert NOTE not in {note.code for note in ended.plan.notes}
