"""Rewritten TensorFlow.js models: the edited text, and the shards that a copy needs."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any, Final

import pytest

import policytool
from policytool.formats import format_detection, rewriting
from policytool.formats.edits import WriteOptions
from policytool.formats.rewriting import Changes
from policytool.migration import planning
from policytool.migration.planning.options import Assignment, Options, Outputs
from policytool.model import reading
from policytool.support.errors import ModelFileError
from policytool.support.text.jsontext import value
from tests.conftest import run
from tests.helpers.changes import all_changes, casts, document_of, dtype_edit, held
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from pathlib import Path

    from policytool.migration.plan import Plan

TFJS: Final = FIXTURES / "tfjs4.22"
MODELS: Final = sorted(
    path for path in TFJS.glob("*/model.json") if path.parent.name != "graph_model"
)
SHARD: Final = "group1-shard1of1.bin"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Copy a model with policy dicts and a compiled optimizer."""
    shutil.copytree(TFJS / "from_tf2.3", tmp_path / "web")
    return tmp_path / "web/model.json"


def write(source: Path, target: Path, **options: Any) -> rewriting.Written:
    """Write a model with one edit."""
    return rewriting.write(
        source,
        target,
        Changes(edits=all_changes(source).edits),
        document_format="tfjs",
        options=WriteOptions(**options),
    )


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.parent.name)
def test_every_fixture_is_rewritten_and_read_back(path: Path, tmp_path: Path) -> None:
    """An edit changes one dtype in the text of each fixture, and the shards are unchanged."""
    edit = dtype_edit(document_of(path))
    assert edit is not None
    written = rewriting.write(
        path, tmp_path / "model.json", Changes(edits=(edit,)), document_format="tfjs"
    )
    text, new = path.read_text(encoding="utf-8"), written.target.read_text(encoding="utf-8")
    assert new.count("another ") == 1
    assert new.replace("another ", "") == text
    assert held(tmp_path).keys() == {"model.json", SHARD}
    assert (tmp_path / SHARD).read_bytes() == (path.parent / SHARD).read_bytes()
    reading.read(written.target, "again")


def test_shards_are_unchanged_in_the_same_directory(model: Path) -> None:
    before = held(model.parent)
    write(model, model.with_name("other.json"))
    assert held(model.parent).keys() == {"model.json", "other.json", SHARD}
    write(model, model, in_place=True)
    assert held(model.parent).keys() == {"model.json", "model.json.bak", "other.json", SHARD}
    assert held(model.parent)["model.json.bak"] == before["model.json"]


def test_copy_in_another_directory_gets_its_shards(model: Path, tmp_path: Path) -> None:
    """
    A copy in another directory gets its shards, including those in subdirectories, and a second run
    does not write them again.
    """
    text = model.read_text(encoding="utf-8").replace(SHARD, f"weights/{SHARD}")
    model.write_text(text, encoding="utf-8")
    (model.parent / "weights").mkdir()
    (model.parent / SHARD).rename(model.parent / "weights" / SHARD)
    (tmp_path / "new").mkdir()
    write(model, tmp_path / "new/model.json")
    assert held(tmp_path / "new").keys() == {"model.json", f"weights/{SHARD}"}
    inode = (tmp_path / "new/weights" / SHARD).stat().st_ino
    write(model, tmp_path / "new/model.json", overwrite=True)
    assert (tmp_path / "new/weights" / SHARD).stat().st_ino == inode


@pytest.mark.parametrize("overwrite", [False, True])
def test_another_shard_of_the_same_name_is_never_replaced(
    overwrite: bool,  # noqa: FBT001
    model: Path,
    tmp_path: Path,
) -> None:
    """It belongs to another model."""
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / SHARD).write_bytes(b"another model's")
    before = held(tmp_path)
    with pytest.raises(ModelFileError, match="different content") as caught:
        write(model, tmp_path / "new/model.json", overwrite=overwrite)
    assert caught.value.code == "target-exists"
    assert held(tmp_path) == before


def _without_shard(model: Path) -> None:
    (model.parent / SHARD).unlink()


def _outside(model: Path) -> None:
    model.write_text(
        model.read_text(encoding="utf-8").replace(SHARD, f"../{SHARD}"), encoding="utf-8"
    )
    (model.parent / SHARD).rename(model.parent.parent / SHARD)


def _directory(model: Path) -> None:
    (model.parent / SHARD).unlink()
    (model.parent / SHARD).mkdir()


@pytest.mark.parametrize("harm", [_without_shard, _outside, _directory])
def test_a_copy_that_could_not_be_loaded_is_not_made(
    harm: Any, model: Path, tmp_path: Path
) -> None:
    """
    A copy is an error if a shard is missing, outside the directory or not a file; in the model's
    own directory this is no error.
    """
    harm(model)
    (tmp_path / "new").mkdir()
    with pytest.raises(ModelFileError) as caught:
        write(model, tmp_path / "new/model.json")
    assert caught.value.code == "not-rewritable"
    assert not list((tmp_path / "new").iterdir())
    write(model, model.with_name("other.json"))


def test_shards_of_a_linked_model_are_those_next_to_the_link(model: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    for name, blob in (("model.json", "1"), (SHARD, "2")):
        (model.parent / name).rename(cache / blob)
        (model.parent / name).symlink_to(cache / blob)
    (tmp_path / "new").mkdir()
    write(model, tmp_path / "new/model.json")
    assert held(tmp_path / "new").keys() == {"model.json", SHARD}
    assert not (tmp_path / "new" / SHARD).is_symlink()


def test_tensors_are_not_cast(model: Path) -> None:
    changes = Changes(casts=casts(document_of(model)))
    with pytest.raises(ModelFileError) as caught:
        rewriting.write(model, model.with_name("other.json"), changes, document_format="tfjs")
    assert caught.value.code == "not-rewritable"
    with pytest.raises(ModelFileError):
        rewriting.measure(model, "tfjs", changes.casts)
    assert rewriting.measure(model, "tfjs", ()) == {}


def plan(path: Path, **options: Any) -> Plan:
    """Return the plan of a model's migration."""
    return planning.plan(
        reading.load_model(format_detection.document(path, "model.json")), Options(**options)
    )


@pytest.mark.parametrize("policy", ["float16", "bfloat16", "mixed_float16", "mixed_bfloat16"])
def test_no_policy_asks_for_a_cast(policy: str) -> None:
    """No policy plans a cast; a note reports variables whose dtype cannot be stored."""
    for path in MODELS:
        migration_plan = plan(path, to=policy)
        assert migration_plan.casts == ()
        assert "tensors-kept" not in {
            note.code for note in migration_plan.notes
        } or not policy.startswith("mixed_"), path
    migration_plan = plan(TFJS / "from_tf2.3/model.json", to=policy, outputs=Outputs.FOLLOW)
    actual = {note.code for note in migration_plan.notes}
    assert ("tensors-kept" in actual) == (not policy.startswith("mixed_"))


def test_inputs_that_tensorflow_js_cannot_feed_are_rejected() -> None:
    """TensorFlow.js fails to predict with it (measured)."""
    path = TFJS / "nested_models/model.json"
    layers = [
        layer.path for layer in policytool.inspect(path).layers if layer.class_name == "InputLayer"
    ]
    migration_plan = plan(path, assignments=(Assignment(pattern=layers[0], policy="float16"),))
    assert [(refusal.code, refusal.path) for refusal in migration_plan.refusals] == [
        ("tfjs-input", layers[0])
    ]
    assert {refusal.code for refusal in plan(path, to="float64").refusals} == {"tfjs-input"}
    assert not plan(path, to="bfloat16").refusals


@pytest.mark.parametrize(
    "pointer",
    [
        "/modelTopology",
        "/modelTopology/model_config",
        "/modelTopology/model_config/config",
        "/modelTopology/training_config",
    ],
)
def test_plan_with_an_invalid_result_is_rejected(pointer: str, model: Path, tmp_path: Path) -> None:
    planned = run("migrate", model, "--preview", "--format", "json")
    plans = planned.json
    edit = plans["plans"][0]["edits"][0]
    plans["plans"][0]["edits"] = [
        {
            **edit,
            "pointer": pointer,
            "before": value(json.loads(model.read_text(encoding="utf-8")), pointer),
            "after": 3,
        }
    ]
    (tmp_path / "plan.json").write_text(json.dumps(plans), encoding="utf-8")
    before = held(tmp_path)
    ended = run("migrate", "--plan", tmp_path / "plan.json", model, "--preview")
    assert ended.code == (1 if pointer.endswith("training_config") else 3), ended.err
    assert "Traceback" not in ended.err
    assert held(tmp_path) == before


def test_the_command_line_migrates_both_texts_and_tensors(model: Path, tmp_path: Path) -> None:
    """``migrate`` edits policies and the optimizer in ``model.json``."""
    (tmp_path / "new").mkdir()
    ended = run("migrate", model, "-o", tmp_path / "new", "--format", "json")
    assert ended.code == 0, ended.err
    edits = ended.json["plans"][0]["edits"]
    assert {(edit["part"], edit["pointer"].split("/")[2]) for edit in edits} == {
        ("model.json", "model_config"),
        ("model.json", "training_config"),
    }
    topology = json.loads((tmp_path / "new/model.json").read_text(encoding="utf-8"))[
        "modelTopology"
    ]
    assert topology["training_config"]["optimizer_config"]["config"]["initial_scale"] == 128.0
    assert run("migrate", tmp_path / "new/model.json", "--preview").code == 0
